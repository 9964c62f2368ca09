"""Say what images show, with the model of a run folder."""

from __future__ import annotations

import glob
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from vitreous.cli.show import Table
from vitreous.config import positive
from vitreous.errors import ConfigError, DataError

Complain = Callable[[object], None]


@dataclass(frozen=True)
class Arguments:
    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """A run folder that 'vitreous train' made."""
    images: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="IMAGES")]
    """Files, folders (all images in them), patterns like 'photos/*.jpg', or - for a list of files
    on standard input."""
    top: int = 5
    """How many classes to show."""
    batch: int = 32
    """Images at a time."""
    json: Annotated[bool, tyro.conf.arg(name="json")] = False
    """Print one JSON object per image, each on a line."""


def run(arguments: Arguments) -> None:
    from vitreous.predict import load

    positive(arguments, "top", "batch")
    bad: list[str] = []

    def complain(what: object) -> None:
        bad.append(str(what))
        print(f"vitreous: {what}", file=sys.stderr, flush=True)

    paths = list(paths_of(arguments.images, complain))
    predictor = load(arguments.run)
    table = Table("image", "label", "score>", "then")
    for result in predictor.stream(paths, arguments.batch, bad=complain):
        if arguments.json:
            print(json.dumps(result.to_dict(arguments.top)), flush=True)
            continue
        best, *others = result.top(arguments.top)
        rest = ", ".join(f"{name} {score:.3f}" for name, score in others)
        table.row(result.image, best[0], f"{best[1]:.3f}", rest)
    if table.rows:
        table.print()
    if bad:
        raise DataError(f"{len(bad)} of {len(paths)} images could not be used: see above")


def paths_of(named: tuple[str, ...], complain: Complain | None = None) -> Iterator[str]:
    """Every file that is named in one of the ways; a name that gives none is an error.

    `complain` is told of folders that cannot be read; without it they are an error too.
    """
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
            found, nothing = _inside(name, complain), "there are no images in this folder"
        elif os.path.lexists(name) or not glob.has_magic(name):
            found, nothing = [name], ""
        else:
            matching = glob.glob(name, recursive=True)
            found = _ordered([path for path in matching if not os.path.isdir(path)])
            nothing = "no file matches this pattern"
        if not found:
            raise DataError(f"{name}: {nothing}")
        yield from found


def _inside(folder: str, complain: Complain | None) -> list[str]:
    """The images that training would see there; a folder in it that cannot be read is told."""
    from vitreous.data.sources.folder import Scan

    scan = Scan()
    found = _ordered(scan.images(folder))
    for what in (f"{problem.file}: {problem.what}" for problem in scan.problems if problem.fatal):
        if complain is None:
            raise DataError(what)
        complain(what)
    return found


def _ordered(paths: list[str]) -> list[str]:
    """2.png before 10.png."""
    from vitreous.data.images import shown
    from vitreous.labels import natural

    return sorted(paths, key=lambda path: natural(shown(path)))
