"""Say what images show, with the model of a run folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from vitreous.cli.images import Complaints, paths_of
from vitreous.cli.show import Table
from vitreous.config import positive


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
    bad = Complaints()
    paths = list(paths_of(arguments.images, bad))
    predictor = load(arguments.run)
    table = Table("image", "label", "score>", "then")
    for result in predictor.stream(paths, arguments.batch, bad=bad):
        if arguments.json:
            print(json.dumps(result.to_dict(arguments.top)), flush=True)
            continue
        best, *others = result.top(arguments.top)
        rest = ", ".join(f"{name} {score:.3f}" for name, score in others)
        table.row(result.image, best[0], f"{best[1]:.3f}", rest)
    if table.rows:
        table.print()
    bad.raise_if_any(len(paths))
