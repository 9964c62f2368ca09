"""The files that names, folders and patterns stand for."""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Callable, Iterator, Sequence

from vitreous.data.decode.images import EXTENSIONS, shown
from vitreous.data.formats.files import Scan
from vitreous.errors import ConfigError, DataError
from vitreous.labels import natural

Complain = Callable[[object], None]


def paths_of(named: Sequence[str], complain: Complain, more: tuple[str, ...] = ()) -> Iterator[str]:
    """The files that names, folders, patterns and - (standard input) stand for; and addresses. Of a
    folder these are the images, and files with one of `more` endings. A name without any file is an
    error; `complain` is called for folders that cannot be read."""
    if not named:
        raise ConfigError(
            "no images are given: name files, folders or patterns like 'photos/*.jpg', or - for a "
            "list of files on standard input"
        )
    for name in named:
        if name == "-":
            found = [line.rstrip("\r\n") for line in sys.stdin if line.strip()]
            nothing = "there are no names on standard input"
        elif os.path.isdir(name):
            found = _inside(name, complain, (*EXTENSIONS, *more))
            nothing = "there are no images in this folder"
        elif os.path.lexists(name) or "://" in name or not glob.has_magic(name):
            found, nothing = [name], ""
        else:
            matching = glob.glob(name, recursive=True)
            found = _ordered([path for path in matching if not os.path.isdir(path)])
            nothing = "no file matches this pattern"
        if not found:
            raise DataError(f"{name}: {nothing}")
        yield from found


def _inside(folder: str, complain: Complain, extensions: tuple[str, ...]) -> list[str]:
    """The images that training would find there."""
    scan = Scan(extensions=extensions)
    found = _ordered(scan.images(folder))
    for problem in scan.problems:
        if problem.fatal:
            complain(f"{problem.file}: {problem.what}")
    return found


def _ordered(paths: list[str]) -> list[str]:
    """2.png before 10.png."""
    return sorted(paths, key=lambda path: natural(shown(path)))
