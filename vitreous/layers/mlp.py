"""The position-wise network of a transformer block, and its activations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitreous.config import HIDDEN, PARTLY_HIDDEN, Record, Uncommon
from vitreous.layers.tap import show


def quick_gelu(x: Tensor) -> Tensor:
    """x · sigmoid(1.702 x), the approximation that OpenAI's CLIP was trained with."""
    return x * torch.sigmoid(1.702 * x)


def silu_gated(x: Tensor) -> Tensor:
    """silu(gate) · value for x = [gate, value] (Shazeer 2020, SwiGLU)."""
    gate, value = x.chunk(2, dim=-1)
    return F.silu(gate) * value


Activation = Annotated[
    Literal["gelu", "gelu-tanh", "quick-gelu", "relu", "leaky-relu", "silu", "tanh", "silu-gated"],
    PARTLY_HIDDEN,
    Uncommon(("leaky-relu", "silu", "tanh")),
]
ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu-tanh": partial(F.gelu, approximate="tanh"),
    "quick-gelu": quick_gelu,
    "relu": F.relu,
    "leaky-relu": F.leaky_relu,
    "silu": F.silu,
    "tanh": torch.tanh,
    "silu-gated": silu_gated,
}


def gates(activation: Activation) -> int:
    """How many numbers of the layer before make one behind it."""
    return 2 if activation == "silu-gated" else 1


@dataclass(frozen=True)
class MlpConfig(Record):
    """What may differ in an MLP of some width and activation."""

    norm: bool = False
    """LayerNorm inside, behind its activation (EVA-02)."""
    out_activation: Annotated[bool, HIDDEN, Uncommon((True,))] = False
    """Whether the activation also follows the second layer, as in Keras' example."""


class Mlp(nn.Module):
    """Linear, activation, linear: (…, dim) -> (…, dim), `hidden` wide inside.

    `norm` puts a LayerNorm before the second linear layer (EVA-02).
    """

    def __init__(
        self,
        dim: int,
        hidden: int,
        *,
        activation: Activation = "gelu",
        norm: bool = False,
        norm_eps: float = 1e-6,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, gates(activation) * hidden)
        self.activation = ACTIVATIONS[activation]
        self.norm = nn.LayerNorm(hidden, eps=norm_eps) if norm else nn.Identity()
        self.fc2 = nn.Linear(hidden, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = show(self, "activated", self.activation(self.fc1(x)), inside=True)
        x = self.norm(self.dropout(x))
        return self.dropout(self.fc2(x))
