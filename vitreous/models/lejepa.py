"""LeJEPA: Provable and Scalable Self-Supervised Learning Without the Heuristics (Balestriero and
LeCun 2025).

Several random views of an image go through one encoder and a small projector. The projections of
an image's views are to be alike, and those of all images together normally distributed, which
keeps them from being all the same (`tasks/lejepa`). There is no teacher, no moving average and no
stopped gradient. After that the projector is thrown away, and the encoder is fine-tuned.

The paper's projector has batch norms. This one has none: statistics of small batches are noisy,
and those of several processes differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor, nn

from vitreous.errors import ConfigError
from vitreous.layers.tap import show
from vitreous.models.composite import Composite, EncoderConfig
from vitreous.models.model import Model


@dataclass(frozen=True)
class LeJEPAConfig(EncoderConfig):
    """What is pre-trained."""

    core_defaults = {}  # noqa: RUF012

    views: int = 2
    """How many random views of each image are compared in training."""
    regularisation: float = 0.02
    """The weight of SIGReg in the loss; λ in the paper."""
    projector_mlp_dim: int = 256
    """Width of the projector's two hidden layers."""
    projector_dim: int = 64
    """Width of the projections."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.views < 2:
            raise ConfigError(f"views = {self.views}: expected at least 2, to be compared")
        if not 0 < self.regularisation < 1:
            raise ConfigError(
                f"regularisation = {self.regularisation}: expected a number between 0 and 1"
            )


class Projected(NamedTuple):
    """The projections of b images, v views each."""

    views: Tensor
    """(b, v, d)"""
    regularisation: float
    """Of the loss that the model is made for."""


class LeJEPA(Composite):
    """(b, v, c, h, w) -> `Projected`; images (b, c, h, w) are a single view."""

    def __init__(self, config: LeJEPAConfig, encoder: Model) -> None:
        super().__init__(config, encoder)
        hidden = config.projector_mlp_dim
        self.projector = nn.Sequential(
            nn.Linear(encoder.vector_length(), hidden),
            nn.GELU(),
            nn.Linear(hidden, hidden),
            nn.GELU(),
            nn.Linear(hidden, config.projector_dim),
        )

    def forward(self, images: Tensor) -> Projected:
        views = images if images.ndim == 5 else images[:, None]
        vectors = show(self, "encoder", self.core.vectors(views.flatten(0, 1)))  # (b·v, d)
        found = self.projector(vectors).unflatten(0, (len(images), views.shape[1]))
        return Projected(found, self.config.regularisation)
