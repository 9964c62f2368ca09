"""Exercise 8, solved; and what readers usually get wrong."""

import math

import torch
import torch.nn.functional as F


def centres(old, new):
    return (torch.arange(new) + 0.5) * old / new - 0.5


def line(values, new):
    n = len(values)
    at = centres(n, new)
    below = at.floor().long()
    part = (at - below)[:, None]
    low, high = below.clamp(0, n - 1), (below + 1).clamp(0, n - 1)
    return (1 - part) * values[low] + part * values[high]


def split(table, grid):
    gh, gw = grid
    prefix = len(table) - gh * gw
    return table[:prefix], table[prefix:].reshape(gh, gw, -1)


def resize(table, old, new, **how):
    before, grid = split(table, old)
    how = {"mode": "bicubic", "antialias": True} | how
    grid = F.interpolate(grid.permute(2, 0, 1)[None], size=new, **how)
    return torch.cat((before, grid[0].permute(1, 2, 0).flatten(0, 1)))


def unclamped(values, new):
    at = centres(len(values), new)
    below = at.floor().long()
    part = (at - below)[:, None]
    return (1 - part) * values[below] + part * values[(below + 1).clamp(max=len(values) - 1)]


def square(table, old, new):
    side = math.isqrt(old[0] * old[1])
    return resize(table, (side, side), new)


def torn(table, old, new):
    before, grid = split(table, old)
    grid = F.interpolate(grid.reshape(1, -1, *old), size=new, mode="bicubic", antialias=True)
    return torch.cat((before, grid[0].permute(1, 2, 0).flatten(0, 1)))


WRONG = {
    "centres": {
        "align_corners=True": lambda old, new: torch.linspace(0, old - 1, new),
        "where patches begin": lambda old, new: torch.arange(new) * old / new,
        "from the border": lambda old, new: (torch.arange(new) + 0.5) * old / new,
    },
    "line": {
        "outermost places are aligned": lambda values, new: (
            F.interpolate(values.T[None], size=new, mode="linear", align_corners=True)[0].T
        ),
        "one old place alone": lambda values, new: values[torch.arange(new) * len(values) // new],
        "repeat the border": unclamped,
    },
    "split": {
        "One row was set aside": lambda table, grid: (
            table[:1],
            table[1 : 1 + grid[0] * grid[1]].reshape(*grid, -1),
        ),
        "6 times 6": lambda table, grid: (table[:2], table[2:].reshape(6, 6, -1)),
        "Height and width": lambda table, grid: (table[:2], table[2:].reshape(*grid[::-1], -1)),
    },
    "resize": {
        "Not antialiased": lambda table, old, new: resize(table, old, new, antialias=False),
        "torn apart": torn,
        "square one": square,
        "tokens before the patches are missing": lambda table, old, new: resize(table, old, new)[
            2:
        ],
    },
}
