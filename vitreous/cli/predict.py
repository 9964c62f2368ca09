"""Say what images show, with the model of a run folder."""

from __future__ import annotations

import glob
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from vitreous.cli.show import Table
from vitreous.errors import DataError


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

    paths = list(_paths(arguments.images))
    predictor = load(arguments.run)
    table = Table("image", "label", "score>", "then")
    for result in predictor.stream(paths, arguments.batch):
        if arguments.json:
            print(json.dumps(result.to_dict(arguments.top)), flush=True)
            continue
        best, *others = result.top(arguments.top)
        rest = ", ".join(f"{name} {score:.3f}" for name, score in others)
        table.row(result.image, best[0], f"{best[1]:.3f}", rest)
    if not arguments.json:
        table.print()


def _paths(named: tuple[str, ...]) -> Iterator[str]:
    """Every file that is named in one of the ways; a name that gives none is an error."""
    from vitreous.data.images import EXTENSIONS

    for name in named:
        if name == "-":
            yield from (line.strip() for line in sys.stdin if line.strip())
            continue
        path = Path(name)
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.suffix.lower() in EXTENSIONS)
            if not inside:
                raise DataError(f"{name}: there are no images in this folder")
            yield from map(str, inside)
        elif path.exists() or not glob.has_magic(name):
            yield name
        else:
            found = sorted(glob.glob(name, recursive=True))
            if not found:
                raise DataError(f"{name}: no file matches this pattern")
            yield from found
