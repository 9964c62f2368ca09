"""Exercise 2, solved; and what readers usually get wrong."""

import torch


def add_positions(patches, class_token, table):
    return torch.cat((class_token[None], patches)) + table


def sines(count, dim):
    angles = torch.arange(count)[:, None] / 10_000 ** (torch.arange(0, dim, 2) / dim)
    return torch.stack((angles.sin(), angles.cos()), dim=2).flatten(1)


def sines_2d(height, width, dim):
    x = sines(width, dim // 2)[None].expand(height, -1, -1)
    y = sines(height, dim // 2)[:, None].expand(-1, width, -1)
    return torch.cat((x, y), dim=2).flatten(0, 1)


def relative_bias(table, height, width):
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    y, x = y.flatten(), x.flatten()
    return table[height - 1 + y[:, None] - y, width - 1 + x[:, None] - x]


def turn(x, angles):
    out = torch.empty_like(x)
    out[:, 0::2] = x[:, 0::2] * angles.cos() - x[:, 1::2] * angles.sin()
    out[:, 1::2] = x[:, 0::2] * angles.sin() + x[:, 1::2] * angles.cos()
    return out


def halves(count, dim):
    angles = torch.arange(count)[:, None] / 10_000 ** (torch.arange(0, dim, 2) / dim)
    return torch.cat((angles.sin(), angles.cos()), dim=1)


def half_exponent(count, dim):
    angles = torch.arange(count)[:, None] / 10_000 ** (torch.arange(dim // 2) / dim)
    return torch.stack((angles.sin(), angles.cos()), dim=2).flatten(1)


def in_place(x, angles):
    x[:, 0::2] = x[:, 0::2] * angles.cos() - x[:, 1::2] * angles.sin()
    x[:, 1::2] = x[:, 0::2] * angles.sin() + x[:, 1::2] * angles.cos()
    return x


def without_sign(table, height, width):
    y, x = torch.arange(height * width) // width, torch.arange(height * width) % width
    return table[height - 1 + (y[:, None] - y).abs(), width - 1 + (x[:, None] - x).abs()]


def not_centred(table, height, width):
    y, x = torch.arange(height * width) // width, torch.arange(height * width) % width
    return table[y[:, None] - y, x[:, None] - x]


WRONG = {
    "add_positions": {
        "stands behind": lambda patches, token, table: torch.cat((patches, token[None])) + table,
        "has no position": lambda patches, token, table: torch.cat(
            (token[None], patches + table[1:])
        ),
        "rows 0 to N - 1": lambda patches, token, table: torch.cat(
            (token[None], patches + table[:-1])
        ),
    },
    "sines": {
        "before all cosines": halves,
        "exponent": half_exponent,
        "counted from 1": lambda count, dim: sines(count + 1, dim)[1:],
        "swapped": lambda count, dim: sines(count, dim).unflatten(1, (-1, 2)).flip(2).flatten(1),
    },
    "sines_2d": {
        "row comes first": lambda h, w, dim: sines_2d(h, w, dim).roll(dim // 2, 1),
        "column by column": lambda h, w, dim: (
            sines_2d(h, w, dim).unflatten(0, (h, w)).transpose(0, 1).flatten(0, 1)
        ),
    },
    "relative_bias": {
        "key minus query": lambda table, h, w: relative_bias(table, h, w).T,
        "without a sign": without_sign,
        "middle of the table": not_centred,
    },
    "turn": {
        "other way": lambda x, angles: turn(x, -angles),
        "after it was changed": in_place,
        "neighbours": lambda x, angles: torch.cat(
            turn(torch.stack(x.chunk(2, 1), 2).flatten(1), angles).unflatten(1, (-1, 2)).unbind(2),
            1,
        ),
    },
}
