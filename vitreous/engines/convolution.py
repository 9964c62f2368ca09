"""The parts of a ResNet with convolution, batch norm, sum and ReLU in one pass, where nothing is
learned and it is faster.

A batch norm in eval mode is a factor and a summand of each channel, which can be part of the
convolution before it. To predict on a CPU with AVX-512, oneDNN adds what comes beside and applies
the ReLU while it writes the map; folded and laid out weights are kept (`onednn.py`). On a ResNet-50
for images of 640 pixels that is a fifth of the time. Elsewhere it is what torch computes step by
step.
"""

from __future__ import annotations

from typing import Any, TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitreous.engines.onednn import fits, packed
from vitreous.engines.swap import is_watched
from vitreous.layers.conv_stem import ConvStem
from vitreous.layers.residual import Basic, Bottleneck, Root, Shortcut
from vitreous.models.resnet import FrozenBatchNorm

WORK = 1 << 22
"""Multiplications from which on it is worth looking for the packed weight."""


def folds(conv: nn.Module, x: Tensor) -> TypeGuard[nn.Conv2d]:
    """Whether one pass takes the place of several: of a plain convolution that nobody watches."""
    return (
        type(conv) is nn.Conv2d
        and conv.bias is None
        and conv.padding_mode == "zeros"
        and isinstance(conv.padding, tuple)
        and not is_watched(conv)
        and not torch.is_grad_enabled()
        and fits(x, conv.weight)
        and conv.weight.is_contiguous()
        and x.is_contiguous(memory_format=torch.channels_last)
        and conv.weight.numel() * x.shape[0] * x.shape[2] * x.shape[3] >= WORK
    )


def folded(
    conv: nn.Conv2d,
    factor: Tensor,
    summand: Tensor,
    x: Tensor,
    *,
    add: Tensor | None = None,
    relu: bool = False,
    overwrite: bool = False,
) -> Tensor:
    """relu(conv(x) · factor + summand + add), with a factor and a summand for each channel; the
    convolution has no bias of its own. `overwrite`: the result may be written over `add`, which
    nobody needs behind it; to write large maps into fresh memory takes longer."""
    if not folds(conv, x):
        weight = conv.weight * factor[:, None, None, None]
        x = F.conv2d(x, weight, summand, conv.stride, conv.padding, conv.dilation, conv.groups)
        x = x if add is None else x.add_(add)
        return F.relu_(x) if relu else x
    padding, stride, dilation = (list(each) for each in (conv.padding, conv.stride, conv.dilation))
    place = (padding, stride, dilation, conv.groups)

    def pack() -> tuple[Tensor, Tensor]:
        weight = (conv.weight * factor[:, None, None, None]).to_mkldnn()
        reorder: Any = torch._C._nn.mkldnn_reorder_conv2d_weight
        return factor, reorder(weight, *place, list(x.shape))

    known, weight = packed(conv.weight, pack)
    if not torch.equal(known, factor):  # torch does not count how running statistics change
        _, weight = packed(conv.weight, pack, again=True)
    found: Tensor
    if add is None:
        fuse = torch.ops.mkldnn._convolution_pointwise
        found = fuse(x, weight, summand, *place, "relu" if relu else "none", [], "")
        return found
    then: tuple[Any, ...] = (weight, summand, *place, "add", 1.0, "relu" if relu else None, [], "")
    if overwrite and add.is_contiguous(memory_format=torch.channels_last):
        found = torch.ops.mkldnn._convolution_pointwise_.binary(add, x, *then)
    else:
        found = torch.ops.mkldnn._convolution_pointwise.binary(x, add, *then)
    return found


def normed(
    conv: nn.Module,
    norm: nn.Module,
    x: Tensor,
    add: Tensor | None = None,
    *,
    relu: bool = True,
    overwrite: bool = False,
) -> Tensor:
    """relu(norm(conv(x)) + add), in as few passes as the norm and the machine allow. `overwrite`:
    what is added may be written over."""
    if is_frozen(conv, norm) or (is_in_eval_mode(norm) and folds(conv, x)):
        assert isinstance(norm, FrozenBatchNorm | nn.BatchNorm2d)
        assert isinstance(conv, nn.Conv2d)
        assert norm.running_var is not None
        assert norm.running_mean is not None
        factor = norm.weight * (norm.running_var + norm.eps).rsqrt()
        summand = norm.bias - norm.running_mean * factor
        return folded(conv, factor, summand, x, add=add, relu=relu, overwrite=overwrite)
    watched = is_watched(conv, norm)  # then nothing that they give is written over
    x = norm(conv(x))
    if add is not None:
        x = x + add if watched else x.add_(add)
    if not relu:
        return x
    return F.relu(x) if watched and add is None else F.relu_(x)


def is_frozen(conv: nn.Module, norm: nn.Module) -> bool:
    """Whether it is a plain convolution before a frozen norm, and nobody watches them: the norm is
    part of the convolution, also where the convolution learns."""
    return type(conv) is nn.Conv2d and type(norm) is FrozenBatchNorm and not is_watched(conv, norm)


def is_in_eval_mode(norm: nn.Module) -> bool:
    """Whether it is a batch norm in eval mode that nobody watches: then it is as a frozen one."""
    return (
        type(norm) is nn.BatchNorm2d
        and not norm.training
        and norm.track_running_stats
        and norm.affine
        and not is_watched(norm)
    )


class FastRoot(Root):
    def forward(self, x: Tensor) -> Tensor:
        return self.pool(normed(self.conv, self.norm, x))


class FastShortcut(Shortcut):
    def forward(self, x: Tensor) -> Tensor:
        return normed(self.conv, self.norm, x, relu=False)


class FastBasic(Basic):
    def forward(self, x: Tensor, overwrite: bool = False) -> Tensor:
        """overwrite: nobody needs x behind it."""
        out = normed(self.conv1, self.norm1, x)
        return normed(self.conv2, self.norm2, out, self.shortcut(x), overwrite=overwrite)


class FastBottleneck(Bottleneck):
    def forward(self, x: Tensor, overwrite: bool = False) -> Tensor:
        """overwrite: nobody needs x behind it."""
        out = normed(self.conv1, self.norm1, x)
        out = normed(self.conv2, self.norm2, out)
        return normed(self.conv3, self.norm3, out, self.shortcut(x), overwrite=overwrite)


class FastStage(nn.Sequential):
    """What one block gives, the next may write over, unless somebody watches it."""

    def forward(self, x: Tensor) -> Tensor:
        overwrite = False
        for block in self:
            x = block(x, overwrite) if isinstance(block, FastBasic | FastBottleneck) else block(x)
            overwrite = not is_watched(block)
        return x


class ChannelsLastRoot(Root):
    """A CPU's convolutions are faster with channels last."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(channels_last(x))


class ChannelsLastStem(ConvStem):
    def forward(self, images: Tensor) -> Tensor:
        return super().forward(channels_last(images) if len(self.layers) else images)


def channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last) if x.device.type == "cpu" else x
