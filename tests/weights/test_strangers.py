"""Strangers' checkpoints: at most 15 lines of rules, the model found from the tensors where it
shows, equal outputs, and exported again bit for bit."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from compare import TOLERANCE, perturb, picture, relative_error
from torch import nn

import vitreous
from vitreous.errors import CheckpointError
from vitreous.weights.identify import readings
from vitreous.weights.io.files import read_tensors

DIM, HEADS, DEPTH = 24, 3, 2


class TorchEncoder(nn.Module):
    """torch.nn.TransformerEncoder behind a convolution."""

    rules = """
numbers = { norm_eps = 1e-5, heads = 3, norm = "NORM" }
[rules]
"patch.{p}" = "cut.{p}"
"prefix.class_token" = { theirs = "cls", pattern = "1 1 d -> d" }
"position.table" = { theirs = "pos", pattern = "1 n d -> n d" }
"blocks.{i}.norm{k}.{p}" = "body.layers.{i}.norm{k}.{p}"
"blocks.{i}.attention.qkv.{p}" = "body.layers.{i}.self_attn.in_proj_{p}"
"blocks.{i}.attention.projection.{p}" = "body.layers.{i}.self_attn.out_proj.{p}"
"blocks.{i}.mlp.fc{k}.{p}" = "body.layers.{i}.linear{k}.{p}"
"norm.{p}" = "body.norm.{p}"
"head.out.{p}" = "answer.{p}"
"""

    def __init__(self, norm_first=True):
        super().__init__()
        layer = nn.TransformerEncoderLayer(
            DIM, HEADS, 40, 0.0, "gelu", batch_first=True, norm_first=norm_first
        )
        self.rules = self.rules.replace("NORM", "pre" if norm_first else "post")
        self.cut = nn.Conv2d(3, DIM, 8, 8)
        self.cls, self.pos = (nn.Parameter(torch.zeros(1, n, DIM)) for n in (1, 17))
        self.body = nn.TransformerEncoder(
            layer, DEPTH, norm=nn.LayerNorm(DIM), enable_nested_tensor=False
        )
        self.answer = nn.Linear(DIM, 5)

    def forward(self, images):
        x = self.cut(images).flatten(2).mT
        x = torch.cat((self.cls.expand(len(x), -1, -1), x), 1) + self.pos
        return self.answer(self.body(x)[:, 0])


class PerHead(nn.Module):
    """A query, a key and a value layer for each head; positions for the patches only."""

    rules = """
numbers = { norm_eps = 1e-5 }
[rules]
"patch.{p}" = "patches.{p}"
"prefix.class_token" = "token"
"position.table" = { theirs = "places", rows = "patches" }
"blocks.{i}.norm{k}.{p}" = "layers.{i}.ln{k}.{p}"
"blocks.{i}.attention.qkv.{p}" = { theirs = ["layers.{i}.q.{head}.{p}", "layers.{i}.k.{head}.{p}", "layers.{i}.v.{head}.{p}"], pattern = "(qkv heads) e ... -> (qkv heads e) ..." }
"blocks.{i}.attention.projection.{p}" = "layers.{i}.join.{p}"
"blocks.{i}.mlp.fc1.{p}" = "layers.{i}.mlp.0.{p}"
"blocks.{i}.mlp.fc2.{p}" = "layers.{i}.mlp.2.{p}"
"norm.{p}" = "ln.{p}"
"head.out.{p}" = "out.{p}"
"""  # noqa: E501

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, DIM, 8, 8)
        self.token, self.places = nn.Parameter(torch.zeros(DIM)), nn.Parameter(torch.zeros(16, DIM))
        self.layers = nn.ModuleList(PerHeadLayer() for _ in range(DEPTH))
        self.ln, self.out = nn.LayerNorm(DIM), nn.Linear(DIM, 5)

    def forward(self, images):
        x = self.patches(images).flatten(2).mT + self.places
        x = torch.cat((self.token.expand(len(x), 1, -1), x), 1)
        for layer in self.layers:
            x = layer(x)
        return self.out(self.ln(x)[:, 0])


class PerHeadLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (
            nn.ModuleList(nn.Linear(DIM, DIM // HEADS) for _ in range(HEADS)) for _ in range(3)
        )
        self.join, self.ln1, self.ln2 = nn.Linear(DIM, DIM), nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 40), nn.GELU(), nn.Linear(40, DIM))

    def forward(self, x):
        y = self.ln1(x)
        heads = [
            F.scaled_dot_product_attention(q(y), k(y), v(y))
            for q, k, v in zip(self.q, self.k, self.v, strict=True)
        ]
        x = x + self.join(torch.cat(heads, -1))
        return x + self.mlp(self.ln2(x))


class KerasLike(nn.Module):
    """Kernels as (in, out), attention per head as (d, h, e), names of layers with slashes."""

    rules = """
numbers = { norm_eps = 1e-3 }
[rules]
"patch.weight" = { theirs = "embed/kernel", pattern = "ph pw c d -> d c ph pw" }
"patch.bias" = "embed/bias"
"prefix.class_token" = { theirs = "token", pattern = "1 1 d -> d" }
"position.table" = "position/embeddings"
"blocks.{i}.norm{k}.weight" = "block_{i}/norm_{k}/gamma"
"blocks.{i}.norm{k}.bias" = "block_{i}/norm_{k}/beta"
"blocks.{i}.attention.qkv.weight" = { theirs = ["block_{i}/query/kernel", "block_{i}/key/kernel", "block_{i}/value/kernel"], pattern = "qkv d heads e -> (qkv heads e) d" }
"blocks.{i}.attention.projection.weight" = { theirs = "block_{i}/out/kernel", pattern = "heads e d -> d (heads e)" }
"blocks.{i}.attention.projection.bias" = "block_{i}/out/bias"
"blocks.{i}.mlp.fc{k}.weight" = { theirs = "block_{i}/dense_{k}/kernel", pattern = "i o -> o i" }
"blocks.{i}.mlp.fc{k}.bias" = "block_{i}/dense_{k}/bias"
"head.out.weight" = { theirs = "logits/kernel", pattern = "i o -> o i" }
"head.out.bias" = "logits/bias"
"""  # noqa: E501

    def __init__(self):
        super().__init__()
        e, generator = DIM // HEADS, torch.Generator().manual_seed(0)
        shapes = {"embed/kernel": (8, 8, 3, DIM), "embed/bias": (DIM,), "token": (1, 1, DIM)}
        shapes |= {"position/embeddings": (17, DIM), "logits/kernel": (DIM, 5), "logits/bias": (5,)}
        for i in range(DEPTH):
            shapes |= {f"block_{i}/{part}/kernel": (DIM, HEADS, e) for part in PARTS}
            shapes |= {f"block_{i}/out/kernel": (HEADS, e, DIM), f"block_{i}/out/bias": (DIM,)}
            shapes |= {f"block_{i}/norm_{k}/{p}": (DIM,) for k in (1, 2) for p in ("gamma", "beta")}
            shapes |= {f"block_{i}/dense_1/kernel": (DIM, 40), f"block_{i}/dense_1/bias": (40,)}
            shapes |= {f"block_{i}/dense_2/kernel": (40, DIM), f"block_{i}/dense_2/bias": (DIM,)}
        self.w = {k: 0.3 * torch.randn(s, generator=generator) for k, s in shapes.items()}

    def state_dict(self):
        return dict(self.w)

    def load_state_dict(self, state, strict):
        assert {k: v.shape for k, v in state.items()} == {k: v.shape for k, v in self.w.items()}
        self.w = dict(state)

    def forward(self, images):
        w = self.w
        x = F.conv2d(images, w["embed/kernel"].permute(3, 2, 0, 1), w["embed/bias"], 8)
        x = torch.cat((w["token"].expand(len(x), -1, -1), x.flatten(2).mT), 1)
        x = x + w["position/embeddings"]
        for i in range(DEPTH):
            y = self.norm(x, f"block_{i}/norm_1")
            q, k, v = (torch.einsum("bnd,dhe->bhne", y, w[f"block_{i}/{p}/kernel"]) for p in PARTS)
            y = F.scaled_dot_product_attention(q, k, v)
            x = x + torch.einsum("bhne,hed->bnd", y, w[f"block_{i}/out/kernel"])
            x = x + w[f"block_{i}/out/bias"]
            y = self.dense(self.norm(x, f"block_{i}/norm_2"), f"block_{i}/dense_1")
            x = x + self.dense(F.gelu(y), f"block_{i}/dense_2")
        return self.dense(x[:, 0], "logits")

    def dense(self, x, name):
        return x @ self.w[f"{name}/kernel"] + self.w[f"{name}/bias"]

    def norm(self, x, name):
        return F.layer_norm(x, (DIM,), self.w[f"{name}/gamma"], self.w[f"{name}/beta"], 1e-3)


PARTS = ("query", "key", "value")
STRANGERS = {
    "torch, norm first": TorchEncoder,
    "torch, norm last": lambda: TorchEncoder(norm_first=False),
    "a layer per head": PerHead,
    "keras": KerasLike,
}


@torch.no_grad()
@pytest.mark.parametrize("wrapped", [False, True], ids=["plain", "wrapped"])
@pytest.mark.parametrize("make", STRANGERS.values(), ids=STRANGERS)
def test_a_stranger_goes_there_and_back(tmp_path, make, wrapped):
    theirs = perturb(make())
    path, state = tmp_path / "rules.toml", dict(theirs.state_dict())
    assert len(theirs.rules.strip().splitlines()) <= 15
    path.write_text(theirs.rules)
    prefix = "module." if wrapped else ""
    saved = {f"{prefix}{key}": value for key, value in state.items()}
    torch.save({"state_dict": saved, "epoch": 3} if wrapped else saved, tmp_path / "theirs.pth")

    checkpoint = read_tensors(tmp_path / "theirs.pth")
    (found,) = readings(checkpoint, format=path)
    ours = vitreous.create(found.model, **found.changes).eval()
    assert ours.config.heads == HEADS, "by the rules, or by the checkpoint's axes"
    vitreous.import_weights(ours, checkpoint, path)
    images = picture(2, 3, 32, 32)
    assert relative_error(ours(images), theirs(images)) < TOLERANCE

    exported = vitreous.export_weights(ours, path)
    assert exported.keys() == state.keys()
    for key, value in state.items():
        assert torch.equal(exported[key], value), key
    theirs.load_state_dict(exported, strict=True)


def test_axes_of_length_one_are_not_lost(tmp_path):
    """15: (1, 1, d) was imported by a rule for (d,), and exported as (d,)."""
    theirs, path = TorchEncoder(), Path(tmp_path / "rules.toml")
    path.write_text(theirs.rules.replace(', pattern = "1 1 d -> d"', ""))
    (found,) = readings_of(tmp_path, theirs)
    ours = vitreous.create(found.model, **found.changes)
    with pytest.raises(CheckpointError, match="give the rule the pattern '1 1 a -> a'"):
        vitreous.import_weights(ours, theirs.state_dict(), path)


def readings_of(folder, theirs):
    (folder / "good.toml").write_text(theirs.rules)
    torch.save(theirs.state_dict(), folder / "theirs.pth")
    return readings(read_tensors(folder / "theirs.pth"), format=folder / "good.toml")
