"""Positions that are learned on the grid of patches: for rows and columns, for the offset between
two patches, or from a patch's neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from vitreous.layers.position import Position, PositionConfig, TokenSizes, add_to_patches
from vitreous.layers.resample import Grid, resample_grid
from vitreous.layers.tap import show


@dataclass(frozen=True)
class Learned2dConfig(PositionConfig):
    kind: Literal["learned-2d"] = "learned-2d"
    multiple = 2

    def make(self, sizes: TokenSizes) -> Position:
        return Learned2d(sizes.dim, sizes.grid)


class Learned2d(Position):
    """A learned half-vector for each row and one for each column, side by side (ViT, appendix D.4).

    Tokens before the patches get nothing: they are learned vectors already.
    """

    any_size, scaled, on_grid = False, True, ("y", "x")

    def __init__(self, dim: int, grid: Grid) -> None:
        super().__init__()
        self.grid = grid
        self.y = nn.Parameter(torch.empty(grid[0], dim // 2))
        self.x = nn.Parameter(torch.empty(grid[1], dim // 2))
        nn.init.trunc_normal_(self.y, std=0.02)
        nn.init.trunc_normal_(self.x, std=0.02)

    def forward(self, x: Tensor, prefix: int, grid: Grid) -> Tensor:
        gh, gw = grid
        y, at_x = self.on("y", grid, self.y), self.on("x", grid, self.x)
        table = torch.cat((at_x[None].expand(gh, -1, -1), y[:, None].expand(-1, gw, -1)), dim=-1)
        table = show(self, "table", table.flatten(0, 1), inside=True)
        return add_to_patches(x, prefix, table)

    def resample(
        self, name: str, value: Tensor, source: Grid, mode: str, grid: Grid | None = None
    ) -> Tensor:
        height, width = grid or self.grid
        size = (height, 1) if name == "y" else (width, 1)
        return resample_grid(value[:, None], size, mode).squeeze(1)


@dataclass(frozen=True)
class RelativeConfig(PositionConfig):
    kind: Literal["relative"] = "relative"
    on_tokens = False

    def make(self, sizes: TokenSizes) -> Position:
        return Relative(sizes.depth, sizes.heads, sizes.grid, sizes.prefix)


class OffsetBias(nn.Module):
    """The biases of one block: `table` (offsets, heads), and three rows for tokens of no place."""

    def __init__(self, heads: int, grid: Grid, prefix: bool) -> None:
        super().__init__()
        offsets = (2 * grid[0] - 1) * (2 * grid[1] - 1)
        self.table = nn.Parameter(torch.empty(offsets + 3 * prefix, heads))
        nn.init.trunc_normal_(self.table, std=0.02)


class Relative(Position):
    """A learned bias for each offset between two patches, per block and head (BEiT).

    The rows of a block's table are the (query - key) offsets of a (2·gh-1, 2·gw-1) grid. Behind
    them, if there are tokens before the patches, are those for prefix to patch, patch to prefix and
    prefix to prefix.
    """

    any_size, scaled, merges_from = False, True, None

    def __init__(self, depth: int, heads: int, grid: Grid, prefix: int) -> None:
        super().__init__()
        self.grid, self.rows = grid, 3 if prefix else 0
        self.blocks = nn.ModuleList(OffsetBias(heads, grid, prefix > 0) for _ in range(depth))
        self.on_grid = tuple(f"blocks.{block}.table" for block in range(depth))

    def score_bias(self, block: int, prefix: int, grid: Grid) -> Tensor:
        own: Tensor = self.blocks[block].table  # type: ignore[assignment]
        table = self.on(self.on_grid[block], grid, own)
        index = relative_index(grid, table.device)
        n = index.shape[0]
        bias = table[index.flatten()].view(n, n, -1).permute(2, 0, 1)  # (heads, n, n)
        if self.rows:
            to_patch, to_prefix, among = table[-3:, :, None, None].unbind(0)  # (heads, 1, 1) each
            top = torch.cat((among.expand(-1, prefix, prefix), to_patch.expand(-1, prefix, n)), 2)
            bottom = torch.cat((to_prefix.expand(-1, n, prefix), bias), 2)
            bias = torch.cat((top, bottom), 1)
        return show(self.blocks[block], "bias", bias[None], inside=True)

    def parts(self, block: int) -> list[nn.Module]:
        return [self.blocks[block]]

    def resample(
        self, name: str, value: Tensor, source: Grid, mode: str, grid: Grid | None = None
    ) -> Tensor:
        before, after = ((2 * h - 1, 2 * w - 1) for h, w in (source, grid or self.grid))
        offsets = before[0] * before[1]
        resampled = resample_grid(value[:offsets].unflatten(0, before), after, mode)
        return torch.cat((resampled.flatten(0, 1), value[offsets:]))


def relative_index(grid: Grid, device: torch.device | None = None) -> Tensor:
    """(n, n): for query i and key j, where their offset stands in a flat (2h-1)·(2w-1) table."""
    gh, gw = grid
    ys = torch.arange(gh, device=device).repeat_interleave(gw)
    xs = torch.arange(gw, device=device).repeat(gh)
    dy = ys[:, None] - ys[None] + gh - 1
    dx = xs[:, None] - xs[None] + gw - 1
    return dy * (2 * gw - 1) + dx


@dataclass(frozen=True)
class ConditionalConfig(PositionConfig):
    kind: Literal["conditional"] = "conditional"
    on_tokens = False

    def make(self, sizes: TokenSizes) -> Position:
        return Conditional(sizes.dim)


class Conditional(Position):
    """The positional encoding generator of CPVT (Chu et al. 2021, section 3.2).

    A depthwise 3x3 convolution over the grid, added to the patches behind the first block: a patch
    learns its place from its neighbours and from the zeros around the image. It takes any grid.
    Tokens before the patches are left alone.
    """

    merges_from = 1

    def __init__(self, dim: int, kernel: int = 3) -> None:
        super().__init__()
        self.generator = nn.Conv2d(dim, dim, kernel, padding=kernel // 2, groups=dim)
        nn.init.normal_(self.generator.weight, std=(2 / kernel**2) ** 0.5)
        nn.init.zeros_(self.generator.bias)  # type: ignore[arg-type]

    def after(self, block: int, x: Tensor, prefix: int, grid: Grid) -> Tensor:
        if block != 0:
            return x
        before, patches = x[:, :prefix], x[:, prefix:]
        placed = show(self, "placed", patches, inside=True)
        generated = self.generator(placed.transpose(1, 2).unflatten(2, grid))
        generated = show(self, "generated", generated.flatten(2).transpose(1, 2), inside=True)
        return show(self, "conditional", torch.cat((before, patches + generated), dim=1))
