"""Look inside a trained model: the figures of the papers, for this model and these images."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from vitreous.cli.images import Complaints, paths_of
from vitreous.errors import ConfigError, DataError


@dataclass(frozen=True)
class Arguments:
    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """A run folder that 'vitreous train' made."""
    images: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="IMAGES")]
    """Files, folders, patterns, or - for a list of files on standard input."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Where to write; RUN/explain unless given."""
    classes: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A class to make a map for; may be repeated. The three likeliest unless given. For models that
    detect: whose objects to show; all unless given."""
    pixel: Annotated[tuple[int, int] | None, tyro.conf.arg(metavar="Y X")] = None
    """The pixel to ask about, its row and column from 0. For models that segment, class maps are
    then for this pixel; unless given, attention is that of the middle. For models that detect, what
    its place attends to in the encoder; unless given, from the middle of the surest object."""
    json: Annotated[bool, tyro.conf.arg(name="json")] = False
    """Write nothing; print one JSON object per image with all maps, each on a line."""


def run(arguments: Arguments) -> None:
    from vitreous.explain.explanation import check, explain
    from vitreous.pages.write import write_image, write_model
    from vitreous.predict import load

    predictor = load(arguments.run)
    classes = arguments.classes or 3
    check(predictor, classes, arguments.pixel)
    bad = Complaints()
    paths = list(paths_of(arguments.images, bad))
    out = arguments.out or arguments.run / "explain"
    good = []
    for number, path in enumerate(paths):
        try:
            if arguments.json:
                found = explain(predictor, path, classes, pixel=arguments.pixel)
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
