"""What a lower precision costs: points of the task's metric on the user's own images.

Both models see the same images, by the one path of evaluation. Where images have no labels, their
predictions are compared: no more points can be lost than predictions differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from vitreous.data.source import Sample, Source
from vitreous.errors import VitreousError
from vitreous.predict import Predictor
from vitreous.tasks.task import Engine

Log = Callable[[str], None]
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

    @property
    def text(self) -> str:
        agree = f"predictions agree to {self.agreement:.2%} on {self.images:,} images"
        if not self.metric:
            return f"{agree}, which have no labels"
        lost = f"{self.points:.2f} points lost" if self.points >= 0 else f"{-self.points:.2f} won"
        return f"{self.metric} {self.value:.4f}, in float32 {self.float32:.4f}: {lost}; {agree}"


def measured_loss(reference: Predictor, engine: Engine, trial: Trial, log: Log) -> Loss:
    """Of the engine against the predictor, on the images of a trial."""
    task = reference.task
    if not (trial.labelled and task.primary):
        return _compared(reference, engine, trial)
    metrics, same, count = task.metrics(), 0.0, 0

    def see(batch: Any, output: Any, targets: Any) -> None:
        nonlocal same, count
        found = task.infer(engine, batch.images, batch.sizes)
        metrics.update(found, targets)
        names = list(batch.ids)
        both = zip(task.decode(output, names), task.decode(found, names), strict=True)
        same += sum(one.agreement(other) for one, other in both)
        count += len(names)

    source = copy(trial.source)
    source.splits = {"test": trial.measured}
    try:
        wanted = reference.evaluate(source, "test", see=see)
    except VitreousError as error:
        if count:
            raise
        log(f"{source.name} has no labels for this model, so predictions are compared: {error}")
        return _compared(reference, engine, trial)
    before, after = wanted[task.primary], metrics.compute(metrics.counts())[task.primary]
    if before is None or after is None:
        return _compared(reference, engine, trial)
    points = 100 * (after - before if task.lower_is_better else before - after)
    return Loss(task.primary_name, before, after, points, same / count, count)


def _compared(reference: Predictor, engine: Engine, trial: Trial) -> Loss:
    images = (trial.source.image(sample) for sample in trial.measured)
    agreement = agreement_of(reference, engine, images)
    return Loss("", None, None, 100 * (1 - agreement), agreement, len(trial.measured))


def agreement_of(reference: Predictor, engine: Engine, images: Iterable[Tensor]) -> float:
    """How far predictions for images as they are stored are the same, in the mean, from 0 to 1."""
    task, each = reference.task, []
    for image in images:
        values, size = reference.prepare(image)[None], [(image.shape[1], image.shape[2])]
        ours, theirs = (
            task.decode(task.infer(one, values, size), ["image"])[0]
            for one in (reference.engine, engine)
        )
        each.append(ours.agreement(theirs))
    return sum(each) / max(len(each), 1)
