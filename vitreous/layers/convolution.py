"""Convolution, batch norm, sum and ReLU in one pass, where nothing is learned and it is faster.

A batch norm that is at rest is a factor and a summand of each channel, which can be part of the
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

from vitreous.layers.onednn import fits, packed

WORK = 1 << 22
"""Multiplications from which on it is worth looking for the packed weight."""


def folds(conv: nn.Module, x: Tensor) -> TypeGuard[nn.Conv2d]:
    """Whether one pass takes the place of several: of a plain convolution that nobody watches."""
    return (
        type(conv) is nn.Conv2d
        and conv.bias is None
        and conv.padding_mode == "zeros"
        and isinstance(conv.padding, tuple)
        and not conv._forward_hooks
        and not conv._forward_pre_hooks
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
    spent: bool = False,
) -> Tensor:
    """relu(conv(x) · factor + summand + add), with a factor and a summand for each channel; the
    convolution has no bias of its own. `spent`: nobody needs `add` behind it, and the result may be
    written over it; to write large maps into fresh memory takes longer."""
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
    if spent and add.is_contiguous(memory_format=torch.channels_last):
        found = torch.ops.mkldnn._convolution_pointwise_.binary(add, x, *then)
    else:
        found = torch.ops.mkldnn._convolution_pointwise.binary(x, add, *then)
    return found
