"""Regression: one number per image."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from vitreous.data.check.truth_check import InspectedTruth, TruthCheck, TruthReport
from vitreous.data.truth import Truth
from vitreous.errors import DataError
from vitreous.labels import LabelMap
from vitreous.tasks.bootstrap import resampled
from vitreous.tasks.metric import Metric
from vitreous.tasks.task import Task, TaskMetrics
from vitreous.tasks.verdict import Baseline

KILOGRAMS = "kg"


class NumberTruth(Truth):
    """A number for the image as a whole; it is of no class."""

    def classes(self, truth):
        return ()

    def target(self, truth, size):
        return torch.tensor(float(truth))


class NumberCheck(TruthCheck):
    def inspect(self, source, sample, size):
        if not math.isfinite(number := source.truth(sample, size)):
            raise DataError(f"{number} is not a finite number")
        return InspectedTruth(digest=number)

    def report(self, source, good):
        return TruthReport(classes={})

    def differs(self, one, other, names):
        return f"{one.truth.digest:g} here, {other.truth.digest:g} there"


@dataclass(frozen=True)
class Estimate:
    """The result for one image."""

    value: float
    image: str = ""

    def agreement(self, other: Estimate) -> float:
        """From 0 to 1: how close two estimates are, by the larger one."""
        return 1 - min(abs(self.value - other.value) / max(abs(self.value), abs(other.value)), 1)

    def to_dict(self):
        return {"image": self.image, "value": self.value}


class Mean(Baseline):
    """The same for every image: the mean of the training images."""

    name = "the mean"

    def __init__(self) -> None:
        self.seen: list[Tensor] = []

    def learn(self, batch, targets):
        self.seen.append(targets)

    def answer(self, batch):
        return torch.cat(self.seen).mean().expand(len(batch.ids))


class ErrorMetrics(TaskMetrics):
    """The mean absolute error."""

    def __init__(self) -> None:
        self.errors: list[Tensor] = []

    def update(self, output, targets):
        self.errors.append((output - targets).abs())

    def counts(self):
        return torch.cat(self.errors) if self.errors else torch.zeros(0)

    def merge(self, parts):
        return torch.cat(list(parts))

    def compute(self, counts):
        return {"mae": counts.mean().item(), "samples": len(counts)}

    def each(self):
        return self.counts()

    def resampled(self) -> Iterator[dict[str, Tensor]]:
        errors = self.counts().double()
        for weights in resampled(len(errors)):
            yield {"mae": weights @ errors / len(errors)}


class Regress(Task):
    """The squared error of the model's one output, of numbers with mean 0 and standard deviation 1.

    The run folder keeps both, so that predictions are in the data's own unit."""

    name = "regress"
    purpose = "one number per image"
    metric = Metric(
        "mae", "mean absolute error", range=(0, math.inf), lower_is_better=True, unit=KILOGRAMS
    )
    truth = NumberTruth()
    checker = NumberCheck

    def __init__(self, labels: LabelMap, mean: float = 0.0, std: float = 1.0) -> None:
        super().__init__(labels)
        self.mean, self.std = mean, std

    @classmethod
    def for_training(cls, recipe, source, samples):
        numbers = torch.tensor([source.truth(sample) for sample in samples])
        return cls(source.labels, numbers.mean().item(), numbers.std().item())

    def decoding(self, result):
        return {"mean": self.mean, "std": self.std}

    @classmethod
    def restored(cls, labels, decoding):
        return cls(labels, **decoding)

    @classmethod
    def outputs(cls, labels: LabelMap) -> tuple[str, ...]:
        return ("weight",)

    def loss(self, output, targets, teacher=None):
        return {"loss": (output[:, 0].float() - (targets - self.mean) / self.std).square().mean()}

    def infer(self, engine, images, sizes):
        return engine(images)[:, 0].float().cpu() * self.std + self.mean

    def decode(self, output, images):
        return [Estimate(*each) for each in zip(output.tolist(), images, strict=True)]

    def metrics(self):
        return ErrorMetrics()

    def baselines(self):
        return [Mean()]


TASK = Regress
