"""`vitreous train`: a recipe, with the options that override it, becomes a run folder."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.api.arguments import Data, Folder, is_named, source_of, to_stderr
from vitreous.config import checked
from vitreous.errors import ConfigError
from vitreous.progress import Log, silent
from vitreous.train.recipe import NO_RECIPE, Recipe, default_recipe, find_recipe, read_recipe

if TYPE_CHECKING:
    from vitreous.data.source import Source
    from vitreous.run_folder import Run
    from vitreous.tasks.verdict import Verdict
    from vitreous.train.open_data import FromPython
    from vitreous.train.rehearsal import Rehearsal


@dataclass(frozen=True)
class TrainedRun:
    """A run folder that `train` wrote. Every function that takes a run folder takes it."""

    path: Path
    metric: str = ""
    """The metric that decides which weights are kept."""
    split: str = ""
    """What `metrics` were measured on: test, else val."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """As `evaluate` gives them, with intervals, baselines and verdicts."""

    @property
    def verdicts(self) -> list[Verdict]:
        """What the metrics mean and what to do next, the worst first."""
        from vitreous.tasks.verdict import Verdict

        return [Verdict(**each) for each in self.metrics.get("verdicts", ())]

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        if not self.metrics:
            return f"TrainedRun({str(self.path)!r})"
        value = self.metrics[self.metric]
        return f"TrainedRun({str(self.path)!r}: {self.metric} {value:.4f} on {self.split})"


def pretrain(
    data: Data = None,
    *,
    method: str | None = None,
    recipe: Folder | Recipe | None = None,
    out: Folder | None = None,
    resume: bool = False,
    progress: bool = True,
    augment: Callable[..., Any] | None = None,
    **options: Any,
) -> TrainedRun:
    """Pre-train an encoder without labels, into the run folder `out`, which `train` takes as
    `weights`.

    `data` is any folder of images, or what `train` takes: then labels are only used to measure how
    good the features are. `method` is mae unless given; distil also needs a `teacher`. Everything
    else is as in `train`; a `model` may be any that classifies, which becomes the encoder.
    """
    from vitreous.tasks import PRETRAINING

    stated = recipe.method if isinstance(recipe, Recipe) else None
    if not resume:
        options["method"] = method or stated or PRETRAINING[0]
    return _train(data, recipe, out, resume, progress, augment, options)


def train(
    data: Data = None,
    *,
    recipe: Folder | Recipe | None = None,
    out: Folder | None = None,
    resume: bool = False,
    progress: bool = True,
    augment: Callable[..., Any] | None = None,
    **options: Any,
) -> TrainedRun:
    """Train or fine-tune a model, into the run folder `out` (runs/NAME), and write its report.

    `options` are the fields of a recipe, which `vitreous train --help` describes: model, weights,
    epochs, batch, lr, … They override those of `recipe`, a file or a name in recipes/; with
    weights to start from it is fine-tune unless given, and "none" means none. With
    `resume`, the run in `out` continues where it stopped. `progress` is shown on stderr.

    `data` is a path or a built-in name, or what Python has: a list of (image, target), a torch
    Dataset of such, a dict with one for each of train, val and test. An image is a path, array, PIL
    image or tensor; a target is a class, a set of them, a mask or a dict of boxes and labels (see
    `vitreous.data.formats.python_data`). `augment` is a function of an image (c, h, w) as it is
    stored, or of the image and its ground truth, which gives the same back; it runs before the
    augmentation of the recipe. The run folder cannot keep either: to resume, give them again.
    """
    return _train(data, recipe, out, resume, progress, augment, {"method": None} | options)


def _train(
    data: Data,
    recipe: Folder | Recipe | None,
    out: Folder | None,
    resume: bool,
    progress: bool,
    augment: Callable[..., Any] | None,
    options: dict[str, Any],
) -> TrainedRun:
    began = time.perf_counter()  # importing torch takes seconds
    from vitreous.api.report import write_report
    from vitreous.tasks import task_class
    from vitreous.train.progress import TrainingProgress
    from vitreous.train.run import train as fit

    folder = None if out is None else Path(out)
    with TrainingProgress() if progress else nullcontext() as bar:
        shown: dict[str, Any] = {}
        if bar is not None:
            shown = {"log": bar.line, "watch": bar.event, "show": bar}
        log = shown.get("log", silent)
        settings, own = _settings(data, recipe, out, resume, options, augment, log)
        reports: list[tuple[str, dict[str, Any]]] = []

        def report(run: Run, source: Source) -> None:
            if bar is not None:
                bar.stop()
            reports.append(write_report(run, source, log=log, progress=bar is not None)[1:])

        run = fit(settings, folder, resume=resume, report=report, own=own, began=began, **shown)
    if not reports:
        return TrainedRun(run.path)  # of several processes the first one writes
    split, metrics = reports[-1]
    metric = task_class(run.read_config().task).metric.key
    return TrainedRun(run.path, metric, split, metrics)


def dry_run(
    data: Data = None,
    *,
    recipe: Folder | Recipe | None = None,
    out: Folder | None = None,
    log: Log | None = None,
    augment: Callable[..., Any] | None = None,
    **options: Any,
) -> tuple[Rehearsal, Path]:
    """What `train` would do, after one step: choices, shapes, memory, time, unreadable images; and
    a picture of the first batch, beside where the run would be."""
    from vitreous.pages.batch import batch_figure
    from vitreous.pages.figure import save
    from vitreous.train.claim import folder_names
    from vitreous.train.rehearsal import dry_run as rehearse

    settings, own = _settings(data, recipe, None, False, options, augment, log or to_stderr)
    free = (path for path in folder_names(settings.data) if not path.exists())
    folder = next(free) if out is None else Path(out)
    found = rehearse(settings, log or to_stderr, own)
    picture = folder.with_name(f"{folder.name}-first-batch.png")
    figure = batch_figure(found.batch, found.task, found.labels, found.preprocess)
    return found, save(figure, picture)


def find_lr(
    data: Data = None,
    *,
    recipe: Folder | Recipe | None = None,
    log: Log | None = None,
    augment: Callable[..., Any] | None = None,
    **options: Any,
) -> tuple[float, list[tuple[float, float]]]:
    """A learning rate to start with, and the loss after a short run with each one tried."""
    from vitreous.train.rehearsal import find_lr as search

    settings, own = _settings(data, recipe, None, False, options, augment, log or to_stderr)
    return search(settings, log or to_stderr, own=own)


def stored_values(
    recipe: Folder | None, out: Folder | None = None, resume: bool = False
) -> dict[str, Any]:
    """The fields that a recipe file sets, or with `resume` those of the run in `out`."""
    if not resume:
        none = recipe is None or recipe == NO_RECIPE
        return {} if none else read_recipe(find_recipe(str(recipe)))
    if recipe is not None:
        raise ConfigError("--resume continues with the run's own recipe: leave out --recipe")
    if out is None:
        raise ConfigError("which run should be resumed? pass --out RUN")
    path = Path(out) / "recipe.toml"
    if not path.exists():
        raise ConfigError(f"{out} has no run to resume")
    return read_recipe(path)


def check_method(method: Any, *, pretrains: bool) -> None:
    """A recipe with a method is for `pretrain`, and one with a task for `train`."""
    if method is not None and not pretrains:
        raise ConfigError(f"method = {method!r}: this recipe is for 'vitreous pretrain'")


def _settings(
    data: Data,
    recipe: Folder | Recipe | None,
    out: Folder | None,
    resume: bool,
    options: Mapping[str, Any],
    augment: Callable[..., Any] | None,
    log: Log,
) -> tuple[Recipe, FromPython]:
    """The recipe with options from Python in place, those that may be repeated are added; and what
    it cannot hold."""
    from vitreous.data.augment import OwnAugment
    from vitreous.data.formats.python_data import FROM_PYTHON
    from vitreous.train.open_data import FromPython

    given = {**({} if data is None else {"data": data}), **options}
    names = None
    if program := data is not None and not is_named(data):
        given["data"] = FROM_PYTHON
        names = given.pop("names", None)  # also a list or a dict
    own = None if augment is None else OwnAugment(augment)
    if own is not None:
        given["augment"] = own.name
    given = checked(Recipe, {name: _plain(name, value) for name, value in given.items()})
    if isinstance(recipe, Recipe):
        base = recipe
    else:
        if recipe is None and not resume:
            weights, lora, method = (given.get(name) for name in ("weights", "lora", "method"))
            recipe = default_recipe(weights, lora, method, log)
        base = Recipe(**stored_values(recipe, out, resume))
    if "method" in given:
        check_method(base.method, pretrains=given["method"] is not None)
    for name in ("fields", "freeze"):
        if name in given:
            given[name] = (*getattr(base, name), *given[name])
    settings = replace(base, **given)
    source = source_of(data, settings, names) if program else None
    return settings, FromPython(source, own)


def _plain(name: str, value: Any) -> Any:
    """A value from Python as recipe files have it."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if name == "fields" and isinstance(value, Mapping):
        return tuple(f"{field}={json.dumps(each)}" for field, each in value.items())
    return (value,) if name == "image_size" and isinstance(value, int) else value
