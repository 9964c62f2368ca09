"""What a lower precision costs: points of the task's metric on the user's own images.

Both models see the same images, by the one path of evaluation. Where images have no labels, their
predictions are compared: no more points can be lost than predictions differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vitreous.data.source import Sample, Source
from vitreous.errors import VitreousError
from vitreous.measure import same_answers
from vitreous.predict import Predictor
from vitreous.progress import Log
from vitreous.tasks.bootstrap import Interval, differences, interval, resampled
from vitreous.tasks.task import Engine, Task
from vitreous.wording import counted

Prepared = tuple[Tensor, tuple[int, int]]
"""An image as a model takes it, and its height and width as it is stored."""
CALIBRATED = 256
"""Images that are enough to find the ranges of activations."""
MEASURED = 1000
"""Images that are measured on, at most."""


@dataclass(frozen=True)
class Trial:
    """Images of the user, some to calibrate with and others to measure on."""

    source: Source
    calibration: Sequence[Sample]
    measured: Sequence[Sample]
    labelled: bool = True

    @classmethod
    def of(cls, source: Source, most: int = MEASURED) -> Trial:
        """Of train to calibrate, of test, else val, to measure; data with one split is divided."""
        there = {name: list(samples) for name, samples in source.splits.items() if len(samples)}
        held = next((there[name] for name in ("test", "val") if name in there), None)
        train = there.get("train", held)
        assert train is not None
        if held is None or held is train:
            train, held = train[::2], train[1::2] or train
        labelled = source.truth_kind != "none"
        return cls(source, evenly(train, CALIBRATED), evenly(held, most), labelled)

    def images(self, count: int) -> list[Tensor]:
        """(c, h, w) each, as they are stored, of those to measure on."""
        return [self.source.image(sample) for sample in evenly(self.measured, count)]


def evenly(samples: Sequence[Sample], count: int) -> list[Sample]:
    """At most so many, from everywhere."""
    step = max(len(samples) / count, 1)
    return [samples[int(number * step)] for number in range(min(count, len(samples)))]


@dataclass(frozen=True)
class Loss:
    """Against float32."""

    metric: str
    """What people call it; empty where predictions were compared alone."""
    float32: float | None
    value: float | None
    """Of the metric, before and after."""
    points: float
    """Hundredths of the metric that are lost; without labels, of predictions that differ."""
    agreement: float
    images: int
    interval: Interval | None = None
    """95 % interval of the points, by the bootstrap: both models on the same draws of images."""

    def above(self, limit: float) -> bool:
        """Whether more points are lost: by more than chance, as far as so many images can tell."""
        if self.interval is None or math.isnan(self.points):
            return not self.points <= limit
        return self.interval[0] > limit

    @property
    def text(self) -> str:
        agree = f"predictions agree to {self.agreement:.2%} on {counted(self.images, 'image')}"
        if not self.metric:
            return f"{agree}, which have no labels{self._between}"
        lost = f"{self.points:.2f} points lost" if self.points >= 0 else f"{-self.points:.2f} won"
        both = f"{self.metric} {self.value:.4f}, in float32 {self.float32:.4f}"
        return f"{both}: {lost}{self._between}; {agree}"

    @property
    def _between(self) -> str:
        if self.interval is None:
            return ""
        low, high = self.interval
        return f" (95 % interval of the points lost: {low:.2f} to {high:.2f})"


def measured_loss(reference: Predictor, engine: Engine, trial: Trial, log: Log) -> Loss:
    """Of the engine against the predictor, on the images of a trial."""
    task, metric = reference.task, reference.task.metric
    if not (trial.labelled and metric.key):
        return _compared(reference, engine, trial)
    beside = Beside(task, engine)
    source = copy(trial.source)
    source.splits = {"test": trial.measured}
    try:
        wanted = reference.evaluate(source, "test", see=beside.see)
    except VitreousError as error:
        if beside.agreements:
            raise
        log(f"{source.name} has no labels for this model, so predictions are compared: {error}")
        return _compared(reference, engine, trial)
    before, after = wanted[metric.key], beside.score
    if before is None or after is None:
        return _compared(reference, engine, trial)
    lost = differences(beside.exact.resampled(), beside.metrics.resampled(), metric.key)
    limits = interval(metric.points(lost, before))
    numbers = (before, after, metric.points(before - after, before), beside.agreement)
    return Loss(metric.name, *numbers, len(beside.agreements), limits)


class Beside:
    """Another engine, which answers the same batches as the model that is evaluated: its metrics,
    and how far the answers agree."""

    def __init__(self, task: Task, engine: Engine) -> None:
        self.task, self.engine = task, engine
        self.exact, self.metrics = task.metrics(), task.metrics()
        self.agreements: list[float] = []

    def see(self, batch: Any, output: Any, targets: Any) -> None:
        """The `see` of an evaluation."""
        found = self.task.infer(self.engine, batch.images, batch.sizes)
        self.exact.update(output, targets)
        self.metrics.update(found, targets)
        self.agreements += same_answers(self.task, output, found, batch.ids)

    @property
    def agreement(self) -> float:
        return sum(self.agreements) / max(len(self.agreements), 1)

    @property
    def score(self) -> float | None:
        """The metric that decides."""
        return self.metrics.compute(self.metrics.counts())[self.task.metric.key]


def _compared(reference: Predictor, engine: Engine, trial: Trial) -> Loss:
    images = (trial.source.image(sample) for sample in trial.measured)
    each = agreements(reference.task, reference.engine, engine, _prepared(reference, images))
    same = torch.tensor(each, dtype=torch.float64)
    drawn = [weights @ same / len(same) for weights in resampled(len(same))]
    agreement = same.mean().item()
    limits = interval(100 * (1 - torch.cat(drawn)))
    return Loss("", None, None, 100 * (1 - agreement), agreement, len(same), limits)


def agreement_of(reference: Predictor, engine: Engine, images: Iterable[Tensor]) -> float:
    """How far predictions for images as they are stored are the same, in the mean, from 0 to 1."""
    prepared = _prepared(reference, images)
    each = agreements(reference.task, reference.engine, engine, prepared)
    return sum(each) / max(len(each), 1)


def _prepared(predictor: Predictor, images: Iterable[Tensor]) -> Iterator[Prepared]:
    for image in images:
        yield predictor.prepare(image), (image.shape[1], image.shape[2])


def agreements(task: Task, one: Engine, other: Engine, images: Iterable[Prepared]) -> list[float]:
    """Of each image, how far the answers of two engines are the same."""
    each = []
    for values, size in images:
        ours, theirs = (task.infer(engine, values[None], [size]) for engine in (one, other))
        each += same_answers(task, ours, theirs, ["image"])
    return each
