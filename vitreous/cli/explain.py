"""Look inside a trained model: the figures of the papers, for your model and your images."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from vitreous.cli.images import IMAGES, Complaints, paths_of
from vitreous.errors import ConfigError, DataError
from vitreous.train.recipe import Flag, Repeated, option


@dataclass(frozen=True)
class Arguments:
    run: tyro.conf.Positional[Path]
    """Run folder of a trained model."""
    images: Annotated[tyro.conf.Positional[tuple[str, ...]], IMAGES]
    """Files, folders, patterns like 'photos/*.jpg', or - for a list of files on standard input."""
    out: Annotated[Path | None, option("FOLDER", "RUN/explain")] = None
    """Folder to write to."""
    classes: Annotated[Repeated, option("CLASS", "the three most likely; of objects, all")] = ()
    """Class to draw a map for, or whose detected objects to show; may be repeated."""
    pixel: Annotated[tuple[int, int] | None, option("Y X", "the centre")] = None
    """Row and column, from 0, of the pixel whose class and attention are explained."""
    json: Flag = False
    """Print one JSON object per image and line, with all maps, instead of writing files."""


def run(arguments: Arguments) -> None:
    from vitreous.pages.explanation import write_image, write_model
    from vitreous.predict import load
    from vitreous.tasks import show_of

    predictor = load(arguments.run)
    classes = arguments.classes or 3
    show_of(predictor.task.name).check_query(predictor, classes, arguments.pixel)
    bad = Complaints()
    paths = list(paths_of(arguments.images, bad))
    out = arguments.out or arguments.run / "explain"
    good = []
    for number, path in enumerate(paths):
        try:
            if arguments.json:
                found = predictor.explain(path, classes, pixel=arguments.pixel)
                print(json.dumps(found.to_dict()), flush=True)
                continue
            stem = re.sub(r"[^\w.-]+", "-", Path(path).stem)
            folder = out / (stem if len(paths) == 1 else f"{number + 1:03d}-{stem}")
            for written in write_image(predictor, path, folder, classes, arguments.pixel):
                print(written)
            good.append(path)
            print(f"{number + 1}/{len(paths)} {path}", file=sys.stderr)
        except DataError as error:  # one image that cannot be used does not lose the others
            bad(error)
        except OSError as error:
            raise ConfigError(f"--out {out}: cannot be written: {error}") from error
    if good:
        for written in write_model(predictor, good, out):
            print(written)
    bad.raise_if_any(len(paths))
