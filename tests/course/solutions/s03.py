"""Exercise 3, solved; and what readers usually get wrong."""

import torch


def weights(q, k):
    return (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(dim=-1)


def split(made, heads):
    q, k, v = made.reshape(len(made), 3, heads, -1).permute(1, 2, 0, 3)
    return q, k, v


def join(mixed):
    return mixed.transpose(0, 1).flatten(1)


def attention(x, W_qkv, b_qkv, W_O, b_O, heads, scale=None, axis=-1):
    q, k, v = split(x @ W_qkv.T + b_qkv, heads)
    scores = q @ k.transpose(-2, -1) * (q.shape[-1] ** -0.5 if scale is None else scale)
    return join(scores.softmax(dim=axis) @ v) @ W_O.T + b_O


def head_by_head(made, heads):
    q, k, v = made.reshape(len(made), heads, 3, -1).permute(2, 1, 0, 3)
    return q, k, v


def not_transposed(made, heads):
    return tuple(part.reshape(heads, len(made), -1) for part in made.chunk(3, dim=1))


def in_another_order(made, heads):
    q, k, v = split(made, heads)
    return k, q, v


def without_scale(x, W, b, W_O, b_O, heads):
    return attention(x, W, b, W_O, b_O, heads, scale=1.0)


def joined_wrongly(x, W, b, W_O, b_O, heads):
    q, k, v = split(x @ W.T + b, heads)
    return (weights(q, k) @ v).reshape(x.shape) @ W_O.T + b_O


def not_mixed(x, W, b, W_O, b_O, heads):
    q, k, v = split(x @ W.T + b, heads)
    return join(weights(q, k) @ v)


WRONG = {
    "weights": {
        "scale is missing": lambda q, k: (q @ k.T).softmax(-1),
        "wrong axis": lambda q, k: (q @ k.T / q.shape[-1] ** 0.5).softmax(0),
        "divided by e": lambda q, k: (q @ k.T / q.shape[-1]).softmax(-1),
    },
    "split": {
        "not transposed": not_transposed,
        "head after head": head_by_head,
        "another order": in_another_order,
    },
    "join": {
        "not transposed back": lambda mixed: mixed.reshape(mixed.shape[1], -1),
        "take turns": lambda mixed: mixed.permute(1, 2, 0).flatten(1),
    },
    "attention": {
        "√D": lambda x, W, b, W_O, b_O, heads: attention(
            x, W, b, W_O, b_O, heads, scale=x.shape[1] ** -0.5
        ),
        "scale is missing": without_scale,
        "over the queries": lambda x, W, b, W_O, b_O, heads: attention(
            x, W, b, W_O, b_O, heads, axis=-2
        ),
        "W_O is missing": not_mixed,
        "W_O is used transposed": lambda x, W, b, W_O, b_O, heads: attention(
            x, W, b, W_O.T, b_O, heads
        ),
        "b_O is missing": lambda x, W, b, W_O, b_O, heads: attention(
            x, W, b, W_O, torch.zeros_like(b_O), heads
        ),
        "not transposed back": joined_wrongly,
        "one head": lambda x, W, b, W_O, b_O, heads: attention(x, W, b, W_O, b_O, 1),
    },
}
