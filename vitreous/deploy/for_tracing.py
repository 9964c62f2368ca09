"""A model as its graph should be: what engines need that are not torch, put on from outside."""

from __future__ import annotations

import torch
from torch import Tensor

from vitreous.engines.accelerate import plain, use_channels_last
from vitreous.engines.fewer_tokens import skip_unread
from vitreous.engines.swap import put_on
from vitreous.layers.attention import Heads
from vitreous.models.model import Model


class ContiguousHeads(Heads):
    """Other engines lay out the fused kernel's output in another way than torch does."""

    def join(self, x: Tensor) -> Tensor:
        x = x.transpose(1, 2).clone(memory_format=torch.contiguous_format)
        return super().join(x.transpose(1, 2))


def for_tracing(model: Model) -> Model:
    """Without what is fast in torch alone."""
    plain(model)
    for module in model.modules():
        put_on(module, ContiguousHeads)
    use_channels_last(model)
    return skip_unread(model)
