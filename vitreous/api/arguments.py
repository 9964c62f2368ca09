"""What several functions take: their types, and data that a program has."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
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


def is_named(data: Data) -> bool:
    """Whether it is a path or a name, and not from Python."""
    return isinstance(data, str | os.PathLike)


def source_of(data: Data, settings: Recipe, names: Any = None) -> Source:
    """Data read and split by a recipe; `names` are those of its classes: a file, and for data that
    a program has also a list or a dict."""
    from vitreous.data.formats.python_data import from_python
    from vitreous.tasks import UNLABELLED
    from vitreous.train.open_data import open_named, truth_of

    if is_named(data):
        file = None if names is None else os.fspath(names)
        return open_named(replace(settings, data=os.fspath(data), names=file))
    source = from_python(
        data,
        truth=truth_of(settings),
        seed=settings.data_seed,
        val_fraction=settings.val_fraction,
        test_fraction=settings.test_fraction,
        names=names,
    )
    return source.unlabelled() if truth_of(settings) == UNLABELLED else source
