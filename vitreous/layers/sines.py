"""Positions as fixed sines: in raster order, over x and y, and those of DETR."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from vitreous.config import HIDDEN, Uncommon
from vitreous.layers.position import Position, PositionConfig, TokenSizes, add_to_patches
from vitreous.layers.resample import Grid
from vitreous.layers.tap import show


@dataclass(frozen=True)
class Sines1dConfig(PositionConfig):
    kind: Literal["sines-1d"] = "sines-1d"
    layout: Annotated[Literal["halves", "pairs"], HIDDEN, Uncommon(("pairs",))] = "halves"
    """All sines before all cosines, or in turn (Vaswani et al. 2017)."""
    prefixed: Annotated[bool, HIDDEN, Uncommon((True,))] = False
    """Whether the tokens before the patches have the first places."""
    multiple = 2

    def make(self, sizes: TokenSizes) -> Position:
        return Sines1d(self.layout, prefixed=self.prefixed)


@dataclass(frozen=True)
class Sines2dConfig(PositionConfig):
    kind: Literal["sines-2d"] = "sines-2d"
    multiple = 4

    def make(self, sizes: TokenSizes) -> Position:
        return Sines2d()


class Sines1d(Position):
    """Fixed sines over the raster order (Vaswani et al. 2017, section 3.5).

    layout: all sines, then all cosines (halves), or in turn as in the paper (pairs). Tokens before
    the patches get nothing, or the first places (prefixed).
    """

    def __init__(self, layout: str = "halves", *, prefixed: bool = False) -> None:
        super().__init__()
        self.layout, self.prefixed = layout, prefixed

    def forward(self, x: Tensor, prefix: int, grid: Grid) -> Tensor:
        before = prefix if self.prefixed else 0
        count, dim = before + grid[0] * grid[1], x.shape[-1]
        places = torch.arange(count, device=x.device, dtype=torch.float32)
        half = dim // 2
        frequencies = 10_000.0 ** -(torch.arange(half, device=x.device) / half)
        table = _sines(places, frequencies)  # (count, 2·half)
        if self.layout == "pairs":
            table = table.unflatten(1, (2, half)).transpose(1, 2).flatten(1)
        return add_to_patches(x, prefix - before, show(self, "table", table, inside=True))


class Sines2d(Position):
    """Fixed sines over x and y, a quarter each of sin x, cos x, sin y, cos y. Prefix: nothing.

    The form of big_vision and SimpleViT (Beyer et al. 2022), whose frequencies run from 1 down to
    1/10,000 with both ends included.
    """

    def forward(self, x: Tensor, prefix: int, grid: Grid) -> Tensor:
        table = grid_sines(x.shape[-1], grid, x.device)
        return add_to_patches(x, prefix, show(self, "table", table, inside=True))


def image_sines(
    rows: Tensor, columns: Tensor, grid: Grid, dim: int, temperature: float = 10_000.0
) -> Tensor:
    """Fixed sines over the height and width of each image (DETR section 3.2 and its code).

    rows, columns (b,): how many positions of the grid, from the top and the left, are image; the
    others are padding -> (b, gh·gw, dim): half of the channels for y, half for x, in each half
    sines and cosines in turn. Positions are counted from 1 and divided by the image's own height
    and width, so that they run to 2π whatever its size and padding. The frequencies run from 1 down
    to 1/temperature.
    """
    half = dim // 2
    steps = torch.arange(half // 2, device=rows.device) / (half // 2)

    def sines(length: int, inside: Tensor) -> Tensor:  # (b, length, half)
        places = torch.arange(1, length + 1, device=rows.device, dtype=torch.float32)
        places = places / (inside[:, None] + 1e-6) * (2 * math.pi)
        angles = places[:, :, None] / temperature**steps
        return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(2)

    gh, gw = grid
    at_y = sines(gh, rows)[:, :, None].expand(-1, -1, gw, -1)
    at_x = sines(gw, columns)[:, None].expand(-1, gh, -1, -1)
    return torch.cat((at_y, at_x), dim=-1).flatten(1, 2)


def grid_sines(
    dim: int, grid: Grid, device: torch.device | None = None, *, ends: bool = True
) -> Tensor:
    """(gh·gw, dim): a quarter each of sin x, cos x, sin y, cos y, at frequencies from 1 down to
    1/10,000; without `ends` the last one is left out (MAE)."""
    quarter = dim // 4
    steps = torch.arange(quarter, device=device) / max(quarter - ends, 1)
    frequencies = 10_000.0**-steps
    ys, xs = (torch.arange(size, device=device, dtype=torch.float32) for size in grid)
    at_y = _sines(ys, frequencies)[:, None].expand(-1, grid[1], -1)
    at_x = _sines(xs, frequencies)[None].expand(grid[0], -1, -1)
    return torch.cat((at_x, at_y), dim=-1).flatten(0, 1)


def _sines(places: Tensor, frequencies: Tensor) -> Tensor:
    """(n,), (k,) -> (n, 2k): all sines, then all cosines."""
    angles = places[:, None] * frequencies
    return torch.cat((angles.sin(), angles.cos()), dim=-1)
