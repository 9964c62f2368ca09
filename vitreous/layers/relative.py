"""Positions as biases in attention, learned for each offset between two patches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from vitreous.layers.position import Position, PositionConfig, TokenSizes
from vitreous.layers.resample import Grid, resample_grid


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
        between = table[index.flatten()].view(n, n, -1).permute(2, 0, 1)  # (heads, n, n)
        if not self.rows:
            return between[None]
        to_patch, to_prefix, among = table[-3:, :, None, None].unbind(0)  # (heads, 1, 1) each
        top = torch.cat((among.expand(-1, prefix, prefix), to_patch.expand(-1, prefix, n)), 2)
        bottom = torch.cat((to_prefix.expand(-1, n, prefix), between), 2)
        return torch.cat((top, bottom), 1)[None]

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
