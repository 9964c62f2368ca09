"""The table of tasks. Only the packages below know a task's name.

A task is a vertical slice, one package: `task.py` (ground truth, loss, decoding, metrics, defaults)
stands low in the import order, `show.py` (printing, drawing, report, explanation) stands high; both
are imported when they are asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vitreous.config import choice

if TYPE_CHECKING:
    from vitreous.tasks.task import Task

TASKS = {
    "classify": "class",
    "segment": "mask",
    "detect": "boxes",
    "tag": "labels",
}
"""The kind of ground truth that each task learns from."""


def task_class(name: str) -> type[Task]:
    """The task of this name."""
    return import_module(f"vitreous.tasks.{choice('task', name, TASKS)}.task").TASK


def show_of(name: str) -> Any:
    """The show side of a task: printing, drawing, report and explanation."""
    return import_module(f"vitreous.tasks.{choice('task', name, TASKS)}.show").SHOW


def task_for(truth_kind: str) -> type[Task]:
    """The task that data with this kind of ground truth is for."""
    return task_class(next(name for name, kind in TASKS.items() if kind == truth_kind))
