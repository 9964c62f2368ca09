"""How alike images and texts are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitreous.layers.head import HeadConfig, HeadSizes


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


@dataclass(frozen=True)
class SimilarityHeadConfig(HeadConfig):
    """How alike an image is to the words for each class, whose vectors a text tower has given."""

    kind: Literal["similarity"] = "similarity"
    dim: int | None = None
    """Dimensions of the space that images and texts share, if there is a projection into it."""

    def make(self, sizes: HeadSizes) -> nn.Module:
        return SimilarityHead(sizes.dim, sizes.classes, self.dim)


class SimilarityHead(nn.Module):
    """W · Px / |Px| + b for x (…, d) -> (…, classes): a zero-shot classifier (CLIP, section 3.1.2).

    P is the image tower's projection, if it has one. A row of W is t · y, with y of length one for
    the words of a class; t and b are those of `Similarity`, b none in CLIP and 0 here. Training may
    go on from there (Wortsman et al. 2022, section 3).
    """

    def __init__(self, dim: int, classes: int, projected: int | None = None) -> None:
        super().__init__()
        self.projection = (
            nn.Identity() if projected is None else nn.Linear(dim, projected, bias=False)
        )
        self.words = nn.Linear(projected or dim, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.words(F.normalize(self.projection(x), dim=-1))
