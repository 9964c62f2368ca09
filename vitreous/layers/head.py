"""From all tokens of an image to what the head sees (ViT, equation 4), and to class scores.

Each kind of pooling and of head is a record, which a config holds, and the module that it makes.
Pooling by attention is in `cross_attention.py`, and what published models do not have in
`uncommon.py`. Every parameter of a head begins with `head.`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from vitreous.config import Record
from vitreous.layers.mlp import Activation


class PoolSizes(NamedTuple):
    """What a pooling may depend on."""

    dim: int
    prefix: int
    """Tokens before the patches."""
    heads: int
    head_dim: int
    mlp_dim: int
    activation: Activation
    norm_eps: float


@dataclass(frozen=True)
class PoolConfig(Record):
    """The choice of a pooling."""

    kind: str = ""
    learned: ClassVar[bool] = False
    """Whether it has parameters."""

    @property
    def reads(self) -> int | None:
        """How many leading tokens it reads, where it reads no others."""
        return None

    def width(self, dim: int, tokens: int) -> int:
        """Channels of what it gives for so many tokens of this width."""
        return dim

    def make(self, sizes: PoolSizes) -> nn.Module:
        raise NotImplementedError


@dataclass(frozen=True)
class TokenPoolConfig(PoolConfig):
    """Which tokens the head sees: class (the class token), mean (of the patches), class+mean (side
    by side), both (class and distillation token, DeiT), none (all)."""

    kind: Literal["class", "mean", "class+mean", "both", "none"] = "class"

    @property
    def reads(self) -> int | None:
        return {"class": 1, "both": 2}.get(self.kind)

    def width(self, dim: int, tokens: int) -> int:
        return 2 * dim if self.kind == "class+mean" else dim

    def make(self, sizes: PoolSizes) -> nn.Module:
        return TokenPool(self.kind, sizes.prefix)


class TokenPool(nn.Module):
    """(b, n, d) -> (b, d), or several tokens of it. See `TokenPoolConfig`."""

    def __init__(self, kind: str, prefix: int) -> None:
        super().__init__()
        self.kind, self.prefix = kind, prefix

    def forward(self, x: Tensor) -> Tensor:
        match self.kind:
            case "class":
                return x[:, 0]
            case "both":
                return x[:, :2]
            case "mean":
                return x[:, self.prefix :].mean(dim=1)
            case "class+mean":
                return torch.cat((x[:, 0], x[:, self.prefix :].mean(dim=1)), dim=-1)
        return x


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
