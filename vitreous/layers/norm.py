"""The norms of a transformer block: which one, and where it stands.

Each kind is a record, which a config holds, and the module that it makes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from torch import Tensor, nn

from vitreous.config import HIDDEN, TRAINING, Check, Record, Uncommon

Place = Annotated[
    Literal["pre", "post", "stream", "pre+stream"], HIDDEN, Uncommon(("stream", "pre+stream"))
]
PLACES = ("pre", "post", "stream", "pre+stream")


@dataclass(frozen=True)
class NormConfig(Record):
    """The choice of a norm."""

    kind: str = ""
    place: Place = "pre"
    """Before attention and MLP on their branch (pre), behind the sum (post), or before them on the
    residual stream itself (stream): x = LN(x), then x + f(x). pre+stream: pre for attention, stream
    for the MLP (compact transformers)."""

    def make(self, dim: int, eps: float) -> nn.Module:
        raise NotImplementedError


@dataclass(frozen=True)
class LayerNormConfig(NormConfig):
    """Each token by itself (the ViT paper)."""

    kind: Literal["layer"] = "layer"

    def make(self, dim: int, eps: float) -> nn.Module:
        return nn.LayerNorm(dim, eps=eps)


@dataclass(frozen=True)
class BatchNormConfig(NormConfig):
    """Each channel by itself, over batch and tokens."""

    kind: Annotated[Literal["batch"], Uncommon(("batch",))] = "batch"
    momentum: Annotated[
        float, TRAINING, Check(lambda value: 0 < value <= 1, "a number above 0, up to 1")
    ] = 0.1
    """How much of a batch goes into the running statistics."""

    def make(self, dim: int, eps: float) -> nn.Module:
        return BatchNorm(dim, eps=eps, momentum=self.momentum)


class BatchNorm(nn.BatchNorm1d):
    """(x - μ) / √(σ² + ε) · γ + β, with μ and σ² of each channel over the batch and its tokens, and
    in eval mode with running ones (Ioffe and Szegedy 2015): (b, n, d) -> (b, n, d)."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(0, -2)).view_as(x)  # of (b·n, d)
