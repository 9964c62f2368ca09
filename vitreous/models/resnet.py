"""ResNet: Deep Residual Learning for Image Recognition (He et al. 2016), sections 3.3 and 4.1.

The baseline of the ViT paper and the backbone of DETR. Its blocks are in `layers/residual.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitreous.config import Classes, Depths, Epsilon, Size
from vitreous.errors import ConfigError
from vitreous.layers.head import HeadSizes, LinearHeadConfig
from vitreous.layers.resample import Grid
from vitreous.layers.residual import BLOCKS, Parts, Trunk
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
