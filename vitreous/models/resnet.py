"""ResNet: Deep Residual Learning for Image Recognition (He et al. 2016), sections 3.3 and 4.1.

The baseline of the ViT paper, the backbone of DETR, and, with other convolutions and norms, the
stem of the hybrid ViT. The stride sits on the 3x3 convolution of a bottleneck, as everybody
trains it today ("v1.5").
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitreous.config import Classes, Depths, Epsilon, Size
from vitreous.errors import ConfigError
from vitreous.layers.conv_stem import Stem
from vitreous.layers.head import HeadSizes, LinearHeadConfig
from vitreous.layers.resample import Grid
from vitreous.layers.tap import show
from vitreous.models.model import Level, Model, ModelConfig


@dataclass(frozen=True)
class ResNetConfig(ModelConfig):
    """What a ResNet is made of. The defaults are ResNet-50."""

    image_size: Size = 224
    """Height and width in pixels; a ResNet takes any size, this is the one it is made for."""
    channels: int = 3
    classes: Classes = 1000
    block: Literal["bottleneck", "basic"] = "bottleneck"
    """bottleneck (1x1, 3x3, 1x1) or basic (3x3, 3x3)."""
    stages: Depths = (3, 4, 6, 3)
    """Blocks in each stage."""
    width: int = 64
    """Channels behind the first convolution; they double with each stage."""
    root: Literal["7x7", "3x3"] = "7x7"
    """The first convolution: 7x7 with stride 2 and then pooling (section 4.1, ImageNet), or 3x3
    that keeps the size (section 4.2, CIFAR-10), for images of few pixels."""
    norm: Literal["batch", "frozen", "group"] = "batch"
    """batch; frozen (batch norm with the statistics that came with the weights, for fine-tuning
    with small batches); or group (independent of the batch, for training from scratch with small
    batches)."""
    dilated: bool = False
    """The last stage keeps the size of the one before, with dilated convolutions (DETR's DC5)."""
    head: LinearHeadConfig = LinearHeadConfig()
    """linear, none."""
    norm_eps: Epsilon = 1e-5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.stages or any(blocks < 1 for blocks in self.stages):
            raise ConfigError(f"stages = {self.stages}: expected at least one block per stage")
        if self.dilated and len(self.stages) < 2:
            raise ConfigError("dilated = True: the only stage does not halve the size; add stages")


class Parts(NamedTuple):
    """What a residual network is built from: plain, or as the hybrid ViT wants it."""

    conv: Callable[[int, int, int, int], nn.Module]
    """(channels in, channels out, kernel, stride)"""
    norm: Callable[[int], nn.Module]
    pool: Callable[[Tensor], Tensor]
    """3x3 maximum with stride 2"""


class FrozenBatchNorm(nn.Module):
    """Batch norm as it came with the weights: nothing in it learns, and no batch changes it. What
    is left is a factor and a summand for each channel."""

    weight: Tensor
    bias: Tensor
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.register_buffer("weight", torch.ones(channels))
        self.register_buffer("bias", torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        factor = self.weight * (self.running_var + self.eps).rsqrt()
        summand = self.bias - self.running_mean * factor
        return x * factor[:, None, None] + summand[:, None, None]


def group_norm(channels: int, eps: float) -> nn.GroupNorm:
    """Groups of 16 channels, as good as 32 groups (Wu and He 2018, table 3) and for any width."""
    return nn.GroupNorm(channels // math.gcd(channels, 16), channels, eps=eps)


NORMS: dict[str, Callable[[int, float], nn.Module]] = {
    "batch": nn.BatchNorm2d,
    "frozen": FrozenBatchNorm,
    "group": group_norm,
}


def plain_parts(norm_eps: float = 1e-5, norm: str = "batch") -> Parts:
    """Convolutions padded alike on all sides, and batch norm or another."""
    return Parts(
        conv=lambda cin, cout, kernel, stride: nn.Conv2d(
            cin, cout, kernel, stride, padding=kernel // 2, bias=False
        ),
        norm=lambda channels: NORMS[norm](channels, norm_eps),
        pool=pool_plain,
    )


def pool_plain(x: Tensor) -> Tensor:
    return F.max_pool2d(x, 3, stride=2, padding=1)


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


class Trunk(Stem):
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
        super().__init__(width)
        self.root = Root(channels, width, parts, kernel)
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


class ResNet(Trunk, Model):
    """(b, c, h, w) -> logits (b, classes). Its tokens are the positions of its map."""

    def __init__(self, config: ResNetConfig) -> None:
        block = BLOCKS[config.block]
        parts = plain_parts(config.norm_eps, config.norm)
        kernel = int(config.root[0])
        super().__init__(config.channels, config.width, config.stages, block, parts, kernel)
        self.config, self.depth = config, len(config.stages)
        if config.dilated:
            dilate(self.stages[-1])
            self.stride //= 2
        self.head = config.head.make(HeadSizes(self.out_channels, config.classes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        x, grid = self.embed(images)
        x = self.encode(x, grid)
        return self.head(self.pool(x))

    def embed(self, images: Tensor) -> tuple[Tensor, Grid]:
        self.check_images(images)
        x = self.root(images)
        return x.flatten(2).transpose(1, 2), (x.shape[2], x.shape[3])

    def encode(self, x: Tensor, grid: Grid, first: int = 0, last: int | None = None) -> Tensor:
        x = x.transpose(1, 2).unflatten(2, grid)  # (b, d, gh, gw)
        for stage in list(self.stages)[first:last]:
            x = stage(x)
        return x.flatten(2).transpose(1, 2)

    def pool(self, x: Tensor) -> Tensor:
        return show(self, "pool", x.mean(dim=1))

    def levels(self, size: tuple[int, int]) -> list[Level]:
        found = []
        for number, width in enumerate(self.widths):
            stride = min(self.root.stride << number, self.stride)
            # not -(-h // s): ONNX rounds quotients of negative numbers up
            grid = ((size[0] + stride - 1) // stride, (size[1] + stride - 1) // stride)
            found.append(Level(width, grid, (stride, stride)))
        return found

    def layers(self) -> list[list[nn.Module]]:
        return [[self.root], *([stage] for stage in self.stages), [self.head]]


def dilate(stage: nn.Module) -> None:
    """Let a stage keep the size: its stride becomes 1, and the 3x3 kernels behind it are dilated by
    2, so that they see as far as before (DETR section 4, DC5)."""
    for conv in stage.modules():
        if not isinstance(conv, nn.Conv2d):
            continue
        if conv.stride == (2, 2):
            conv.stride = (1, 1)
        elif conv.kernel_size == (3, 3):
            conv.dilation = conv.padding = (2, 2)


VARIANTS = {  # table 1
    "resnet-18": ResNetConfig(block="basic", stages=(2, 2, 2, 2)),
    "resnet-34": ResNetConfig(block="basic", stages=(3, 4, 6, 3)),
    "resnet-50": ResNetConfig(stages=(3, 4, 6, 3)),
    "resnet-101": ResNetConfig(stages=(3, 4, 23, 3)),
}
