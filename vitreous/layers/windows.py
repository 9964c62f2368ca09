"""Attention inside windows of a ViT's grid of patches (LW-DETR, section 3.2; RF-DETR).

Most blocks see one window each; the blocks between them see all windows, one behind another, so
that nothing is moved between blocks. Each window has class token and registers of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vitreous.config import Record
from vitreous.layers.resample import Grid


@dataclass(frozen=True)
class WindowsConfig(Record):
    """How the grid is cut; the default: not at all."""

    side: int = 1
    """Windows in height, and as many in width."""
    global_blocks: tuple[int, ...] = ()
    """Blocks in which all tokens see each other."""


class WindowedBlocks:
    """The blocks of a ViT with attention inside windows: `side` in height and in width, each with
    `prefix` tokens before its patches."""

    def __init__(self, side: int, global_blocks: Iterable[int], prefix: int) -> None:
        self.side, self.global_blocks, self.prefix = side, {*global_blocks}, prefix

    def with_prefixes(self, x: Tensor) -> Tensor:
        """(b, p + n, d) -> (b, side²·p + n, d)."""
        before, patches = x[:, : self.prefix], x[:, self.prefix :]
        return torch.cat((before.repeat(1, self.side**2, 1), patches), dim=1)

    def encode(self, blocks: Iterable[tuple[int, nn.Module]], x: Tensor, grid: Grid) -> Tensor:
        """(b, side²·p + n, d) -> the same behind the numbered blocks."""
        b, d = x.shape[0], x.shape[2]
        x = into_windows(x, grid, self.side, self.prefix)  # (b·side², p + n / side², d)
        for i, block in blocks:
            if i in self.global_blocks:
                x = block(x.reshape(b, -1, d)).reshape(b * self.side**2, -1, d)
            else:
                x = block(x)
        return out_of_windows(x, grid, self.side, self.prefix)

    def places(self, block: int, grid: Grid) -> Tensor:
        """(windows, n): which patch each token of a window is in a block, and -1 for others."""
        before = torch.full((self.side**2 * self.prefix,), -1)
        tokens = torch.cat((before, torch.arange(grid[0] * grid[1])))[None, :, None]
        windows = into_windows(tokens, grid, self.side, self.prefix)[:, :, 0]
        return windows.reshape(1, -1) if block in self.global_blocks else windows


def into_windows(x: Tensor, grid: Grid, side: int, prefix: int) -> Tensor:
    """(b, side²·prefix + gh·gw, d) -> (b·side², prefix + gh·gw/side², d), row by row of windows."""
    b, _, d = x.shape
    before = x[:, : side * side * prefix].reshape(b * side * side, prefix, d)
    high, wide = grid[0] // side, grid[1] // side
    patches = x[:, side * side * prefix :].reshape(b, side, high, side, wide, d)
    patches = patches.transpose(2, 3).reshape(b * side * side, high * wide, d)
    return torch.cat((before, patches), dim=1) if prefix else patches


def out_of_windows(x: Tensor, grid: Grid, side: int, prefix: int) -> Tensor:
    """The reverse of `into_windows`."""
    d, high, wide = x.shape[2], grid[0] // side, grid[1] // side
    patches = x[:, prefix:].reshape(-1, side, side, high, wide, d).transpose(2, 3)
    patches = patches.reshape(-1, grid[0] * grid[1], d)
    if not prefix:
        return patches
    before = x[:, :prefix].reshape(-1, side * side * prefix, d)
    return torch.cat((before, patches), dim=1)
