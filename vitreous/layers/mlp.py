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
from vitreous.layers.linear import linear, linear_gelu
from vitreous.layers.recompute import cheap


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


NARROW, PIECE = 128, 1 << 20
"""Up to which width an MLP is cut into pieces on a CPU, and of how many numbers inside."""


@dataclass(frozen=True)
class MlpConfig(Record):
    """What may differ in an MLP of some width and activation."""

    norm: bool = False
    """LayerNorm inside, behind its activation (EVA-02)."""
    out_activation: Annotated[bool, HIDDEN, Uncommon((True,))] = False
    """Whether the activation also follows the second layer, as in Keras' example."""


class Mlp(nn.Module):
    """Linear, activation, linear: (…, dim) -> (…, dim), `hidden` wide inside.

    `norm` puts a LayerNorm before the second linear layer (EVA-02), `activate_out` the activation
    behind it as well.
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
        activate_out: bool = False,
    ) -> None:
        super().__init__()
        self.activate_out = activate_out
        self.fc1 = nn.Linear(dim, gates(activation) * hidden)
        self.activation = ACTIVATIONS[activation]
        self.norm = nn.LayerNorm(hidden, eps=norm_eps) if norm else nn.Identity()
        self.fc2 = nn.Linear(hidden, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        pieces = self._pieces(x)
        if pieces > 1:
            return torch.cat([self._run(piece) for piece in x.chunk(pieces, dim=-2)], dim=-2)
        return self._run(x)

    def _run(self, x: Tensor) -> Tensor:
        fc1, fc2 = self.fc1, self.fc2
        if self.activation is F.gelu:
            x = linear_gelu(x, fc1.weight, fc1.bias)
        else:
            x = cheap(self.activation, linear(x, fc1.weight, fc1.bias))
        x = linear(cheap(self.norm, self.dropout(x)), fc2.weight, fc2.bias)
        return self.dropout(self.activation(x) if self.activate_out else x)

    def _pieces(self, x: Tensor) -> int:
        """Into how many pieces to cut the tokens, which do not know of each other here.

        On a CPU a narrow MLP over many tokens (Swin's first stage) waits for memory, not for
        arithmetic: in pieces that fit the cache it takes half the time. Wide ones do not gain.
        """
        if x.device.type != "cpu" or torch.is_grad_enabled() or torch.compiler.is_compiling():
            return 1
        inside = x.numel() // x.shape[-1] * self.fc1.out_features
        narrow = self.fc1.in_features <= NARROW
        return -(-inside // PIECE) if narrow and inside > 4 * PIECE else 1
