"""Look inside a trained model: the figures of the papers, for this model and these images."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Arguments:
    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """A run folder that 'vitreous train' made."""
    images: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="IMAGES")]
    """Files, folders, patterns, or - for a list of files on standard input."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Where to write; RUN/explain unless given."""
    classes: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A class to make a map for; may be repeated. The three likeliest unless given."""
    json: Annotated[bool, tyro.conf.arg(name="json")] = False
    """Write nothing; print one JSON object per image with all maps, each on a line."""


def run(arguments: Arguments) -> None:
    from vitreous.cli.predict import paths_of
    from vitreous.explain.explanation import explain
    from vitreous.explain.write import write_image, write_model
    from vitreous.predict import load

    predictor = load(arguments.run)
    paths = list(paths_of(arguments.images))
    classes = arguments.classes or 3
    if arguments.json:
        for path in paths:
            print(json.dumps(explain(predictor, path, classes).to_dict()), flush=True)
        return
    out = arguments.out or arguments.run / "explain"
    for written in write_model(predictor, paths, out):
        print(written)
    for number, path in enumerate(paths):
        stem = re.sub(r"[^\w.-]+", "-", Path(path).stem)
        folder = out / (stem if len(paths) == 1 else f"{number + 1:03d}-{stem}")
        for written in write_image(predictor, path, folder, classes):
            print(written)
        print(f"{number + 1}/{len(paths)} {path}", file=sys.stderr)
