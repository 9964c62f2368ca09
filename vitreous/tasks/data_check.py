"""The data check with what the data's own task looks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from vitreous.data.check import report
from vitreous.data.check.report import CheckReport
from vitreous.data.check.truth_check import TaskChecks
from vitreous.data.decode.pixels import MAX_PIXELS
from vitreous.data.preprocess import Preprocess
from vitreous.data.source import Problem, Source
from vitreous.errors import ConfigError, DataError
from vitreous.tasks import task_for
from vitreous.tasks.defaults import glance_at


def check(
    source: Source, *, workers: int | None = None, max_pixels: int = MAX_PIXELS, **options: Any
) -> CheckReport:
    """Reads every image and its ground truth; what training would refuse is fatal.

    `options` are the task's own: for boxes `queries`, how many objects a model can find.
    """
    checks = task_checks(source, **options)
    return report.check(source, checks, workers=workers, max_pixels=max_pixels)


def task_checks(
    source: Source, choose_preprocess: Callable[[Source], Preprocess] | None = None, **options: Any
) -> TaskChecks:
    """What the task of a source gives to the data check."""
    task = task_for(source.truth_kind)
    try:
        truth = task.checker(**options)
    except TypeError:
        given = ", ".join(f"{name} = {value}" for name, value in options.items())
        raise ConfigError(f"{given} is not for data to {task.name}: leave it out") from None
    return TaskChecks(truth, check_trainable, choose_preprocess or usual_preprocess)


def usual_preprocess(source: Source) -> Preprocess:
    """As for a model that `train` chooses, if it is told nothing."""
    task = task_for(source.truth_kind)
    glance = glance_at(source, on_cpu=not torch.cuda.is_available())
    chosen = task.defaults.choose_model(source, glance)
    return task.defaults.choose_preprocess(chosen.image_size, glance.channels, resize=chosen.resize)


def check_trainable(source: Source) -> None:
    """Data that a model cannot be trained on is an error, for `train` and for the data check."""
    hints = {
        "train": "it can only be evaluated on",
        "val": "give some, or at least two images of each class, so that one can be held out",
    }
    for split, hint in hints.items():
        if not source.splits.get(split):
            raise DataError(f"{source.name} has no images in the split {split!r}: {hint}")
    task_for(source.truth_kind).check_trainable(source)


def bad_samples(
    source: Source,
    *,
    choose_preprocess: Callable[[Source], Preprocess] = usual_preprocess,
    **options: Any,
) -> dict[str, Problem]:
    """By id, the samples whose image or ground truth cannot be used, see `report.bad_samples`."""
    return report.bad_samples(source, task_checks(source, choose_preprocess), **options)
