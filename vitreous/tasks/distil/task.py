"""Feature distillation: a student learns to give the vector that a teacher gives of an image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import torch.nn.functional as F
from torch import Tensor

from vitreous.data.source import Sample, Source
from vitreous.errors import ConfigError
from vitreous.labels import LabelMap
from vitreous.models.distil import Predicted, Student
from vitreous.models.model import Model
from vitreous.tasks.pretrain.method import PretrainDefaults, Pretraining
from vitreous.tasks.task import Engine, Sizes


class TaughtImage(NamedTuple):
    """One image, on the CPU."""

    loss: Tensor
    """(): 1 - the cosine of both vectors"""
    vector: Tensor
    """(d,): the teacher's vector, as predicted, with mean 0 and std 1"""


def distance(student: Predicted, teacher: Tensor) -> Tensor:
    """teacher (b, d) -> (b,): 1 - cosine. How long a vector is says little about its image."""
    wanted = (teacher.float() - student.mean) / student.std
    return 1 - F.cosine_similarity(student.vectors.float(), wanted, dim=1)


class Distil(Pretraining):
    """The teacher sees the same pixels as the student, in training also augmented (Beyer et al.
    2022), at its own size and with its own mean and std."""

    name = "distil"
    purpose = "an encoder, that gives what a teacher's encoder gives"
    families = ("distil",)
    predicted = ("vectors", "predicted vectors")
    defaults = PretrainDefaults("distil")
    options = frozenset(("teacher",))

    def __init__(self, labels: LabelMap | None = None, teacher: str = "") -> None:
        """teacher: its name, as `vitreous.load` takes it."""
        super().__init__(labels)
        self.teacher = teacher

    @classmethod
    def for_training(cls, recipe: Any, source: Source, samples: Sequence[Sample]) -> Self:
        return cls(teacher=recipe.teacher)

    @classmethod
    def fields_for(cls, teacher: Model | None) -> tuple[str, ...]:
        if teacher is None:
            raise ConfigError("distil needs a teacher: pass --teacher with a run or hf:OWNER/NAME")
        return (f"teacher_dim={teacher.core.vector_length()}",)

    @classmethod
    def prepare(cls, model: Model, vectors: Tensor) -> None:
        assert isinstance(model, Student)
        model.measure(vectors)

    def loss(
        self, output: Predicted, targets: Any, teacher: Tensor | None = None
    ) -> dict[str, Tensor]:
        assert teacher is not None
        return {"loss": distance(output, teacher).mean()}

    def infer(self, engine: Engine, images: Any, sizes: Sizes) -> list[TaughtImage]:
        output: Predicted = engine(images)
        losses = distance(output, self.ask(images.to(output.vectors.device)))
        return [TaughtImage(*each) for each in zip(losses.cpu(), output.vectors.cpu(), strict=True)]

    def decoding(self, result: dict[str, Any]) -> dict[str, Any]:
        return {"teacher": self.teacher}

    @classmethod
    def restored(cls, labels: LabelMap, decoding: dict[str, Any]) -> Self:
        return cls(teacher=decoding.get("teacher", ""))


TASK = Distil
