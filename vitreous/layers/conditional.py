"""Conditional positions (CPVT): a patch learns its place from its neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from vitreous.layers.position import Position, PositionConfig, TokenSizes
from vitreous.layers.resample import Grid
from vitreous.layers.tap import show


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
        on_grid = patches.transpose(1, 2).unflatten(2, grid)
        patches = patches + self.generator(on_grid).flatten(2).transpose(1, 2)
        return show(self, "conditional", torch.cat((before, patches), dim=1))
