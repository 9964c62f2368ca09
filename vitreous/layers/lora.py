"""LoRA: Low-Rank Adaptation (Hu et al. 2022).

A weight matrix W₀ (rows, columns) stays as it is, and W₀ + ΔW = W₀ + (α / r) B A takes its place
(section 4.1): A (r, columns) begins with random numbers and B (rows, r) with zeros, so that
nothing changes before the first step. Only A and B are trained. After it the sum is a matrix as
before, and the model costs what it did.
"""

from __future__ import annotations

import math

from torch import Tensor, nn
from torch.nn.utils import parametrize

from vitreous.layers.attention import Heads

SCALE = 2.0
"""α / r. With α proportional to r, the learning rate need not change with the rank."""
PARTS = ("original", "0.a", "0.b")
"""What torch calls W₀, A and B behind `….parametrizations.weight.`"""


class LowRank(nn.Module):
    """W₀ -> W₀ + (α / r) B A."""

    def __init__(self, weight: Tensor, rank: int) -> None:
        super().__init__()
        rows, columns = weight.shape
        self.a = nn.Parameter(weight.new_empty(rank, columns))
        self.b = nn.Parameter(weight.new_zeros(rows, rank))
        nn.init.normal_(self.a, std=1 / math.sqrt(columns))

    def forward(self, weight: Tensor) -> Tensor:
        return weight + SCALE * (self.b @ self.a)


def add_lora(model: nn.Module, rank: int) -> list[nn.Parameter]:
    """Adapt every attention's qkv and projection; returns the factors. All else is as before."""
    attentions = [module for module in model.modules() if isinstance(module, Heads)]
    factors: list[nn.Parameter] = []
    for linear in (each for module in attentions for each in (module.qkv, module.projection)):
        low_rank = LowRank(linear.weight, rank)
        parametrize.register_parametrization(linear, "weight", low_rank)
        factors += low_rank.parameters()
    return factors


def merge_lora(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """A state dict with W₀ + ΔW in place of the three, under the name that W₀ had; any other as it
    is."""
    merged: dict[str, Tensor] = {}
    for name, tensor in state.items():
        layer, inside, part = name.partition(".parametrizations.weight.")
        if not inside:
            merged[name] = tensor
        elif part == PARTS[0]:
            weight, a, b = (state[f"{layer}{inside}{each}"] for each in PARTS)
            merged[f"{layer}.weight"] = weight + SCALE * (b @ a)
    return merged
