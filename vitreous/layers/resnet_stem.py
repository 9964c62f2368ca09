"""The ResNet that a hybrid ViT has before its patches: BiT's (Kolesnikov et al. 2020).

Convolutions with standardised weights, group norm, and TensorFlow's "SAME" padding, which pads the
bottom and right more when it cannot be even.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitreous.config import Depths, Epsilon, Hidden
from vitreous.errors import ConfigError
from vitreous.layers.patch import StemConfig
from vitreous.layers.residual import Bottleneck, Parts, Trunk


@dataclass(frozen=True)
class ResNetStemConfig(StemConfig):
    """The trunk of a ResNet, whose map is cut into patches."""

    kind: Literal["resnet"] = "resnet"
    stages: Depths = (3, 4, 9)
    """Blocks in each stage; none leaves its first convolution and pooling."""
    width: int = 64
    """Channels behind the first convolution."""
    norm_eps: Epsilon = 1e-5
    """Of the group norms: 1e-5 in timm, 1e-6 in Google's own code."""
    standardise: Hidden[Literal["variance", "deviation"]] = "variance"
    """What the filters, less their mean, are divided by: sqrt(variance + 1e-8) as in timm, or
    standard deviation + 1e-5 as in Google's own code."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % 32:
            raise ConfigError(f"width = {self.width}: use a multiple of 32, the norm's groups")
        if any(blocks < 1 for blocks in self.stages):
            raise ConfigError(f"stages = {self.stages}: expected at least one block per stage")

    @property
    def stride(self) -> tuple[int, int]:
        stride = 4 << max(len(self.stages) - 1, 0)
        return stride, stride

    def map_of(self, size: tuple[int, int]) -> tuple[int, int]:
        stride = self.stride[0]
        return -(-size[0] // stride), -(-size[1] // stride)

    def out_channels(self, channels: int, dim: int) -> int:
        last = len(self.stages) - 1
        return (self.width << last) * Bottleneck.expansion if self.stages else self.width

    def make(self, channels: int) -> nn.Module:
        parts = Parts(
            conv=lambda cin, out, kernel, stride: StandardisedConv(
                cin, out, kernel, stride, self.standardise
            ),
            norm=lambda channels: nn.GroupNorm(32, channels, eps=self.norm_eps),
            pool=pool_same,
        )
        return Trunk(channels, self.width, self.stages, Bottleneck, parts)


class StandardisedConv(nn.Conv2d):
    """A convolution whose filters are brought to mean 0 and variance 1 before use (Qiao et al.)."""

    def __init__(self, channels: int, out: int, kernel: int, stride: int, standardise: str) -> None:
        super().__init__(channels, out, kernel, stride, bias=False)
        self.standardise = standardise

    def forward(self, x: Tensor) -> Tensor:
        filters = self.weight.flatten(1)  # (out, in·kernel·kernel)
        if self.standardise == "deviation":
            std, mean = torch.std_mean(filters, dim=1, correction=0, keepdim=True)
            filters = (filters - mean) / (std + 1e-5)
        else:
            # Each filter is a channel of one sample to batch norm: its kernel standardises them all
            # at once and rounds as timm's does, which many layers later decides about the fifth
            # digit.
            filters = F.batch_norm(filters[None], None, None, training=True, eps=1e-8)
        weight = filters.view_as(self.weight)
        return F.conv2d(pad_same(x, self.kernel_size[0], self.stride[0]), weight, None, self.stride)


def pad_same(x: Tensor, kernel: int, stride: int, value: float = 0.0) -> Tensor:
    """Pads so that the output has ceil(size / stride) positions, the odd one at the far side."""
    h, w = (max((-(-s // stride) - 1) * stride + kernel - s, 0) for s in x.shape[2:])
    if h == 0 and w == 0:
        return x
    return F.pad(x, (w // 2, w - w // 2, h // 2, h - h // 2), value=value)


def pool_same(x: Tensor) -> Tensor:
    return F.max_pool2d(pad_same(x, 3, 2, value=-torch.inf), 3, stride=2)
