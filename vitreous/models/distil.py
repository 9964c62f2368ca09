"""A student of another model's features, as in FitNets (Romero et al. 2015), for whole images.

The teacher gives a vector for each image; the student, any encoder, learns to give the same behind
one linear layer, which makes the widths equal (`tasks/distil`). No labels are needed, and the
teacher's classes do not matter. After that the layer is thrown away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from vitreous.config import Size
from vitreous.models.model import Composite, CompositeConfig, Features, Model, Shapes


@dataclass(frozen=True)
class StudentConfig(CompositeConfig):
    """What is trained."""

    part = "encoder"
    core_defaults = {}  # noqa: RUF012

    image_size: Size = 224
    channels: int = 3
    encoder: str = "vit-s/16"
    """The name of any model that classifies."""
    encoder_fields: dict[str, Any] = field(default_factory=dict)
    """Changes to the encoder's config; on the command line `--set encoder.depth=6`."""
    teacher_dim: int = 768
    """Width of the teacher's vectors."""


class Student(Composite):
    """(b, c, h, w) -> (b, teacher_dim): the teacher's vector of each image, predicted."""

    classwise = ()

    def __init__(self, config: StudentConfig, encoder: Model) -> None:
        super().__init__(config, encoder)
        self.projection = nn.Linear(encoder.vector_length(), config.teacher_dim)

    def forward(self, images: Tensor) -> Tensor:
        predicted: Tensor = self.projection(self.core.vectors(images))
        return predicted

    def features(self, images: Tensor, blocks: Iterable[int] | None = None) -> Features:  # type: ignore[override]
        found, _ = self.core_features(images, blocks)
        return found._replace(output=self(images))

    @classmethod
    def fields_of(cls, shapes: Shapes, axes: Mapping[str, int]) -> list[dict[str, Any]]:
        weight = shapes.get("projection.weight")
        return [{"teacher_dim": weight[0]}] if weight else []
