"""From what the encoder gives to class scores. Every parameter here begins with `head.`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from vitreous.layers.mlp import ACTIVATIONS, Activation, gates


class LinearHead(nn.Module):
    """One linear layer: the paper's fine-tuning head, and without bias CLIP's projection."""

    def __init__(self, dim: int, classes: int, *, bias: bool = True) -> None:
        super().__init__()
        self.out = nn.Linear(dim, classes, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(x)


class TanhHead(nn.Module):
    """Linear, tanh, linear: the paper's pre-training head (section 3.1)."""

    def __init__(self, dim: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(dim, hidden)
        self.out = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.hidden(x)))


class MlpHead(nn.Module):
    """LayerNorm (or none), linear, activation, linear. With several widths in `hidden`, as many
    linear layers with activation: `hidden`, `hidden2` …"""

    def __init__(
        self,
        dim: int,
        hidden: Sequence[int],
        classes: int,
        norm_eps: float,
        *,
        norm: bool = True,
        activation: Activation = "gelu",
    ) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim, eps=norm_eps) if norm else nn.Identity()
        self.names = ["hidden", *(f"hidden{k}" for k in range(2, len(hidden) + 1))]
        for name, before, width in zip(self.names, (dim, *hidden), hidden, strict=False):
            self.add_module(name, nn.Linear(before, width * gates(activation)))
        self.activation = ACTIVATIONS[activation]
        self.out = nn.Linear(hidden[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        for name in self.names:
            x = self.activation(self.get_submodule(name)(x))
        return self.out(x)


class DistilledOutput(NamedTuple):
    """What a distilled model gives while it trains; each (b, classes).

    `class_logits` learn from the labels, `distillation_logits` from the teacher. In eval mode the
    model gives their mean, as one tensor.
    """

    class_logits: Tensor
    distillation_logits: Tensor


class DistilledHead(nn.Module):
    """Two linear heads, for the class and the distillation token (DeiT section 4)."""

    def __init__(self, dim: int, classes: int) -> None:
        super().__init__()
        self.out = nn.Linear(dim, classes)
        self.distillation = nn.Linear(dim, classes)

    def forward(self, x: Tensor) -> Tensor | DistilledOutput:
        """x (b, 2, d) -> (b, classes), or both while training."""
        both = DistilledOutput(self.out(x[:, 0]), self.distillation(x[:, 1]))
        return both if self.training else (both.class_logits + both.distillation_logits) / 2
