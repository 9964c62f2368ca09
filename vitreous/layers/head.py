"""From what the encoder gives to class scores. Every parameter here begins with `head.`.

Each kind is a record, which a config holds, and the module that it makes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from vitreous.config import Record


class HeadSizes(NamedTuple):
    """What a head may depend on."""

    dim: int
    """Width of what it sees."""
    classes: int
    mlp_dim: int = 0
    norm_eps: float = 1e-6


@dataclass(frozen=True)
class HeadConfig(Record):
    """The choice of a head."""

    kind: str = ""

    def make(self, sizes: HeadSizes) -> nn.Module:
        raise NotImplementedError


@dataclass(frozen=True)
class LinearHeadConfig(HeadConfig):
    """linear; projection (without bias, into a space shared with text); or none."""

    kind: Literal["linear", "projection", "none"] = "linear"

    def make(self, sizes: HeadSizes) -> nn.Module:
        if self.kind == "none":
            return nn.Identity()
        return LinearHead(sizes.dim, sizes.classes, bias=self.kind == "linear")


class LinearHead(nn.Module):
    """One linear layer: the paper's fine-tuning head, and without bias CLIP's projection."""

    def __init__(self, dim: int, classes: int, *, bias: bool = True) -> None:
        super().__init__()
        self.out = nn.Linear(dim, classes, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(x)


@dataclass(frozen=True)
class TanhHeadConfig(HeadConfig):
    """With a hidden layer, for pre-training."""

    kind: Literal["tanh"] = "tanh"
    hidden: int | None = None
    """Its width; that of the tokens unless given."""

    def make(self, sizes: HeadSizes) -> nn.Module:
        return TanhHead(sizes.dim, self.hidden or sizes.dim, sizes.classes)


class TanhHead(nn.Module):
    """Linear, tanh, linear: the paper's pre-training head (section 3.1)."""

    def __init__(self, dim: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(dim, hidden)
        self.out = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.hidden(x)))


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
