"""A model as this machine computes it fastest, and as it was.

`accelerate(model)` gives its modules other classes, in place: parameters, their names, the
`state_dict` and hooks stay, and the outputs are the same up to rounding. `plain(model)` undoes it.
A module that somebody has replaced is left alone; where somebody watches a layer that would be
computed together with another (a forward hook), they are computed one after the other.
"""

from __future__ import annotations

from typing import TypeVar

from torch import nn

from vitreous.engines.attention import CachedWindows, FastAttention, FastHeads
from vitreous.engines.convolution import (
    ChannelsLastRoot,
    ChannelsLastStem,
    FastBasic,
    FastBottleneck,
    FastRoot,
    FastShortcut,
    FastStage,
)
from vitreous.engines.fewer_tokens import skip_unread
from vitreous.engines.linear import FastLinear, FastMlp, put_on_linears
from vitreous.engines.positions import CachedPosition
from vitreous.engines.swap import put_on, take_off
from vitreous.layers.residual import Trunk
from vitreous.models.resnet import ResNet

M = TypeVar("M", bound=nn.Module)
FAST: tuple[type[nn.Module], ...] = (
    *(FastHeads, FastAttention, CachedWindows, CachedPosition, FastMlp),
    *(FastRoot, FastShortcut, FastBasic, FastBottleneck),
)
"""Each takes the place of the class that it is derived from."""
ALL = (*FAST, FastLinear, FastStage, ChannelsLastRoot, ChannelsLastStem)


def accelerate(model: M) -> M:
    for module in model.modules():
        for kind in FAST:
            put_on(module, kind)
    put_on_linears(model, FastLinear)
    for trunk in (module for module in model.modules() if isinstance(module, Trunk)):
        for stage in trunk.stages:
            put_on(stage, FastStage)
    use_channels_last(model)
    return skip_unread(model)


def plain(model: M) -> M:
    """What `accelerate` did is undone. Merged tokens stay merged."""
    for module in model.modules():
        take_off(module, ALL)
    return skip_unread(model, False)


def use_channels_last(model: nn.Module) -> None:
    """For all convolutions behind the first."""
    for module in model.modules():
        if isinstance(module, ResNet):
            put_on(module.root, ChannelsLastRoot)
        put_on(module, ChannelsLastStem)
