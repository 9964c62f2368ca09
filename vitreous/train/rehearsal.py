"""Before a long run: what would happen (`--dry-run`), a good learning rate (`--lr-find`).

Both prepare everything as the run itself would, and leave no run folder behind.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from vitreous.config import to_dict
from vitreous.data.loader import Batch, train_batches
from vitreous.data.preprocess import Preprocess
from vitreous.data.source import Problem
from vitreous.engines.summary import summarise
from vitreous.labels import LabelMap
from vitreous.models import create, family_of
from vitreous.progress import Log, silent
from vitreous.run_folder import Run
from vitreous.tasks.data_check import bad_samples
from vitreous.train.build_model import find_start, wrapped
from vitreous.train.distributed import joined
from vitreous.train.open_data import NOTHING, FromPython, absolute, advising, open_named
from vitreous.train.optimizer import lr_factor
from vitreous.train.recipe import Recipe, seconds
from vitreous.train.run import planned_preprocess, prepare
from vitreous.train.threads import computing_threads
from vitreous.train.trainer import NotFiniteError, Trainer, TrainingError
from vitreous.weights.blank import without_values

DECADES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
"""The learning rates that `find_lr` tries first."""
WARM, TIMED = 2, 4
"""Steps before a run's pace is measured, and for that."""
NEARLY = 0.05
"""By which fraction of the largest fall of the loss another fall may be smaller and be as good."""


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


def dry_run(recipe: Recipe, log: Log, own: FromPython = NOTHING) -> Rehearsal:
    """One step of a run that is thrown away, and every image read once."""
    source = open_named(recipe, own.source)
    with joined(recipe.device) as world:
        named = wrapped(absolute(recipe))
        start = None if recipe.weights is None else find_start(named)
        bad = bad_samples(
            source,
            max_pixels=recipe.max_pixels,
            channels=recipe.channels,
            choose_preprocess=planned_preprocess(named, world, start),
        )
    if bad:  # the step is taken with what remains; the run itself would stop, or skip them as well
        recipe = replace(recipe, on_bad="skip")
    images = sum(map(len, source.splits.values()))
    with _trainer(recipe, log, own) as trainer:
        batch = _first_batches(trainer, 1)[0]
        last = trainer.steps - 1  # when all of the model is trained
        kept = 0

        def keep(tensor: Tensor) -> Tensor:
            nonlocal kept
            kept += tensor.nbytes
            return tensor

        def see_input(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            keep(inputs[0])

        trainer.learner.see_kept = keep
        for module in trainer.learner.checkpointed:
            module.register_forward_pre_hook(see_input)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            trainer.fitting_step(last, batch)
        trainer.learner.see_kept = None
        began = time.perf_counter()
        trainer.fitting_step(last, batch)
        step = time.perf_counter() - began
        in_time = None if recipe.time is None else max(int(seconds(recipe.time) / step), 1)
        steps = in_time or trainer.steps
        computed = trainer.order.steps_per_epoch if trainer.stores_features else steps
        total = sum(p.numel() for p in trainer.model.parameters())
        learning = sum(p.numel() for p in trainer.learner.trained)
        state = 4 * (total * (2 if trainer.learner.average else 1) + 3 * learning)
        return Rehearsal(
            *(total, learning, steps, batch, trainer.task.name, trainer.task.labels),
            *(trainer.train_set.preprocess, state + kept, step * computed, images, bad),
        )


@dataclass(frozen=True)
class Pace:
    """What a run costs."""

    seconds: float
    """For all steps, by a few of them here."""
    images: int
    """That are seen in training, each time counted."""
    parameters: int
    flops: int
    """Of the forward of one image."""


def pace(recipe: Recipe, log: Log) -> Pace:
    """A few steps of a run that is thrown away, with the images that they read."""
    with _trainer(recipe, log, NOTHING) as trainer:
        trainer.order.start, trainer.order.stop = 0, min(WARM + TIMED, trainer.steps)
        began, step = time.perf_counter(), 0
        with advising(trainer.recipe):
            for batch in train_batches(trainer.train_set, trainer.order, 0):
                if step == WARM:
                    began = time.perf_counter()
                trainer.fitting_step(step, batch)
                step += 1
        each = (time.perf_counter() - began) / max(step - WARM, 1)
        in_time = None if recipe.time is None else seconds(recipe.time)
        steps = trainer.steps if in_time is None else max(int(in_time / each), 1)
        with without_values():
            blank = create(family_of(trainer.model), **to_dict(trainer.model.config))
        flops = sum(row.flops for row in summarise(blank))
        total = sum(p.numel() for p in trainer.model.parameters())
        return Pace(in_time or each * steps, steps * trainer.batch, total, flops)


def find_lr(
    recipe: Recipe, log: Log, steps: int = 40, own: FromPython = NOTHING
) -> tuple[float, list[tuple[float, float]]]:
    """A learning rate to start with, and the loss that a short run ends with at each one tried.

    Short runs from the same start, with the same batches and the run's own schedule, instead of one
    run with a growing learning rate (Smith 2017): there, each loss depends on the learning rates
    before it, and the lowest one says little about which of them trains best. One learning rate per
    decade is tried, then the two beside the best.

    The advice is the lowest learning rate whose loss falls nearly as far as the best one. The first
    steps often lead to a plateau ("background everywhere"); all high learning rates reach it, and
    those that are too high never leave it.
    """
    with _trainer(recipe, log, own) as trainer:
        batches = _first_batches(trainer, steps)
        begin = {name: value.clone() for name, value in trainer.model.state_dict().items()}
        found = dict[float, float]()

        def advice() -> float:
            best = min(found.values())
            if not math.isfinite(best):
                raise TrainingError(
                    f"the loss is not finite at any learning rate from {min(found):.0e} on: look "
                    "at the images with 'vitreous data check', or try --precision float32"
                )
            fall = found[DECADES[0]] - best  # compared with hardly any training
            return min(lr for lr, loss in found.items() if loss <= best + NEARLY * fall)

        for lr in DECADES:
            found[lr] = _short_run(trainer, begin, batches, steps, lr)
        nearest = advice()
        for lr in (nearest / math.sqrt(10), nearest * math.sqrt(10)):
            found[lr] = _short_run(trainer, begin, batches, steps, lr)
        return advice(), sorted(found.items())


def _short_run(
    trainer: Trainer, begin: dict[str, Tensor], batches: list[Batch], steps: int, lr: float
) -> float:
    """The mean loss of the last quarter of its steps: single batches differ."""
    recipe, losses = trainer.recipe, list[float]()
    trainer.learner.restart(begin)
    schedule = {"warmup": recipe.warmup, "final": recipe.final_lr}
    head_steps = trainer.head_steps if trainer.head_steps < steps else 0
    for step in range(steps):
        scale = lr_factor(step, steps, **schedule, head_steps=head_steps)
        try:
            losses.append(trainer.fitting_step(step, batches[step % len(batches)], lr * scale))
        except NotFiniteError:
            return math.inf
    last = losses[-max(steps // 4, 1) :]
    mean = sum(last) / len(last)
    return mean if math.isfinite(mean) else math.inf


@contextmanager
def _trainer(recipe: Recipe, log: Log, own: FromPython) -> Iterator[Trainer]:
    with (
        tempfile.TemporaryDirectory() as folder,
        joined(recipe.device) as world,
        computing_threads(recipe.threads),
    ):
        quiet = log if world.is_first else silent
        yield prepare(recipe, Run(folder), world, quiet, own=own)[0]


def _first_batches(trainer: Trainer, count: int) -> list[Batch]:
    trainer.order.start, trainer.order.stop = 0, min(count, trainer.steps)
    with advising(trainer.recipe):
        return list(train_batches(trainer.train_set, trainer.order, 0))
