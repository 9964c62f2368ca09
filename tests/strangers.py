"""Other people's ViTs, small and written anew: what they are made of, what they call it, and the
rules that read them. See `test_strangers.py`."""

import math
import re

import torch
import torch.nn.functional as F
from torch import nn

DIM, HEADS, DEPTH, CLASSES = 24, 3, 2, 5
E = DIM // HEADS

ENCODER = """
"blocks.{i}.norm{k}.{p}" = "body.layers.{i}.norm{k}.{p}"
"blocks.{i}.attention.qkv.{p}" = "body.layers.{i}.self_attn.in_proj_{p}"
"blocks.{i}.attention.projection.{p}" = "body.layers.{i}.self_attn.out_proj.{p}"
"blocks.{i}.mlp.fc{k}.{p}" = "body.layers.{i}.linear{k}.{p}"
"""
HEAD = '"head.out.{p}" = "answer.{p}"'
TOKEN = '"prefix.class_token" = { theirs = "cls", pattern = "1 1 d -> d" }'
TABLE = '"position.table" = { theirs = "pos", pattern = "1 n d -> n d" }'


def parameter(*shape):
    return nn.Parameter(torch.zeros(shape))


def blocks(make):
    return nn.ModuleList(make() for _ in range(DEPTH))


def encoder(norm_first=True, activation="gelu", norm=None):
    layer = nn.TransformerEncoderLayer(
        DIM, HEADS, 40, 0.0, activation, batch_first=True, norm_first=norm_first
    )
    return nn.TransformerEncoder(layer, DEPTH, norm=norm, enable_nested_tensor=False)


def split(x, heads=HEADS):
    """(b, n, h·e) -> (b, h, n, e)"""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def joined(x):
    return x.transpose(1, 2).flatten(2)


def attend(q, k, v, scale=None):
    return F.scaled_dot_product_attention(q, k, v, scale=scale)


class Stranger(nn.Module):
    channels, size = 3, 32
    exact = True
    """Whether what is exported is what was imported, bit for bit."""
    rules = ""

    def first(self, x, token=None):
        return torch.cat(((self.cls if token is None else token).expand(len(x), 1, -1), x), 1)


class TorchEncoder(Stranger):
    """torch.nn.TransformerEncoder behind a convolution; a norm in it, or in the head as well, or
    none."""

    def __init__(self, norm_first=True, norms=1, activation="gelu"):
        super().__init__()
        self.cut, self.answer = nn.Conv2d(3, DIM, 8, 8), nn.Linear(DIM, CLASSES)
        self.cls, self.pos = parameter(1, 1, DIM), parameter(1, 17, DIM)
        self.body = encoder(norm_first, activation, nn.LayerNorm(DIM) if norms else None)
        self.ln = nn.LayerNorm(DIM) if norms > 1 else nn.Identity()
        norm = "pre" if norm_first else "post"
        more = '\n"pooled_norm.{p}" = "ln.{p}"' if norms > 1 else ""
        self.rules = f"""
numbers = {{ norm_eps = 1e-5, heads = 3, norm = "{norm}", activation = "{activation}" }}
[rules]
"patch.{{p}}" = "cut.{{p}}"
{TOKEN}
{TABLE}{ENCODER}"norm.{{p}}" = "body.norm.{{p}}"{more}
{HEAD}
"""

    def forward(self, images):
        x = self.first(self.cut(images).flatten(2).mT) + self.pos
        return self.answer(self.ln(self.body(x)[:, 0]))


class PerHead(Stranger):
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

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v = (
                nn.ModuleList(nn.Linear(DIM, E) for _ in range(HEADS)) for _ in range(3)
            )
            self.join, self.ln1, self.ln2 = (nn.Linear(DIM, DIM), *norms(2))
            self.mlp = nn.Sequential(nn.Linear(DIM, 40), nn.GELU(), nn.Linear(40, DIM))

        def forward(self, x):
            y = self.ln1(x)
            heads = [
                attend(q(y), k(y), v(y)) for q, k, v in zip(self.q, self.k, self.v, strict=True)
            ]
            x = x + self.join(torch.cat(heads, -1))
            return x + self.mlp(self.ln2(x))

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, DIM, 8, 8)
        self.token, self.places = parameter(DIM), parameter(16, DIM)
        self.layers = blocks(self.Layer)
        self.ln, self.out = nn.LayerNorm(DIM), nn.Linear(DIM, CLASSES)

    def forward(self, images):
        x = self.first(self.patches(images).flatten(2).mT + self.places, self.token)
        for layer in self.layers:
            x = layer(x)
        return self.out(self.ln(x)[:, 0])


def norms(count):
    return [nn.LayerNorm(DIM) for _ in range(count)]


PARTS = ("query", "key", "value")


class KerasLike(Stranger):
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
        shapes = {"embed/kernel": (8, 8, 3, DIM), "embed/bias": (DIM,), "token": (1, 1, DIM)}
        shapes |= {"position/embeddings": (17, DIM), "logits/kernel": (DIM, 5), "logits/bias": (5,)}
        for i in range(DEPTH):
            shapes |= {f"block_{i}/{part}/kernel": (DIM, HEADS, E) for part in PARTS}
            shapes |= {f"block_{i}/out/kernel": (HEADS, E, DIM), f"block_{i}/out/bias": (DIM,)}
            shapes |= {f"block_{i}/norm_{k}/{p}": (DIM,) for k in (1, 2) for p in ("gamma", "beta")}
            shapes |= {f"block_{i}/dense_1/kernel": (DIM, 40), f"block_{i}/dense_1/bias": (40,)}
            shapes |= {f"block_{i}/dense_2/kernel": (40, DIM), f"block_{i}/dense_2/bias": (DIM,)}
        self.w = {key: 0.3 * torch.randn(shape) for key, shape in shapes.items()}

    def state_dict(self):
        return dict(self.w)

    def load_state_dict(self, state, strict):
        assert {k: v.shape for k, v in state.items()} == {k: v.shape for k, v in self.w.items()}
        self.w = dict(state)

    def forward(self, images):
        w = self.w
        x = F.conv2d(images, w["embed/kernel"].permute(3, 2, 0, 1), w["embed/bias"], 8)
        x = self.first(x.flatten(2).mT, w["token"]) + w["position/embeddings"]
        for i in range(DEPTH):
            y = self.norm(x, f"block_{i}/norm_1")
            q, k, v = (torch.einsum("bnd,dhe->bhne", y, w[f"block_{i}/{p}/kernel"]) for p in PARTS)
            x = x + torch.einsum("bhne,hed->bnd", attend(q, k, v), w[f"block_{i}/out/kernel"])
            x = x + w[f"block_{i}/out/bias"]
            y = self.dense(self.norm(x, f"block_{i}/norm_2"), f"block_{i}/dense_1")
            x = x + self.dense(F.gelu(y), f"block_{i}/dense_2")
        return self.dense(x[:, 0], "logits")

    def dense(self, x, name):
        return x @ self.w[f"{name}/kernel"] + self.w[f"{name}/bias"]

    def norm(self, x, name):
        return F.layer_norm(x, (DIM,), self.w[f"{name}/gamma"], self.w[f"{name}/beta"], 1e-3)


class Slices(Stranger):
    """Each head sees its own slice of a token; no projection behind the heads; sines that are not
    saved, the class token first; flat grey patches; a softmax at the end."""

    channels, size = 1, 28
    rules = """
numbers = { norm_eps = 1e-5, position = "sines-1d", sines_layout = "pairs", sines_prefix = true, channels = 1 }
[rules]
"patch.weight" = { theirs = "mapper.weight", pattern = "d (c ph pw) -> d c ph pw" }
"patch.bias" = "mapper.bias"
"prefix.class_token" = { theirs = "cls", pattern = "1 d -> d" }
"blocks.{i}.norm{k}.{p}" = "blocks.{i}.norm{k}.{p}"
"blocks.{i}.attention.qkv.weight" = { theirs = ["blocks.{i}.q.{head}.weight", "blocks.{i}.k.{head}.weight", "blocks.{i}.v.{head}.weight"], pattern = "(qkv heads) e f -> (qkv heads e) (heads f)" }
"blocks.{i}.attention.qkv.bias" = { theirs = ["blocks.{i}.q.{head}.bias", "blocks.{i}.k.{head}.bias", "blocks.{i}.v.{head}.bias"], pattern = "(qkv heads) e -> (qkv heads e)" }
"blocks.{i}.attention.projection.weight" = { value = "identity" }
"blocks.{i}.mlp.fc1.{p}" = "blocks.{i}.mlp.0.{p}"
"blocks.{i}.mlp.fc2.{p}" = "blocks.{i}.mlp.2.{p}"
"head.out.{p}" = "head.0.{p}"
"""  # noqa: E501

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = norms(2)
            self.q, self.k, self.v = (
                nn.ModuleList(nn.Linear(E, E) for _ in range(HEADS)) for _ in range(3)
            )
            self.mlp = nn.Sequential(nn.Linear(DIM, 40), nn.GELU(), nn.Linear(40, DIM))

        def forward(self, x):
            slices = enumerate(self.norm1(x).split(E, -1))
            heads = [attend(self.q[h](s), self.k[h](s), self.v[h](s)) for h, s in slices]
            x = x + torch.cat(heads, -1)
            return x + self.mlp(self.norm2(x))

    def __init__(self):
        super().__init__()
        self.mapper, self.cls = nn.Linear(16, DIM), parameter(1, DIM)
        self.blocks = blocks(self.Layer)
        self.head = nn.Sequential(nn.Linear(DIM, CLASSES), nn.Softmax(-1))

    def forward(self, images):
        x = images.unfold(2, 4, 4).unfold(3, 4, 4).flatten(1, 3).flatten(2)
        x = self.first(self.mapper(x))
        x = x + in_turn(x.shape[1], DIM)
        for block in self.blocks:
            x = block(x)
        return self.head(x[:, 0]).log()


def in_turn(count, dim):
    """(count, dim): sin, cos, sin, cos …"""
    table = torch.zeros(count, dim)
    for row in range(count):
        for at in range(0, dim, 2):
            angle = row / 10_000 ** (at / dim)
            table[row, at], table[row, at + 1] = math.sin(angle), math.cos(angle)
    return table


class Sequentials(Stranger):
    """Numbers for names; q, k and v lie by turns in one matrix; the scale follows the softmax; the
    mean of all tokens, the class token too, and the norm behind it."""

    exact = False
    rules = """
numbers = { norm_eps = 1e-5, heads = 3, qk_scale = 1, pool = "mean-all" }
[rules]
"patch.{p}" = "0.conv.{p}"
"prefix.class_token" = { theirs = "0.cls", pattern = "1 1 d -> d" }
"position.table" = "0.pos"
"blocks.{i}.norm1.{p}" = "1.{i}.0.fn.0.{p}"
"blocks.{i}.attention.qkv.{p}" = { theirs = "1.{i}.0.fn.1.qkv.{p}", pattern = "(heads e qkv) ... -> (qkv heads e) ..." }
"blocks.{i}.attention.projection.weight" = { theirs = "1.{i}.0.fn.1.out.weight", times = 0.2041241452319315 }
"blocks.{i}.attention.projection.bias" = "1.{i}.0.fn.1.out.bias"
"blocks.{i}.norm2.{p}" = "1.{i}.1.fn.0.{p}"
"blocks.{i}.mlp.fc1.{p}" = "1.{i}.1.fn.1.0.{p}"
"blocks.{i}.mlp.fc2.{p}" = "1.{i}.1.fn.1.3.{p}"
"pooled_norm.{p}" = "2.0.{p}"
"head.out.{p}" = "2.1.{p}"
"""  # noqa: E501

    class Residual(nn.Module):
        def __init__(self, *parts):
            super().__init__()
            self.fn = nn.Sequential(*parts)

        def forward(self, x):
            return x + self.fn(x)

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)

        def forward(self, x):
            q, k, v = self.qkv(x).unflatten(-1, (HEADS, E, 3)).permute(4, 0, 2, 1, 3)
            weights = (q @ k.mT).softmax(-1) / DIM**0.5
            return self.out(joined(weights @ v))

    class Embedding(Stranger):
        def __init__(self):
            super().__init__()
            self.conv, self.cls, self.pos = (
                nn.Conv2d(3, DIM, 8, 8),
                parameter(1, 1, DIM),
                parameter(17, DIM),
            )

        def forward(self, images):
            return self.first(self.conv(images).flatten(2).mT) + self.pos

    def __init__(self):
        super().__init__()
        layers = [
            nn.Sequential(
                self.Residual(nn.LayerNorm(DIM), self.Attention(), nn.Dropout()),
                self.Residual(
                    nn.LayerNorm(DIM),
                    nn.Sequential(nn.Linear(DIM, 40), nn.GELU(), nn.Dropout(), nn.Linear(40, DIM)),
                ),
            )
            for _ in range(DEPTH)
        ]
        self.add_module("0", self.Embedding())
        self.add_module("1", nn.Sequential(*layers))
        self.add_module("2", nn.Sequential(nn.LayerNorm(DIM), nn.Linear(DIM, CLASSES)))

    def forward(self, images):
        embed, body, head = self.children()
        return head(body(embed(images)).mean(1))


class Unscaled(Stranger):
    """Pixels before channels in flat patches, no scale, GELU behind both layers of the MLP."""

    rules = """
numbers = { norm_eps = 1e-5, heads = 3, qk_scale = 1, mlp_out_activation = true }
[rules]
"patch.weight" = { theirs = "emb.weight", pattern = "d (ph pw c) -> d c ph pw" }
"patch.bias" = "emb.bias"
"prefix.class_token" = { theirs = "cls", pattern = "1 1 d -> d" }
"position.table" = { theirs = "pos", pattern = "1 n d -> n d" }
"blocks.{i}.norm{k}.{p}" = "enc.{i}.la{k}.{p}"
"blocks.{i}.attention.qkv.{p}" = ["enc.{i}.msa.q.{p}", "enc.{i}.msa.k.{p}", "enc.{i}.msa.v.{p}"]
"blocks.{i}.attention.projection.{p}" = "enc.{i}.msa.o.{p}"
"blocks.{i}.mlp.fc1.{p}" = "enc.{i}.mlp.0.{p}"
"blocks.{i}.mlp.fc2.{p}" = "enc.{i}.mlp.3.{p}"
"norm.{p}" = "fc.0.{p}"
"head.out.{p}" = "fc.1.{p}"
"""

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.la1, self.la2 = norms(2)
            self.msa = nn.ModuleDict({name: nn.Linear(DIM, DIM) for name in "qkvo"})
            self.mlp = nn.Sequential(
                *(nn.Linear(DIM, DIM), nn.GELU(), nn.Dropout()),
                *(nn.Linear(DIM, DIM), nn.GELU(), nn.Dropout()),
            )

        def forward(self, x):
            y = self.la1(x)
            q, k, v = (split(self.msa[name](y)) for name in "qkv")
            x = self.msa["o"](joined(attend(q, k, v, 1.0))) + x
            return self.mlp(self.la2(x)) + x

    def __init__(self):
        super().__init__()
        self.emb, self.cls, self.pos = (
            nn.Linear(192, DIM),
            parameter(1, 1, DIM),
            parameter(1, 17, DIM),
        )
        self.enc = nn.Sequential(*blocks(self.Layer))
        self.fc = nn.Sequential(nn.LayerNorm(DIM), nn.Linear(DIM, CLASSES))

    def forward(self, images):
        x = images.unfold(2, 8, 8).unfold(3, 8, 8).permute(0, 2, 3, 4, 5, 1)
        x = self.first(self.emb(x.flatten(3).flatten(1, 2))) + self.pos
        return self.fc(self.enc(x)[:, 0])


class TokenLast(Stranger):
    """The class token behind the patches, positions in an nn.Embedding with a buffer of indices,
    a hidden layer with ReLU in the head, quick GELU, tokens scaled by √d before positions."""

    exact = False
    rules = f"""
numbers = {{ norm_eps = 1e-5, heads = 3, activation = "relu", head = "mlp", head_activation = "relu" }}
drop = ["ids"]
[rules]
"patch.{{p}}" = {{ theirs = "cut.{{p}}", times = {DIM**0.5} }}
"prefix.class_token" = {{ theirs = "cls", pattern = "1 1 d -> d", times = {DIM**0.5} }}
"position.table" = {{ theirs = "pos.weight", rows = "last" }}{ENCODER}"head.hidden.{{p}}" = "answer.0.{{p}}"
"head.out.{{p}}" = "answer.3.{{p}}"
"""  # noqa: E501

    def __init__(self):
        super().__init__()
        self.cut, self.cls, self.pos = (
            nn.Conv2d(3, DIM, 8, 8),
            parameter(1, 1, DIM),
            nn.Embedding(17, DIM),
        )
        self.register_buffer("ids", torch.arange(17)[None])
        self.body = encoder(activation="relu")
        self.answer = nn.Sequential(
            nn.Linear(DIM, 16), nn.ReLU(), nn.Dropout(), nn.Linear(16, CLASSES)
        )

    def forward(self, images):
        x = self.cut(images).flatten(2).mT
        x = torch.cat((x, self.cls.expand(len(x), 1, -1)), 1) * DIM**0.5 + self.pos(self.ids)
        return self.answer(self.body(x)[:, -1])


class Flattened(Stranger):
    """No class token; heads as wide as a token; all tokens side by side into a head with a hidden
    layer; positions over the feature map; a norm behind the patches; SiLU."""

    rules = """
numbers = { norm_eps = 1e-5, heads = 3, head = "mlp", activation = "silu" }
[rules]
"patch.norm_out.{p}" = "ln.{p}"
"patch.{p}" = "cut.{p}"
"position.table" = { theirs = "pos", pattern = "1 d gh gw -> (gh gw) d" }
"blocks.{i}.norm{k}.{p}" = "layers.{i}.norm{k}.{p}"
"blocks.{i}.attention.qkv.{p}" = "layers.{i}.qkv.{p}"
"blocks.{i}.attention.projection.{p}" = "layers.{i}.out.{p}"
"blocks.{i}.mlp.fc{k}.{p}" = "layers.{i}.fc{k}.{p}"
"norm.{p}" = "norm.{p}"
"head.hidden.{p}" = "mlp.0.{p}"
"head.out.{p}" = "mlp.2.{p}"
"""

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = norms(2)
            self.qkv, self.out = nn.Linear(DIM, 9 * DIM), nn.Linear(3 * DIM, DIM)
            self.fc1, self.fc2 = nn.Linear(DIM, 40), nn.Linear(40, DIM)

        def forward(self, x):
            q, k, v = (split(y) for y in self.qkv(self.norm1(x)).chunk(3, -1))
            x = x + self.out(joined(attend(q, k, v)))
            return x + self.fc2(F.silu(self.fc1(self.norm2(x))))

    def __init__(self):
        super().__init__()
        self.cut, self.ln, self.norm = nn.Conv2d(3, DIM, 8, 8), *norms(2)
        self.pos, self.layers = parameter(1, DIM, 4, 4), blocks(self.Layer)
        self.mlp = nn.Sequential(nn.Linear(16 * DIM, 20), nn.GELU(), nn.Linear(20, CLASSES))

    def forward(self, images):
        x = self.ln(self.cut(images).flatten(2).mT) + self.pos.flatten(2).mT
        for layer in self.layers:
            x = layer(x)
        return self.mlp(self.norm(x).flatten(1))


class ConvTokens(Stranger):
    """Convolutions, BatchNorm and max pooling make the tokens, without a patch embedding; the mean
    of the tokens."""

    channels, size = 1, 28
    rules = f"""
numbers = {{ norm_eps = 1e-5, heads = 3, stem_layers = [{{ width = 8, norm = "batch", activation = "relu", pool = "max" }}, {{ width = 24, norm = "batch", activation = "relu", pool = "max" }}] }}
[rules]
"stem.layers.0.conv.{{p}}" = "features.0.{{p}}"
"stem.layers.0.norm.{{p}}" = "features.1.{{p}}"
"stem.layers.1.conv.{{p}}" = "features.4.{{p}}"
"stem.layers.1.norm.{{p}}" = "features.5.{{p}}"
"position.table" = {{ theirs = "pos", pattern = "1 n d -> n d" }}{ENCODER}{HEAD}
"""  # noqa: E501

    def __init__(self):
        super().__init__()
        layers = [
            layer
            for before, after in ((1, 8), (8, DIM))
            for layer in (
                nn.Conv2d(before, after, 3, padding=1),
                *(nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)),
            )
        ]
        self.features, self.pos = nn.Sequential(*layers), parameter(1, 49, DIM)
        self.body, self.answer = encoder(), nn.Linear(DIM, CLASSES)

    def forward(self, images):
        return self.answer(self.body(self.features(images).flatten(2).mT + self.pos).mean(1))


class OnTheStream(Stranger):
    """The norm's output goes into the sum; no bias anywhere, as in nanoGPT; one more norm before
    the blocks; tokens that come from flat patches in columns first."""

    rules = """
numbers = { norm_eps = 1e-5, heads = 3, norm = "stream", activation = "gelu-tanh" }
[rules]
"patch.weight" = { theirs = "wpe.weight", pattern = "d (c pw ph) -> d c ph pw" }
"prefix.class_token" = "cls"
"position.table" = "pos"
"embed_norm.weight" = "ln_0.weight"
"blocks.{i}.norm{k}.weight" = "h.{i}.ln_{k}.weight"
"{all}norm{k}.bias" = 0
"embed_norm.bias" = 0
"blocks.{i}.attention.qkv.weight" = { theirs = "h.{i}.c_attn.weight", pattern = "i o -> o i" }
"blocks.{i}.attention.projection.weight" = { theirs = "h.{i}.c_proj.weight", pattern = "i o -> o i" }
"blocks.{i}.mlp.fc{k}.weight" = { theirs = "h.{i}.fc_{k}.weight", pattern = "i o -> o i" }
"blocks.{i}.mlp.fc{k}.bias" = 0
"head.out.weight" = "lm.weight"
"""  # noqa: E501

    class Transposed(nn.Module):
        def __init__(self, before, after):
            super().__init__()
            self.weight = parameter(before, after)

        def forward(self, x):
            return x @ self.weight

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = (nn.LayerNorm(DIM, bias=False) for _ in range(2))
            linear = OnTheStream.Transposed
            self.c_attn, self.c_proj = linear(DIM, 3 * DIM), linear(DIM, DIM)
            self.fc_1, self.fc_2 = linear(DIM, 40), linear(40, DIM)

        def forward(self, x):
            x = self.ln_1(x)
            q, k, v = (split(y) for y in self.c_attn(x).chunk(3, -1))
            x = self.ln_2(x + self.c_proj(joined(attend(q, k, v))))
            return x + self.fc_2(F.gelu(self.fc_1(x), approximate="tanh"))

    def __init__(self):
        super().__init__()
        self.wpe, self.lm = (nn.Linear(n, m, bias=False) for n, m in ((192, DIM), (DIM, CLASSES)))
        self.cls, self.pos = parameter(DIM), parameter(17, DIM)
        self.ln_0, self.h = nn.LayerNorm(DIM, bias=False), blocks(self.Layer)

    def forward(self, images):
        x = images.unfold(2, 8, 8).unfold(3, 8, 8).permute(0, 2, 3, 1, 5, 4)
        x = self.first(self.wpe(x.flatten(3).flatten(1, 2))) + self.pos
        x = self.ln_0(x)
        for layer in self.h:
            x = layer(x)
        return self.lm(x[:, 0])


STRANGERS = {
    "torch, norm first": TorchEncoder,
    "torch, norm last": lambda: TorchEncoder(norm_first=False),
    "torch, two norms": lambda: TorchEncoder(norms=2),
    "torch, other parts": lambda: TorchEncoder(norm_first=False, norms=0, activation="relu"),
    "a layer per head": PerHead,
    "keras": KerasLike,
    "a slice per head": Slices,
    "sequentials": Sequentials,
    "no scale": Unscaled,
    "class token last": TokenLast,
    "flattened": Flattened,
    "convolutions": ConvTokens,
    "norm on the stream": OnTheStream,
}


def lines(rules):
    return len(re.sub(r"\n+", "\n", rules).strip().splitlines())
