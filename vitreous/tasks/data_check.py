"""The data check with what the data's own task looks for."""

from __future__ import annotations

from typing import Any

from vitreous.data.check import report
from vitreous.data.check.report import CheckReport
from vitreous.data.decode.pixels import MAX_PIXELS
from vitreous.data.source import Problem, Source
from vitreous.errors import ConfigError
from vitreous.tasks import task_for


def check(
    source: Source, *, workers: int | None = None, max_pixels: int = MAX_PIXELS, **options: Any
) -> CheckReport:
    """Reads every image and its ground truth once.

    `options` are the task's own: for boxes `queries`, how many objects a model can find.
    """
    task = task_for(source.truth_kind)
    try:
        truth = task.checker(**options)
    except TypeError:
        given = ", ".join(f"{name} = {value}" for name, value in options.items())
        raise ConfigError(f"{given} is not for data to {task.name}: leave it out") from None
    limits = {"max_pixels": max_pixels, "least_classes": task.least_classes}
    return report.check(source, truth, workers=workers, **limits)


def bad_samples(source: Source, **options: Any) -> dict[str, Problem]:
    """By id, the samples whose image or ground truth cannot be used, see `report.bad_samples`."""
    return report.bad_samples(source, task_for(source.truth_kind).checker(), **options)
