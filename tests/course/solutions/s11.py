"""Exercise 11, solved; and what readers usually get wrong."""

import torch


def windows(x, side):
    h, w, d = x.shape
    cut = x.reshape(h // side, side, w // side, side, d)
    return cut.permute(0, 2, 1, 3, 4).reshape(-1, side * side, d)


def allowed(h, w, side, shift, rows=True, columns=True):
    region = torch.zeros(h, w, 1)
    region[:shift] += 2 * rows
    region[:, :shift] += columns
    cut = windows(region.roll((-shift, -shift), (0, 1)), side)[..., 0]
    return cut[:, :, None] == cut[:, None, :]


def bias_rows(side):
    places = torch.cartesian_prod(torch.arange(side), torch.arange(side))
    apart = places[:, None] - places[None] + side - 1
    return apart[..., 0] * (2 * side - 1) + apart[..., 1]


def merge(x):
    return torch.cat((x[::2, ::2], x[1::2, ::2], x[::2, 1::2], x[1::2, 1::2]), dim=-1)


def cost(h, w, dim, side):
    linear = 4 * h * w * dim**2
    return linear + 2 * (h * w) ** 2 * dim, linear + 2 * side**2 * h * w * dim


WRONG = {
    "windows": {
        "reshaped without moving": lambda x, side: x.reshape(-1, side * side, x.shape[-1]),
        "column by column; they should go": lambda x, side: (
            windows(x.transpose(0, 1), side)
            .unflatten(1, (side, side))
            .transpose(1, 2)
            .flatten(1, 2)
        ),
        "Within a window": lambda x, side: (
            windows(x, side).unflatten(1, (side, side)).transpose(1, 2).flatten(1, 2)
        ),
    },
    "allowed": {
        "Everything is allowed": lambda h, w, side, shift: torch.ones(
            h * w // side**2, side**2, side**2, dtype=torch.bool
        ),
        "the opposite": lambda h, w, side, shift: ~allowed(h, w, side, shift),
        "Only lines": lambda h, w, side, shift: allowed(h, w, side, shift, columns=False),
        "Only columns": lambda h, w, side, shift: allowed(h, w, side, shift, rows=False),
    },
    "bias_rows": {
        "key - query": lambda side: bias_rows(side).T,
        "negative rows": lambda side: bias_rows(side) - (side - 1) * (2 * side),
        "dx comes first": lambda side: (
            bias_rows(side) % (2 * side - 1) * (2 * side - 1) + bias_rows(side) // (2 * side - 1)
        ),
    },
    "merge": {
        "down first": lambda x: torch.cat(
            (x[::2, ::2], x[::2, 1::2], x[1::2, ::2], x[1::2, 1::2]), dim=-1
        ),
        "interleaved": lambda x: merge(x).unflatten(-1, (4, -1)).transpose(-1, -2).flatten(-2),
        "the mean": lambda x: merge(x).unflatten(-1, (4, -1)).mean(-2),
    },
    "cost": {
        "not `side`": lambda h, w, dim, side: (
            cost(h, w, dim, side)[0],
            4 * h * w * dim**2 + 2 * side * h * w * dim,
        ),
        "W_O": lambda h, w, dim, side: tuple(
            each - h * w * dim**2 for each in cost(h, w, dim, side)
        ),
        "FLOPs": lambda h, w, dim, side: tuple(2 * each for each in cost(h, w, dim, side)),
    },
}
