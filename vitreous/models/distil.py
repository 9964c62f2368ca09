"""A student of another model's features, as in FitNets (Romero et al. 2015), for whole images.

The teacher gives a vector for each image; the student, any encoder, learns to give the same behind
one linear layer, which makes the widths equal (`tasks/distil`). No labels are needed, and the
teacher's classes do not matter. After that the layer is thrown away.

What all of a teacher's vectors have in common, and dimensions that are much larger than others,
would hide how they differ from image to image: mean and std of each dimension, measured on some
images, are taken out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from vitreous.layers.tap import show
from vitreous.models.composite import Composite, EncoderConfig
from vitreous.models.model import Model


@dataclass(frozen=True)
class StudentConfig(EncoderConfig):
    """What is trained."""

    core_defaults = {}  # noqa: RUF012

    teacher_dim: int = 768
    """Width of the teacher's vectors."""


class Predicted(NamedTuple):
    """What a student gives for b images."""

    vectors: Tensor
    """(b, d): the teacher's vectors, with mean 0 and std 1,"""
    mean: Tensor
    """(d,): and what these are"""
    std: Tensor
    """(d,): of the teacher's own."""


class Student(Composite):
    """(b, c, h, w) -> `Predicted`: the teacher's vector of each image."""

    teacher_mean: Tensor
    teacher_std: Tensor

    def __init__(self, config: StudentConfig, encoder: Model) -> None:
        super().__init__(config, encoder)
        self.projection = nn.Linear(encoder.vector_length(), config.teacher_dim)
        self.register_buffer("teacher_mean", torch.zeros(config.teacher_dim))
        self.register_buffer("teacher_std", torch.ones(config.teacher_dim))

    def measure(self, vectors: Tensor) -> None:
        """vectors (n, teacher_dim): of the teacher, for some images."""
        self.teacher_mean.copy_(vectors.mean(dim=0))
        std = vectors.std(dim=0, correction=0)
        # a dimension that hardly ever differs must not decide alone where it once does
        self.teacher_std.copy_(std.clamp(min=max(std.mean().item() / 10, 1e-6)))

    def forward(self, images: Tensor) -> Predicted:
        vectors = show(self, "encoder", self.core.vectors(images))  # (b, d)
        return Predicted(self.projection(vectors), self.teacher_mean, self.teacher_std)
