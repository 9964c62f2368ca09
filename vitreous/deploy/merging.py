"""What token merging gains and costs: speed, agreement with the same model without it, and points
lost on labelled data.

All numbers of merged tokens take turns on the same batches, so that other work on the machine slows
all of them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vitreous.data.loader import Batch
from vitreous.predict import Predictor
from vitreous.tasks.task import Engine, TaskMetrics

ROUNDS = 10
"""In which all take turns to be timed; the best time counts."""


@dataclass(frozen=True)
class Merged:
    """A model whose blocks merge so many patches each, beside the one that merges none."""

    merge: int
    images_per_second: float
    speed: float
    """As a multiple of that without merging."""
    agreement: float
    """How far the predictions are those without merging, in the mean, from 0 to 1."""
    score: float | None = None
    """The metric that decides, on labelled data,"""
    points_lost: float | None = None
    """and how much worse than without merging, in hundredths."""


class Comparison:
    """Compares one model at several numbers of merged tokens, 0 among them, batch by batch."""

    def __init__(self, predictors: Mapping[int, Predictor], main: int = 0) -> None:
        self.predictors, self.main, self.count = dict(sorted(predictors.items())), main, 0
        self.task = predictors[0].task
        self.metrics: dict[int, TaskMetrics] = {
            r: self.task.metrics() for r in predictors if r != main
        }
        self.agreed = dict.fromkeys(self.predictors, 0.0)
        self.timed: Tensor | None = None
        """The images of the first batch."""

    def see(self, batch: Batch, output: Any, targets: Any) -> None:
        """A batch with the output of the main one: the `see` of its `evaluate`."""
        outputs = {self.main: output}
        for r, metrics in self.metrics.items():
            outputs[r] = self.task.infer(self.predictors[r].engine, batch.images, batch.sizes)
            metrics.update(outputs[r], targets)
        self._agree(outputs, batch.ids)
        if self.timed is None:
            self.timed = torch.stack(list(batch.images))

    def add(self, images: Tensor, sizes: Sequence[tuple[int, int]]) -> None:
        """Images (b, c, h, w) without labels."""
        engines = {r: predictor.engine for r, predictor in self.predictors.items()}
        outputs = {r: self.task.infer(engine, images, sizes) for r, engine in engines.items()}
        self._agree(outputs, [""] * len(images))
        self.timed = images if self.timed is None else self.timed

    def _agree(self, outputs: Mapping[int, Any], names: Sequence[str]) -> None:
        results = {r: self.task.decode(output, list(names)) for r, output in outputs.items()}
        for r, found in results.items():
            pairs = zip(results[0], found, strict=True)
            self.agreed[r] += sum(plain.agreement(merged) for plain, merged in pairs)
        self.count += len(names)

    def found(self, result: Mapping[str, Any] | None = None) -> list[Merged]:
        """By how much is merged; `result` is what the main one's `evaluate` gave, if labels are
        known."""
        assert self.timed is not None
        engines = {r: predictor.engine for r, predictor in self.predictors.items()}
        seconds = timed(engines, self.timed)
        scores: dict[int, float | None] = dict.fromkeys(engines)
        if result is not None:
            primary = self.task.metric.key
            scores |= {r: each.compute(each.counts())[primary] for r, each in self.metrics.items()}
            scores[self.main] = result[primary]
        return [
            Merged(
                r,
                len(self.timed) / seconds[r],
                seconds[0] / seconds[r],
                self.agreed[r] / max(self.count, 1),
                score,
                self._points(scores[0], score),
            )
            for r, score in scores.items()
        ]

    def _points(self, plain: float | None, merged: float | None) -> float | None:
        if plain is None or merged is None:
            return None
        return float(self.task.metric.points(plain - merged, plain))


@torch.inference_mode()
def timed(engines: Mapping[int, Engine], images: Tensor, rounds: int = ROUNDS) -> dict[int, float]:
    """The best seconds of each for one batch."""
    taken: dict[int, list[float]] = {r: [] for r in engines}
    for _ in range(rounds + 1):
        for r, engine in engines.items():
            began = time.perf_counter()
            engine(images)
            taken[r].append(time.perf_counter() - began)
    return {r: min(each[1:]) for r, each in taken.items()}  # the first warms up
