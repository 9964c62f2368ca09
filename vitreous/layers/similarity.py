"""How alike images and texts are."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class Similarity(nn.Module):
    """t · x yᵀ + b for vectors of length one, x (m, d) and y (n, d) -> (m, n).

    CLIP's figure 3 has no b, and learns the logarithm of t = 1 / temperature; SigLIP's algorithm 1
    learns b as well.
    """

    def __init__(self, temperature: float, bias: float | None = None) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(-math.log(temperature)))
        self.bias = None if bias is None else nn.Parameter(torch.tensor(float(bias)))

    @property
    def scale(self) -> Tensor:
        """t."""
        return self.log_scale.exp()

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        scores = self.scale * x @ y.T
        return scores if self.bias is None else scores + self.bias
