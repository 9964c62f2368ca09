"""Attention as this machine computes it fastest."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from vitreous.layers.attention import Attention, Heads
from vitreous.layers.cross_attention import RowsLinear
from vitreous.layers.resample import Grid
from vitreous.layers.tap import is_tapped
from vitreous.models.swin import WindowAttention, Windows, windows_of

MOST_SCORES = 512 * 512
"""Of a head, to train on a CPU in bfloat16 without the fused kernel."""


class FastHeads(Heads):
    """Step by step where that is faster to learn with."""

    def weigh(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        if is_tapped(self) or not _learns_faster_in_steps(q, k):
            return super().weigh(q, k, v, bias)
        return self.weigh_in_steps(q, k, v, None if bias is None else bias.to(q.dtype))


def _learns_faster_in_steps(q: Tensor, k: Tensor) -> bool:
    """On a CPU in bfloat16, the backward of torch's fused kernel takes two to four times as long as
    that of matrix products, up to about 500 tokens. They keep the weights, (b, heads, m, n)."""
    return (
        q.requires_grad
        and q.dtype == torch.bfloat16
        and q.device.type == "cpu"
        and q.shape[2] * k.shape[2] <= MOST_SCORES
        and not torch.compiler.is_compiling()
    )


class FastAttention(Attention):
    """The bias of queries and values in the same pass as their product."""

    def make(self, x: Tensor) -> Tensor:
        if self.qv_bias is None or not isinstance(self.qkv, RowsLinear):
            return super().make(x)
        return self.split(self.qkv(x, bias=self.qkv_bias()))


class CachedWindows(WindowAttention):
    """Windows are made once for each size of map."""

    def windows(self, size: Grid, device: torch.device) -> Windows:
        if torch.compiler.is_compiling():
            return super().windows(size, device)
        return cached_windows(size, self.window, self.shift(size), device)


@functools.lru_cache(maxsize=64)
def cached_windows(size: Grid, window: Grid, shift: Grid, device: torch.device) -> Windows:
    """Never saved: all of it follows from the sizes."""
    with torch.inference_mode(False):
        return windows_of(size, window, shift, device)
