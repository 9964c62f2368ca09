"""Learned positions for rows and columns (ViT, appendix D.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from vitreous.layers.position import Position, PositionConfig, TokenSizes, add_to_patches
from vitreous.layers.resample import Grid, resample_grid


@dataclass(frozen=True)
class Learned2dConfig(PositionConfig):
    kind: Literal["learned-2d"] = "learned-2d"
    multiple = 2

    def make(self, sizes: TokenSizes) -> Position:
        return Learned2d(sizes.dim, sizes.grid)


class Learned2d(Position):
    """A learned half-vector for each row and one for each column, side by side.

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
        return add_to_patches(x, prefix, show(self, "table", table.flatten(0, 1)))

    def resample(
        self, name: str, value: Tensor, source: Grid, mode: str, grid: Grid | None = None
    ) -> Tensor:
        height, width = grid or self.grid
        size = (height, 1) if name == "y" else (width, 1)
        return resample_grid(value[:, None], size, mode).squeeze(1)
