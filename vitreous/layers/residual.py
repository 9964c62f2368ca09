"""Residual networks (He et al. 2016, sections 3.3 and 4.1): a ResNet (`models/resnet.py`), or, with
other convolutions and norms, the stem of a hybrid ViT.

The stride sits on the 3x3 convolution of a bottleneck, as everybody trains it today ("v1.5").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn


class Parts(NamedTuple):
    """What a residual network is built from: plain, or as the hybrid ViT wants it."""

    conv: Callable[[int, int, int, int], nn.Module]
    """(channels in, channels out, kernel, stride)"""
    norm: Callable[[int], nn.Module]
    pool: Callable[[Tensor], Tensor]
    """3x3 maximum with stride 2"""


class Root(nn.Module):
    """(b, c, h, w) -> (b, width, h/4, w/4): 7x7 convolution and pooling, stride 2 each; or (b,
    width, h, w) by a 3x3 convolution alone."""

    def __init__(self, channels: int, width: int, parts: Parts, kernel: int = 7) -> None:
        super().__init__()
        large = kernel == 7
        self.conv = parts.conv(channels, width, kernel, 2 if large else 1)
        self.norm = parts.norm(width)
        self.pool = parts.pool if large else nn.Identity()
        self.stride = 4 if large else 1

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(F.relu(self.norm(self.conv(x))))


class Shortcut(nn.Module):
    """The way around a block that changes the shape: 1x1 convolution and norm."""

    def __init__(self, channels: int, out: int, stride: int, parts: Parts) -> None:
        super().__init__()
        self.conv = parts.conv(channels, out, 1, stride)
        self.norm = parts.norm(out)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x))


class Basic(nn.Module):
    """Two 3x3 convolutions (figure 5 left): (b, channels, h, w) -> (b, width, h/s, w/s)."""

    expansion = 1

    def __init__(self, channels: int, width: int, stride: int, parts: Parts) -> None:
        super().__init__()
        self.conv1, self.norm1 = parts.conv(channels, width, 3, stride), parts.norm(width)
        self.conv2, self.norm2 = parts.conv(width, width, 3, 1), parts.norm(width)
        same = stride == 1 and channels == width
        self.shortcut = nn.Identity() if same else Shortcut(channels, width, stride, parts)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.norm1(self.conv1(x)))
        out = self.norm2(self.conv2(out))
        return F.relu(out + self.shortcut(x))


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 (figure 5 right): (b, channels, h, w) -> (b, 4·width, h/s, w/s)."""

    expansion = 4

    def __init__(self, channels: int, width: int, stride: int, parts: Parts) -> None:
        super().__init__()
        out = width * self.expansion
        self.conv1, self.norm1 = parts.conv(channels, width, 1, 1), parts.norm(width)
        self.conv2, self.norm2 = parts.conv(width, width, 3, stride), parts.norm(width)
        self.conv3, self.norm3 = parts.conv(width, out, 1, 1), parts.norm(out)
        same = stride == 1 and channels == out
        self.shortcut = nn.Identity() if same else Shortcut(channels, out, stride, parts)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.norm1(self.conv1(x)))
        out = F.relu(self.norm2(self.conv2(out)))
        out = self.norm3(self.conv3(out))
        return F.relu(out + self.shortcut(x))


BLOCKS: dict[str, type[Basic] | type[Bottleneck]] = {"basic": Basic, "bottleneck": Bottleneck}


class Trunk(nn.Module):
    """Root and stages: (b, c, h, w) -> (b, out_channels, h/stride, w/stride).

    The first stage keeps the size, each further one halves it.
    """

    def __init__(
        self,
        channels: int,
        width: int,
        stages: tuple[int, ...],
        block: type[Basic] | type[Bottleneck],
        parts: Parts,
        kernel: int = 7,
    ) -> None:
        super().__init__()
        self.root = Root(channels, width, parts, kernel)
        self.out_channels = width
        self.stages = nn.ModuleList()
        self.stride = self.root.stride
        self.widths: list[int] = []
        for stage, count in enumerate(stages):
            blocks = nn.Sequential()
            for i in range(count):
                stride = 2 if stage > 0 and i == 0 else 1
                blocks.append(block(self.out_channels, width << stage, stride, parts))
                self.out_channels = (width << stage) * block.expansion
            self.stages.append(blocks)
            self.widths.append(self.out_channels)
            self.stride *= 2 if stage > 0 else 1

    def forward(self, images: Tensor) -> Tensor:
        x = self.root(images)
        for stage in self.stages:
            x = stage(x)
        return x
