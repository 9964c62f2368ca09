"""Before a long run: what would happen (`--dry-run`), and which rate to take (`--lr-find`).

Both prepare everything as the run itself would, and leave no run folder behind.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vitreous.data.loader import Batch, train_batches
from vitreous.data.preprocess import Preprocess
from vitreous.data.source import Problem
from vitreous.labels import LabelMap
from vitreous.run_folder import Run
from vitreous.tasks.data_check import bad_samples
from vitreous.train.distributed import joined
from vitreous.train.open_data import open_named
from vitreous.train.recipe import Recipe
from vitreous.train.run import prepare
from vitreous.train.trainer import Trainer, TrainingError

Log = Callable[[str], None]


@dataclass(frozen=True)
class Rehearsal:
    """What a dry run found."""

    parameters: int
    learning: int
    """Parameters that are not frozen."""
    steps: int
    batch: Batch
    """The first one."""
    task: str
    labels: LabelMap
    preprocess: Preprocess
    bytes_needed: int
    """Weights, gradients, the optimiser's and the average's state, and what one step keeps."""
    seconds: float
    """For all steps, by the time that one takes here."""
    images: int
    bad: dict[str, Problem]
    """By id, the samples whose images cannot be read."""


def dry_run(recipe: Recipe, log: Log) -> Rehearsal:
    """One step of a run that is thrown away, and every image read once."""
    source = open_named(recipe)
    bad = bad_samples(source, max_pixels=recipe.max_pixels, channels=recipe.channels)
    if bad:  # the step is taken with what remains; the run itself would stop, or skip them as well
        recipe = replace(recipe, on_bad="skip")
    images = sum(map(len, source.splits.values()))
    with _trainer(recipe, log) as trainer:
        batch = _first_batches(trainer, 1)[0]
        kept = 0

        def keep(tensor: Tensor) -> Tensor:
            nonlocal kept
            kept += tensor.nbytes
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            trainer.step(0, batch)
        began = time.perf_counter()
        trainer.step(1, batch)
        seconds = (time.perf_counter() - began) * trainer.steps
        parameters = list(trainer.model.parameters())
        total = sum(p.numel() for p in parameters)
        learning = sum(p.numel() for p in parameters if p.requires_grad)
        state = 4 * (total * (2 if trainer.average else 1) + 3 * learning)
        return Rehearsal(
            *(total, learning, trainer.steps, batch, trainer.task.name, trainer.task.labels),
            *(trainer.train_set.preprocess, state + kept, seconds, images, bad),
        )


def find_rate(recipe: Recipe, log: Log, steps: int = 80) -> tuple[float, list[tuple[float, float]]]:
    """A learning rate to start with, and the losses over growing rates (Smith 2017).

    The rate grows from 1e-6 to 1 until the smoothed loss, having fallen, does not fall any more;
    the advice is a tenth of the rate at which it was lowest.
    """
    with _trainer(recipe, log) as trainer:
        batches = _first_batches(trainer, steps)
        curve: list[tuple[float, float]] = []
        lowest, worse = (0.0, math.inf), 0
        for step in range(steps):
            rate = 1e-6 * 10 ** (6 * step / (steps - 1))
            try:
                loss = trainer.step(step, batches[step % len(batches)], rate)
            except TrainingError:
                break  # the loss is not finite any more
            smooth = loss if not curve else 0.8 * curve[-1][1] + 0.2 * loss
            curve.append((rate, smooth))
            worse = 0 if smooth < lowest[1] else worse + 1
            lowest = min(lowest, curve[-1], key=lambda point: point[1])
            if worse >= 4 and lowest[1] < 0.98 * curve[0][1]:
                break
    return lowest[0] / 10, curve


@contextmanager
def _trainer(recipe: Recipe, log: Log) -> Iterator[Trainer]:
    with tempfile.TemporaryDirectory() as folder, joined(recipe.device) as world:
        yield prepare(recipe, Run(folder), world, log, lambda event: None)[0]


def _first_batches(trainer: Trainer, count: int) -> list[Batch]:
    trainer.order.start, trainer.order.stop = 0, min(count, trainer.steps)
    return list(train_batches(trainer.train_set, trainer.order, 0))
