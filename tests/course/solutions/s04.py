"""Exercise 4, solved; and what readers usually get wrong."""

import torch


def layer_norm(x, gamma, beta, eps, dim=-1, unbiased=False):
    variance = x.var(dim=dim, keepdim=True, unbiased=unbiased)
    return (x - x.mean(dim=dim, keepdim=True)) / (variance + eps).sqrt() * gamma + beta


def gelu(x):
    return x * (1 + torch.erf(x / 2**0.5)) / 2


def mlp(x, W_1, b_1, W_2, b_2):
    return gelu(x @ W_1 + b_1) @ W_2 + b_2


def block(x, norm1, attention, norm2, mlp):
    x = x + attention(norm1(x))
    return x + mlp(norm2(x))


def drop_path(x, rate, kept):
    return x * kept[:, None, None] / (1 - rate)


def post_norm(x, norm1, attention, norm2, mlp):
    x = norm1(x + attention(x))
    return norm2(x + mlp(x))


def on_the_stream(x, norm1, attention, norm2, mlp):
    x = norm1(x)
    x = x + attention(x)
    x = norm2(x)
    return x + mlp(x)


def outside_the_root(x, gamma, beta, eps):
    deviation = x.std(dim=-1, keepdim=True, unbiased=False)
    return (x - x.mean(dim=-1, keepdim=True)) / (deviation + eps) * gamma + beta


WRONG = {
    "layer_norm": {
        "D - 1": lambda *given: layer_norm(*given, unbiased=True),
        "BatchNorm": lambda *given: layer_norm(*given, dim=(0, 1)),
        "whole image": lambda *given: layer_norm(*given, dim=(1, 2)),
        "under the root": outside_the_root,
    },
    "gelu": {
        "tanh form": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
        "ReLU": torch.relu,
        "√2": lambda x: x * (1 + torch.erf(x)) / 2,
    },
    "mlp": {
        "activation is missing": lambda x, W_1, b_1, W_2, b_2: (x @ W_1 + b_1) @ W_2 + b_2,
        "second layer, too": lambda *given: gelu(mlp(*given)),
        "residual": lambda x, *given: x + mlp(x, *given),
    },
    "block": {
        "wrong side": post_norm,
        "stream itself": on_the_stream,
        "residuals are missing": lambda x, norm1, attention, norm2, mlp: mlp(
            norm2(attention(norm1(x)))
        ),
        "MLP looks at x": lambda x, norm1, attention, norm2, mlp: (
            x + attention(norm1(x)) + mlp(norm2(x))
        ),
    },
    "drop_path": {
        "not scaled": lambda x, rate, kept: x * kept[:, None, None],
        "divide by it": lambda x, rate, kept: x * kept[:, None, None] * (1 - rate),
        "left out": lambda x, rate, kept: x[kept] / (1 - rate),
    },
}
