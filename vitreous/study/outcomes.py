"""How good a model is on a split, with what is known of its single images: what two models on the
same images, and one arm of a study, are judged by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vitreous.data.source import Source
from vitreous.measure import Answered
from vitreous.predict import Predictor
from vitreous.progress import Log, silent
from vitreous.study.statistics import Difference, of_draws
from vitreous.tasks.bootstrap import Interval, Intervals, differences
from vitreous.tasks.metric import Metric
from vitreous.tasks.task import Task, TaskMetrics


class ImageAnswer(NamedTuple):
    """What a model answers for one image, and what is true."""

    id: str
    result: Any
    """As the task decodes it."""
    target: Any
    """In the model's classes."""


@dataclass
class Outcomes:
    """What the metrics of a task have seen; images stay in their order."""

    task: Task
    ids: list[str] = field(default_factory=list)
    metrics: TaskMetrics = field(init=False)

    def __post_init__(self) -> None:
        self.metrics = self.task.metrics()

    def see(self, answered: Answered) -> None:
        self.metrics.update(answered.output, answered.targets)
        self.ids += answered.batch.ids

    @cached_property
    def numbers(self) -> dict[str, Any]:
        """As `evaluate` has them, when all images have been seen."""
        return self.metrics.compute(self.metrics.counts())

    @cached_property
    def intervals(self) -> Intervals:
        """95 %, of the main numbers."""
        return self.metrics.intervals()

    @cached_property
    def draws(self) -> dict[str, Tensor]:
        """Of the main numbers, (draws,): what other draws of the images give (`bootstrap.py`)."""
        blocks = list(self.metrics.resampled())
        names = blocks[0] if blocks else ()
        return {name: torch.cat([block[name] for block in blocks]) for name in names}

    @cached_property
    def each(self) -> list[float]:
        """Of each image how good its answer is by itself, by the task's `image_metric`; or none."""
        return [float(value) for value in self.metrics.each()]

    def value(self, metric: Metric) -> float | None:
        found = self.numbers.get(metric.key)
        return None if found is None else float(found)

    def interval(self, metric: Metric) -> Interval | None:
        return self.intervals.get(metric.key)


def paired_difference(a: Outcomes, b: Outcomes, metric: Metric) -> Difference | None:
    """a minus b on the same images, by the bootstrap; None where the task keeps too little of
    single images for that, or the metric is not known."""
    ours, theirs = a.value(metric), b.value(metric)
    if a.ids != b.ids or ours is None or theirs is None:
        return None
    return of_draws(ours - theirs, differences([a.draws], [b.draws], metric.key))


def outcomes_of(
    predictor: Predictor,
    source: Source,
    split: str,
    *,
    batch: int | None = None,
    workers: int = 0,
    log: Log = silent,
) -> Outcomes:
    """Of a predictor on a split of a source, by the path of `evaluate`: one pass, and no answer is
    kept."""
    found = Outcomes(predictor.task)
    for answered in predictor.answers(source, split, batch, workers, log, lean=True):
        found.see(answered)
    return found


def answers_beside(
    predictors: Sequence[Predictor],
    source: Source,
    split: str,
    found: Sequence[Outcomes],
    *,
    batch: int | None = None,
    workers: int = 0,
    log: Log = silent,
) -> Iterator[list[ImageAnswer]]:
    """Image by image the answers of several models, each by its own preprocessing; `found` has the
    outcomes of each when all are done."""

    def answers(predictor: Predictor, outcomes: Outcomes) -> Iterator[ImageAnswer]:
        for each in predictor.answers(source, split, batch, workers, log):
            outcomes.see(each)
            results = predictor.task.decode(each.output, each.batch.ids)
            yield from map(ImageAnswer, each.batch.ids, results, each.targets)

    for beside in zip(*map(answers, predictors, found), strict=True):
        yield list(beside)
