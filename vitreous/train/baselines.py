"""What knows nothing, measured by the same metrics as the model.

It depends on the data alone, and on no model or its preprocessing: whichever command asks, the same
images give the same numbers. Where there are too many images, it takes some that are drawn by
chance, always the same ones, and `Compared.note` says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitreous.data.loader import Batch, EvalSet, Item, eval_batches
from vitreous.data.preprocess import Preprocess
from vitreous.data.source import Sample, Source
from vitreous.errors import DataError
from vitreous.tasks.task import Log, Task
from vitreous.tasks.verdict import Baseline

MOST_IMAGES = 5_000
"""That are read to learn from, and to measure on: seconds of reading;"""
MOST_PIXELS = 500_000_000
"""or until these have so many pixels."""
SIDE = 32
"""Height and width at which pixels are compared."""
AT_ONCE = 8
"""Masks may be large."""


@dataclass(frozen=True)
class Compared:
    """A baseline, and how it was measured."""

    name: str
    looks: bool
    """Whether it looks at images. Else it gives the same answer for all of them."""
    numbers: dict[str, Any]
    """The task's metrics."""
    note: str
    """What of the data it has seen, where that is not all."""


def compare(
    task: Task,
    source: Source,
    split: str,
    *,
    trained: bool,
    here: Sequence[int] | None = None,
    workers: int = 0,
    log: Log = lambda text: None,
) -> list[Compared]:
    """The task's baselines on a split, the strongest first.

    trained: the source's training images are what a model has learned from, and so do they. Else
    they learn from the ground truth of the images that they are measured on: no answer that is the
    same for all images can be better. `here` gives the model's class for each of the data's.
    """
    measuring = _Reading(task, source, source.splits[split], here, workers)
    if trained and split != "train" and source.splits.get("train"):
        learning = _Reading(task, source, source.splits["train"], here, workers)
        try:
            return [
                _compared(task, baseline, learning, measuring, "") for baseline in task.baselines()
            ]
        except DataError as error:  # of images that the model is not measured on
            log(f"not compared with training images: {error}")
    return [
        _compared(task, baseline, measuring, measuring, " in these images")
        for baseline in task.baselines()
        if not baseline.copies
    ]


def _compared(
    task: Task, baseline: Baseline, learning: _Reading, measuring: _Reading, suffix: str
) -> Compared:
    learned, measured, metrics = 0, 0, task.metrics()
    for batch in learning.batches(baseline.copies):
        baseline.learn(batch, batch.targets)
        learned += len(batch.ids)
    for batch in measuring.batches(baseline.copies):
        metrics.update(baseline.answer(batch), batch.targets)
        measured += len(batch.ids)
    notes = [
        f"{what} {done:,} of {len(reading.samples):,} images, drawn by chance"
        for what, done, reading in (
            ("learned from", learned, learning),
            ("measured on", measured, measuring),
        )
        if done < len(reading.samples) and (what == "measured on" or learning is not measuring)
    ]
    numbers = metrics.compute(metrics.counts())
    plain = {name: value for name, value in numbers.items() if isinstance(value, int | float)}
    return Compared(
        baseline.name + suffix,
        baseline.copies,
        {**plain, "learned_from": learned},
        "; ".join(notes),
    )


@dataclass
class _Reading:
    """The images of a split as baselines take them; `copies`: with thumbnails."""

    task: Task
    source: Source
    samples: Sequence[Sample]
    here: Sequence[int] | None
    workers: int

    def batches(self, copies: bool) -> Iterator[Batch]:
        found = self._read() if copies or not self.task.truth.stays else self._targets()
        for batch in found:
            targets = batch.targets
            if self.here is not None:
                targets = self.task.renamed(targets, self.here)
            yield batch._replace(targets=targets)

    def _targets(self) -> Iterator[Batch]:
        """All of them: where ground truth has no places, no image is needed."""
        read, truth = self.task.truth.read, self.task.truth
        for first in range(0, len(self.samples), 1024):
            some = self.samples[first : first + 1024]
            targets = torch.stack(
                [torch.as_tensor(truth.reference(read(self.source, s), (1, 1))) for s in some]
            )
            yield Batch(None, targets, [s.id for s in some], [(1, 1)] * len(some))

    def _read(self) -> Iterator[Batch]:
        """At most MOST_IMAGES, and until MOST_PIXELS have been read."""
        some = drawn(self.samples, MOST_IMAGES)
        images = Thumbnails(self.source, some, thumbnail, self.task.truth)
        pixels = 0
        for batch in eval_batches(images, AT_ONCE, self.workers):
            yield batch
            pixels += sum(height * width for height, width in batch.sizes)
            if pixels > MOST_PIXELS:
                return


def drawn(samples: Sequence[Sample], most: int) -> list[Sample]:
    """All of them in their order, or so many by chance: the same ones every time."""
    if len(samples) <= most:
        return list(samples)
    order = np.random.default_rng(0).permutation(len(samples))[:most]
    return [samples[number] for number in order.tolist()]


def thumbnail(image: Tensor) -> Tensor:
    """(c, h, w) as stored -> (c, SIDE, SIDE) from 0 to 1; gray as RGB: some data has both."""
    channels = 3 if image.shape[0] == 1 else image.shape[0]
    fit = Preprocess((SIDE, SIDE), channels, resize="square", crop=1.0, mean=(0.0,), std=(1.0,))
    return fit(image)


@dataclass
class Thumbnails(EvalSet):
    """Images as `thumbnail` makes them. Large JPEGs are decoded at a part of their size."""

    def __getitem__(self, number: int) -> Item:
        sample = self.samples[number]
        try:
            image, full, _ = self.source.decode(sample, lambda height, width: (SIDE, SIDE))
            with self.source.naming(sample):
                small = self.preprocess(image)
            size = (full.height, full.width)
            target = self.moves.reference(self.moves.read(self.source, sample, full), size)
            return small, target, sample.id, size
        except DataError as error:
            return error
