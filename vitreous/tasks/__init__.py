"""The table of tasks. Only the packages below know a task's name.

A task is a vertical slice, one package: `task.py` (ground truth, loss, decoding, metrics)
stands low in the import order, `show.py` (printing, drawing, report, explanation) stands high; both
are imported when they are asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vitreous.config import choice
from vitreous.errors import ConfigError

if TYPE_CHECKING:
    from vitreous.tasks.task import Task

TASKS = {
    "classify": "class",
    "segment": "mask",
    "detect": "boxes",
    "tag": "labels",
    "instance": "instances",
}
"""The kind of ground truth that each task learns from."""
PACKAGES: dict[str, str] = {}
"""Where the package of a task is that is not one of ours: see `add_task`."""
HEADLESS = "features"
"""The task of models without a head, which learns from nothing."""
RECIPES = {"mae": "mae", "lejepa": "lejepa", "distil": "distil-features"}
"""The recipe of each method of `vitreous pretrain`: what applies unless options say otherwise."""
PRETRAINING = tuple(RECIPES)
"""The methods, the usual one first: tasks that learn from images alone."""
UNLABELLED = "none"
"""The kind of ground truth that they need."""


def add_task(name: str, truth: str, package: str) -> None:
    """A row for a task of your own: the kind of ground truth that it learns from, and the package
    with its `task.py` and `show.py`. A program that uses its runs adds it first."""
    TASKS[name], PACKAGES[name] = truth, package


def _module(task: str, side: str) -> Any:
    name = choice("task", task, (*TASKS, HEADLESS, *PRETRAINING))
    return import_module(f"{PACKAGES.get(name, f'vitreous.tasks.{name}')}.{side}")


def task_class(name: str) -> type[Task]:
    """The task of this name."""
    found: type[Task] = _module(name, "task").TASK
    return found


def show_of(name: str) -> Any:
    """The show side of a task: printing, drawing, report and explanation."""
    return _module(name, "show").SHOW


def truth_kind_of(task: str) -> str:
    """The kind of ground truth that a task needs to be evaluated."""
    if task == HEADLESS:
        raise ConfigError(
            "this model has no head, so it predicts no classes that could be evaluated: train one, "
            "with this run as --weights"
        )
    return UNLABELLED if task in PRETRAINING else TASKS[task]


def task_for(truth_kind: str) -> type[Task]:
    """The task that data with this kind of ground truth is for; without any, what all methods of
    pre-training share."""
    if truth_kind == UNLABELLED:
        return import_module("vitreous.tasks.pretrain.method").Pretraining
    return task_class(next(name for name, kind in TASKS.items() if kind == truth_kind))


def task_of_model(
    family: str, config: Any = None, *, headless: bool = False, truth_kind: str | None = None
) -> str:
    """The name of the task that a model of this family is made for; of several the one that needs
    what is on in its config, the one with this kind of ground truth, or the usual one."""
    for name in PRETRAINING:
        if family in task_class(name).families:
            return name
    if headless:
        return HEADLESS
    able = [name for name in TASKS if task_class(name).takes(family)]
    for name in able:
        if task_class(name).required and task_class(name).has_required(config):
            return name
    return next((name for name in able if TASKS[name] == truth_kind), able[0])
