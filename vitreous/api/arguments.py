"""What several functions take: their types, and data that a program has."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from vitreous.terminal import print
from vitreous.train.recipe import Recipe

if TYPE_CHECKING:
    from vitreous.data.source import Source

Folder = str | os.PathLike[str]
Data = Any
"""A path or a built-in name; or from Python a sequence of (image, target), a torch Dataset of such,
a dict with one for each of train, val and test, or a `Source`."""


def to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def python_source(data: Any, settings: Recipe, names: Any = None) -> Source:
    """Data that a program has, split by the recipe."""
    from vitreous.data.formats.python_data import from_python
    from vitreous.tasks import TASKS, UNLABELLED

    kind = None if settings.task is None else TASKS[settings.task]
    return from_python(
        data,
        truth=UNLABELLED if settings.method else kind,
        seed=settings.seed,
        val_fraction=settings.val_fraction,
        test_fraction=settings.test_fraction,
        names=names,
    )
