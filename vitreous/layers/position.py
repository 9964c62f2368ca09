"""Positional encodings: what they have in common, and the one of the ViT paper.

An encoding acts at one of four places: `forward` on the tokens before the first block, `score_bias`
on the attention scores of a block, `rotation` on queries and keys (rotary), `after` on the tokens
behind a block. Grids are (height, width) in patches. Class, distillation and register tokens have
no place in the image; each encoding says what it does with them.

Each kind is a record, which a config holds, and the module that it makes. The others are in
`grid_positions.py`, `sines.py` and `rotary.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from vitreous.config import Record, Size, pair
from vitreous.errors import ConfigError
from vitreous.layers.attention import Rotate
from vitreous.layers.resample import PLAIN, Grid, resample_grid
from vitreous.layers.tap import show


class TokenSizes(NamedTuple):
    """The sizes of a ViT that an encoding may depend on."""

    dim: int
    grid: Grid
    rows: int
    """Class and distillation tokens."""
    prefix: int
    """These and the registers."""
    depth: int
    heads: int
    head_dim: int


@dataclass(frozen=True)
class PositionConfig(Record):
    """The choice of an encoding. Its subclasses have a `kind`, and what else is to be chosen."""

    kind: str = ""
    multiple: ClassVar[int] = 1
    """What the width of a token must be a multiple of."""
    on_tokens: ClassVar[bool] = True
    """Whether it acts on the tokens alone, before the blocks: then patches may be left out of
    them."""

    def check_sizes(self, sizes: TokenSizes) -> None:
        """An error where the sizes do not fit it."""
        if sizes.dim % self.multiple:
            raise ConfigError(
                f"dim = {sizes.dim} with position {self.kind!r}: use a multiple of {self.multiple}"
            )

    def make(self, sizes: TokenSizes) -> Position:
        return Position()


class Position(nn.Module):
    """No positional encoding: tokens are a set. The base of the others."""

    any_size = True
    """Whether it takes other grids than the one it was made for without resampling parameters."""
    scaled = False
    """Whether a patch's encoding depends on how large the grid around it is."""
    merges_from: int | None = 0
    """The first block in which tokens may be merged; None: every block needs their places."""
    on_grid: tuple[str, ...] = ()
    """Its parameters that depend on the grid,"""
    grid: Grid
    """and the grid that they are for."""
    at_run_time = "bicubic"
    """How they are resampled for images of another size."""

    def forward(self, x: Tensor, prefix: int, grid: Grid) -> Tensor:
        """x (b, prefix + gh·gw, d), before the first block."""
        return x

    def score_bias(self, block: int, prefix: int, grid: Grid) -> Tensor | None:
        """(1, heads, n, n) over all tokens, prefix included: added to the scores of block
        `block`."""
        return None

    def rotation(
        self, prefix: int, grid: Grid, device: torch.device | None = None
    ) -> Rotate | None:
        """What is done to queries and to keys, (b, heads, prefix + gh·gw, e), in every block.

        It must leave the prefix alone: its tokens have no place.
        """
        return None

    def after(self, block: int, x: Tensor, prefix: int, grid: Grid) -> Tensor:
        """x (b, prefix + gh·gw, d), behind block `block`; the prefix must be left alone."""
        return x

    def parts(self, block: int) -> list[nn.Module]:
        """Its modules that belong to block `block`, and learn at its rate."""
        return []

    def resample(
        self, name: str, value: Tensor, source: Grid, mode: str, grid: Grid | None = None
    ) -> Tensor:
        """The parameter `name`, made for the grid `source`, for `grid` (this module's own)."""
        raise NotImplementedError

    def on(self, name: str, grid: Grid, value: Tensor) -> Tensor:
        """The parameter `name`, with this value, for images of any grid: exactly what importing at
        that size would give."""
        if grid == self.grid:
            return value
        return self.resample(name, value, self.grid, self.at_run_time, grid)


@dataclass(frozen=True)
class NoPosition(PositionConfig):
    kind: Literal["none"] = "none"


@dataclass(frozen=True)
class Learned1dConfig(PositionConfig):
    kind: Literal["learned-1d"] = "learned-1d"
    prefix: bool = True
    """Whether class and distillation token have rows in the table."""
    grid: Size | None = None
    """The grid that the table is stored for, if it is not that of image_size: it is resampled at
    run time (LW-DETR, RF-DETR)."""
    antialias: bool = True
    """Whether resampling at run time is antialiased."""

    def make(self, sizes: TokenSizes) -> Position:
        grid = sizes.grid if self.grid is None else pair("grid", self.grid)
        rows = sizes.rows if self.prefix else 0
        return Learned1d(sizes.dim, grid, rows, antialias=self.antialias)


class Learned1d(Position):
    """A learned vector for each token in raster order: the paper's default.

    `rows` counts the tokens before the patches that have a row too (class and distillation token,
    or none of them; registers have none: they are learned vectors already).
    """

    any_size, scaled, on_grid = False, True, ("table",)

    def __init__(self, dim: int, grid: Grid, rows: int, *, antialias: bool = True) -> None:
        super().__init__()
        self.grid, self.rows = grid, rows
        self.at_run_time = "bicubic" if antialias else PLAIN
        self.table = nn.Parameter(torch.empty(rows + grid[0] * grid[1], dim))
        nn.init.trunc_normal_(self.table, std=0.02)

    def forward(self, x: Tensor, prefix: int, grid: Grid) -> Tensor:
        table = self.on("table", grid, self.table).to(x.dtype)
        table = show(self, "table", table, inside=True)
        if prefix == self.rows:
            return x + table
        if self.rows == 0:
            return add_to_patches(x, prefix, table)
        before = x[:, : self.rows] + table[..., : self.rows, :]
        patches = x[:, prefix:] + table[..., self.rows :, :]
        return torch.cat((before, x[:, self.rows : prefix], patches), dim=1)

    def resample(
        self, name: str, value: Tensor, source: Grid, mode: str, grid: Grid | None = None
    ) -> Tensor:
        rows = value.shape[0] - source[0] * source[1]
        prefix, patches = value[:rows], value[rows:]
        patches = resample_grid(patches.unflatten(0, source), grid or self.grid, mode).flatten(0, 1)
        return torch.cat((prefix, patches))


def add_to_patches(x: Tensor, prefix: int, table: Tensor) -> Tensor:
    table = table.to(x.dtype)
    if prefix == 0:
        return x + table
    return torch.cat((x[:, :prefix], x[:, prefix:] + table), dim=1)
