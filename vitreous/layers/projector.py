"""The projector of LW-DETR (Chen et al. 2024, section 3.1) and RF-DETR."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from vitreous.layers.conv_stem import ChannelNorm
from vitreous.layers.mlp import ACTIVATIONS, Activation
from vitreous.layers.resample import enlarged


class ConvNorm(nn.Module):
    """Convolution, norm, activation: (b, c, h, w) -> (b, out, h', w')."""

    def __init__(
        self,
        channels: int,
        out: int,
        kernel: int,
        *,
        norm: str,
        eps: float,
        stride: int = 1,
        activation: Activation = "silu",
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, out, kernel, stride, kernel // 2, bias=False)
        self.norm = ChannelNorm(out, eps=eps) if norm == "layer" else nn.BatchNorm2d(out, eps=eps)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        return ACTIVATIONS[self.activation](self.norm(self.conv(x)))


class Projector(nn.Module):
    """The backbone's maps as one map of a scale, by a C2f block (LW-DETR, section 3.1; Jocher et
    al. 2023): half of the channels go through bottlenecks, and everything on the way is joined."""

    def __init__(
        self, widths: Sequence[int], dim: int, scale: float, *, depth: int, norm: str, eps: float
    ) -> None:
        super().__init__()
        kind: dict[str, Any] = {"norm": norm, "eps": eps}
        resizing = [_resizing(width, scale, kind) for width in widths]
        self.resize = nn.ModuleList(layers for layers, _ in resizing)
        half, channels = dim // 2, sum(width for _, width in resizing)
        self.enter = ConvNorm(channels, 2 * half, 1, **kind)
        self.bottlenecks = nn.ModuleList(
            nn.Sequential(ConvNorm(half, half, 3, **kind), ConvNorm(half, half, 3, **kind))
            for _ in range(depth)
        )
        self.leave = ConvNorm((2 + depth) * half, dim, 1, **kind)
        self.norm = ChannelNorm(dim, eps=1e-6)

    def forward(self, maps: Sequence[Tensor]) -> Tensor:
        resized = [resize(each) for resize, each in zip(self.resize, maps, strict=True)]
        # Maps of a pyramid (Swin, ResNet) are brought to one grid; those of a ViT are on one.
        x = torch.cat([enlarged(each, resized[-1].shape[2:]) for each in resized], dim=1)
        parts = [*self.enter(x).chunk(2, dim=1)]
        for bottleneck in self.bottlenecks:
            parts.append(bottleneck(parts[-1]))
        return self.norm(self.leave(torch.cat(parts, dim=1)))


def _resizing(width: int, scale: float, kind: dict[str, Any]) -> tuple[nn.Sequential, int]:
    """A map at another scale, and its channels then. LW-DETR, with batch norms, makes a wide map
    narrower before it is enlarged."""
    if scale == 1:
        return nn.Sequential(), width
    if scale < 1:
        layer = ConvNorm(width, width, 3, stride=2, activation="relu", **kind)
        return nn.Sequential(layer), width
    if width <= 512 or kind["norm"] == "layer":
        return nn.Sequential(nn.ConvTranspose2d(width, width // 2, 2, 2)), width // 2
    narrow = ConvNorm(width, width // 2, 1, activation="relu", **kind)
    enlarging = nn.ConvTranspose2d(width // 2, width // 4, 2, 2)
    return nn.Sequential(narrow, enlarging), width // 4
