"""More of other people's ViTs: what public repositories have that `strangers.py` has not."""

import torch
import torch.nn.functional as F
from strangers import (
    CLASSES,
    DEPTH,
    DIM,
    ENCODER,
    HEAD,
    HEADS,
    TABLE,
    TOKEN,
    E,
    Stranger,
    attend,
    blocks,
    encoder,
    in_turn,
    joined,
    norms,
    parameter,
    split,
)
from torch import nn


class SharedHeads(Stranger):
    """One small layer for queries, keys and values that all heads share, each on its slice."""

    def __init__(self, bias=False):
        super().__init__()
        self.cut, self.cls, self.pos = nn.Conv2d(3, DIM, 8, 8), parameter(1, 1, DIM), None
        self.pos = parameter(1, 17, DIM)
        self.layers = blocks(lambda: SharedHeads.Layer(bias))
        self.answer = nn.Linear(DIM, CLASSES)
        three = ", ".join(f'"layers.{{i}}.{name}.PART"' for name in ("query", "key", "value"))
        of_bias = f"""
"blocks.{{i}}.attention.qkv.bias" = {{ theirs = [{three.replace("PART", "bias")}], pattern = "qkv e -> (qkv heads e)" }}"""  # noqa: E501
        self.rules = f"""
numbers = {{ norm_eps = 1e-5, heads = {HEADS} }}
[rules]
"patch.{{p}}" = "cut.{{p}}"
{TOKEN}
{TABLE}
"blocks.{{i}}.attention.qkv.weight" = {{ theirs = [{three.replace("PART", "weight")}], pattern = "qkv e f -> (qkv heads e) (heads f)" }}{of_bias if bias else ""}
"blocks.{{i}}.attention.projection.{{p}}" = "layers.{{i}}.join.{{p}}"
"blocks.{{i}}.norm{{k}}.{{p}}" = "layers.{{i}}.ln{{k}}.{{p}}"
"blocks.{{i}}.mlp.fc1.{{p}}" = "layers.{{i}}.mlp.0.{{p}}"
"blocks.{{i}}.mlp.fc2.{{p}}" = "layers.{{i}}.mlp.2.{{p}}"
{HEAD}
"""  # noqa: E501

    class Layer(nn.Module):
        def __init__(self, bias):
            super().__init__()
            self.query, self.key, self.value = (nn.Linear(E, E, bias=bias) for _ in range(3))
            self.join, self.ln1, self.ln2 = (nn.Linear(DIM, DIM), *norms(2))
            self.mlp = nn.Sequential(nn.Linear(DIM, 40), nn.GELU(), nn.Linear(40, DIM))

        def forward(self, x):
            y = split(self.ln1(x))
            x = x + self.join(joined(attend(self.query(y), self.key(y), self.value(y))))
            return x + self.mlp(self.ln2(x))

    def forward(self, images):
        x = self.first(self.cut(images).flatten(2).mT) + self.pos
        for layer in self.layers:
            x = layer(x)
        return self.answer(x[:, 0])


class LongTable(Stranger):
    """Sines for more places than there are, the sequence first; the layer that was copied into the
    encoder is saved too."""

    rules = f"""
numbers = {{ norm_eps = 1e-5, heads = 3, norm = "post", activation = "relu", image_size = 32 }}
[rules]
"patch.{{p}}" = "cut.{{p}}"
"position.table" = {{ theirs = "pe", pattern = "n 1 d -> n d", rows = "first" }}{ENCODER}"spare.{{all}}" = {{ theirs = "layer.{{all}}", unused = true }}
{HEAD}
"""  # noqa: E501

    def __init__(self):
        super().__init__()
        self.cut, self.answer = nn.Conv2d(3, DIM, 8, 8), nn.Linear(DIM, CLASSES)
        self.register_buffer("pe", in_turn(100, DIM)[:, None])
        self.layer = nn.TransformerEncoderLayer(DIM, HEADS, 40)
        self.body = nn.TransformerEncoder(self.layer, DEPTH, enable_nested_tensor=False)

    def forward(self, images):
        x = self.cut(images).flatten(2).permute(2, 0, 1)
        return self.answer(self.body(x + self.pe[: len(x)]).mean(0))


class Compact(Stranger):
    """Compact transformers: a convolution with pooling makes the tokens, the norm before the MLP is
    on the stream, and a learned score weighs the tokens."""

    rules = f"""
numbers = {{ norm_eps = 1e-5, heads = 3, norm = "pre+stream", stem_layers = [{{ width = {DIM}, kernel = 7, stride = 2, padding = 3, bias = false, activation = "relu", pool = "max", pool_kernel = 3, pool_stride = 2, pool_padding = 1 }}] }}
[rules]
"stem.layers.0.conv.weight" = "conv.weight"
{TABLE}
"blocks.{{i}}.norm1.{{p}}" = "layers.{{i}}.pre_norm.{{p}}"
"blocks.{{i}}.norm2.{{p}}" = "layers.{{i}}.norm1.{{p}}"
"blocks.{{i}}.attention.qkv.{{p}}" = "layers.{{i}}.qkv.{{p}}"
"blocks.{{i}}.attention.projection.{{p}}" = "layers.{{i}}.proj.{{p}}"
"blocks.{{i}}.mlp.fc{{k}}.{{p}}" = "layers.{{i}}.linear{{k}}.{{p}}"
"norm.{{p}}" = "norm.{{p}}"
"pooling.score.{{p}}" = "attention_pool.{{p}}"
{HEAD}
"""  # noqa: E501

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.pre_norm, self.norm1 = norms(2)
            self.qkv, self.proj = nn.Linear(DIM, 3 * DIM, bias=False), nn.Linear(DIM, DIM)
            self.linear1, self.linear2 = nn.Linear(DIM, 40), nn.Linear(40, DIM)

        def forward(self, x):
            q, k, v = (split(y) for y in self.qkv(self.pre_norm(x)).chunk(3, -1))
            x = self.norm1(x + self.proj(joined(attend(q, k, v))))
            return x + self.linear2(F.gelu(self.linear1(x)))

    def __init__(self):
        super().__init__()
        self.conv, self.pos = nn.Conv2d(3, DIM, 7, 2, 3, bias=False), parameter(1, 64, DIM)
        self.layers, self.norm = blocks(self.Layer), nn.LayerNorm(DIM)
        self.attention_pool, self.answer = nn.Linear(DIM, 1), nn.Linear(DIM, CLASSES)

    def forward(self, images):
        x = F.max_pool2d(self.conv(images).relu(), 3, 2, 1).flatten(2).mT + self.pos
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x)
        return self.answer((self.attention_pool(x).softmax(1) * x).sum(1))


class KerasExample(Stranger):
    """As Keras numbers its layers, one count for all of a kind: kernels and gammas; heads as wide
    as a token; all tokens into a head with two hidden layers."""

    transposed = 'pattern = ["i o -> o i", "o -> o"]'
    rules = f"""
numbers = {{ norm_eps = 1e-6, mlp_out_activation = true }}
words = {{ p = {{ weight = "kernel" }}, n = {{ weight = "gamma", bias = "beta" }} }}
[rules]
"patch.{{p}}" = {{ theirs = "encoder/{{p}}", pattern = ["(ph pw c) d -> d c ph pw", "d -> d"] }}
"position.table" = "encoder/embeddings"
"blocks.{{i}}.norm1.{{n}}" = "norm_{{2i}}/{{n}}"
"blocks.{{i}}.norm2.{{n}}" = "norm_{{2i+1}}/{{n}}"
"blocks.{{i}}.attention.qkv.{{p}}" = {{ theirs = ["mha_{{i}}/query/{{p}}", "mha_{{i}}/key/{{p}}", "mha_{{i}}/value/{{p}}"], pattern = ["qkv d heads e -> (qkv heads e) d", "qkv heads e -> (qkv heads e)"] }}
"blocks.{{i}}.attention.projection.{{p}}" = {{ theirs = "mha_{{i}}/out/{{p}}", pattern = ["heads e d -> d (heads e)", "d -> d"] }}
"blocks.{{i}}.mlp.fc1.{{p}}" = {{ theirs = "dense_{{2i}}/{{p}}", {transposed} }}
"blocks.{{i}}.mlp.fc2.{{p}}" = {{ theirs = "dense_{{2i+1}}/{{p}}", {transposed} }}
"norm.{{n}}" = "norm_{2 * DEPTH}/{{n}}"
"head.hidden.{{p}}" = {{ theirs = "dense_{2 * DEPTH}/{{p}}", {transposed} }}
"head.hidden2.{{p}}" = {{ theirs = "dense_{2 * DEPTH + 1}/{{p}}", {transposed} }}
"head.out.{{p}}" = {{ theirs = "dense_{2 * DEPTH + 2}/{{p}}", {transposed} }}
"""  # noqa: E501

    def __init__(self):
        super().__init__()
        shapes = {"encoder": (192, DIM)}
        for i in range(DEPTH):
            shapes |= {f"dense_{2 * i}": (DIM, 40), f"dense_{2 * i + 1}": (40, DIM)}
        for number, sides in enumerate(((16 * DIM, 20), (20, 12), (12, CLASSES)), 2 * DEPTH):
            shapes[f"dense_{number}"] = sides
        made = {f"{name}/kernel": sides for name, sides in shapes.items()}
        made |= {f"{name}/bias": sides[1:] for name, sides in shapes.items()}
        made["encoder/embeddings"] = (16, DIM)
        for i in range(DEPTH):
            for part in ("query", "key", "value"):
                made |= {f"mha_{i}/{part}/kernel": (DIM, HEADS, DIM)}
                made |= {f"mha_{i}/{part}/bias": (HEADS, DIM)}
            made |= {f"mha_{i}/out/kernel": (HEADS, DIM, DIM), f"mha_{i}/out/bias": (DIM,)}
        for number in range(2 * DEPTH + 1):
            made |= {f"norm_{number}/{part}": (DIM,) for part in ("gamma", "beta")}
        self.w = {key: 0.2 * torch.randn(shape) for key, shape in made.items()}

    def state_dict(self):
        return dict(self.w)

    def load_state_dict(self, state, strict):
        assert {k: v.shape for k, v in state.items()} == {k: v.shape for k, v in self.w.items()}

    def dense(self, x, name):
        return x @ self.w[f"{name}/kernel"] + self.w[f"{name}/bias"]

    def norm(self, x, number):
        gamma, beta = (self.w[f"norm_{number}/{part}"] for part in ("gamma", "beta"))
        return F.layer_norm(x, (DIM,), gamma, beta, 1e-6)

    def attention(self, x, name):
        q, k, v = (
            torch.einsum("bnd,dhe->bhne", x, self.w[f"{name}/{part}/kernel"])
            + self.w[f"{name}/{part}/bias"][:, None]
            for part in ("query", "key", "value")
        )
        out = torch.einsum("bhne,hed->bnd", attend(q, k, v), self.w[f"{name}/out/kernel"])
        return out + self.w[f"{name}/out/bias"]

    def forward(self, images):
        x = images.unfold(2, 8, 8).unfold(3, 8, 8).permute(0, 2, 3, 4, 5, 1)
        x = self.dense(x.flatten(3).flatten(1, 2), "encoder") + self.w["encoder/embeddings"]
        for i in range(DEPTH):
            x = x + self.attention(self.norm(x, 2 * i), f"mha_{i}")
            y = F.gelu(self.dense(self.norm(x, 2 * i + 1), f"dense_{2 * i}"))
            x = x + F.gelu(self.dense(y, f"dense_{2 * i + 1}"))
        x = self.norm(x, 2 * DEPTH).flatten(1)
        for number in (2 * DEPTH, 2 * DEPTH + 1):
            x = F.gelu(self.dense(x, f"dense_{number}"))
        return self.dense(x, f"dense_{2 * DEPTH + 2}")


class ConvThenLinear(Stranger):
    """A convolution cuts the patches, and a linear layer embeds them; no class token, and the head
    reads the first patch, or the largest values."""

    channels, size = 1, 28

    def __init__(self, pool="first"):
        super().__init__()
        self.conv, self.embed = nn.Conv2d(1, 16, 4, 4), nn.Linear(16, DIM)
        self.pos, self.body, self.answer = parameter(1, 49, DIM), encoder(), nn.Linear(DIM, CLASSES)
        self.pool = pool
        self.rules = f"""
numbers = {{ norm_eps = 1e-5, heads = 3, pool = "{pool}", stem_layers = [{{ width = 16, kernel = 4, stride = 4, padding = 0 }}] }}
[rules]
"stem.layers.0.conv.{{p}}" = "conv.{{p}}"
"patch.{{p}}" = {{ theirs = "embed.{{p}}", pattern = ["o i -> o i 1 1", "o -> o"] }}
{TABLE}{ENCODER}{HEAD}
"""  # noqa: E501

    def forward(self, images):
        x = self.body(self.embed(self.conv(images).flatten(2).mT) + self.pos)
        return self.answer(x[:, 0] if self.pool == "first" else x.max(dim=1)[0])


MORE_STRANGERS = {
    "layers that heads share": SharedHeads,
    "layers that heads share, with bias": lambda: SharedHeads(bias=True),
    "a long table": LongTable,
    "compact": Compact,
    "keras' example": KerasExample,
    "a convolution, then a linear layer": ConvThenLinear,
    "the largest values": lambda: ConvThenLinear(pool="max"),
}
