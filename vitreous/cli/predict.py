"""Predict what images show, with the model of a run folder."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from vitreous.cli.images import IMAGES, Complaints, paths_of
from vitreous.cli.show import Table
from vitreous.config import positive
from vitreous.errors import ConfigError
from vitreous.train.recipe import Flag, option

if TYPE_CHECKING:
    from vitreous.predict import Predictor
    from vitreous.tasks.show import Show


@dataclass(frozen=True)
class Arguments:
    run: tyro.conf.Positional[Path]
    """Run folder of a trained model."""
    images: Annotated[tyro.conf.Positional[tuple[str, ...]], IMAGES]
    """Files, folders, patterns like 'photos/*.jpg', or - for a list of files on standard input."""
    top: Annotated[int, option("N")] = 5
    """Number of classes or objects to show per image."""
    threshold: Annotated[float | None, option("T", "0.5, or chosen in training")] = None
    """Smallest score, from 0 to 1, of an object that counts as detected, or of a label."""
    batch: Annotated[int | None, option("N", "32, or fewer for images of any size")] = None
    """Images per forward pass."""
    out: Annotated[Path | None, option("FOLDER", "none")] = None
    """Folder for masks, overlays or drawn boxes, with a JSON file per image."""
    json: Flag = False
    """Print one JSON object per image and line."""


def run(arguments: Arguments) -> None:
    from vitreous.predict import load
    from vitreous.tasks import show_of

    positive(arguments, "top", *(["batch"] if arguments.batch is not None else []))
    bad = Complaints()
    paths = list(paths_of(arguments.images, bad))
    predictor = load(arguments.run)
    show: Show = show_of(predictor.task.name)
    _check_threshold(arguments.threshold, predictor, show)
    table = Table("image", *show.headings)
    out = arguments.out
    with nullcontext(None) if out is None else _writing(predictor, show, paths, out) as write:
        for result in predictor.stream(paths, arguments.batch, bad=bad):
            if arguments.threshold is not None:
                result = result.above(arguments.threshold)
            if write is not None:
                write(result)
            if arguments.json:
                print(json.dumps(show.record(result, arguments.top)), flush=True)
            else:
                table.row(result.image, *show.row(result, arguments.top))
    if table.rows:
        table.print()
    bad.raise_if_any(len(paths))


def _check_threshold(threshold: float | None, predictor: Predictor, show: Show) -> None:
    if threshold is None:
        return
    if not show.has_threshold:
        raise ConfigError(
            f"--threshold {threshold:g}: a model for the task {predictor.task.name} has no "
            "threshold: leave it out"
        )
    if not 0 <= threshold <= 1:
        raise ConfigError(f"--threshold {threshold:g}: expected a number from 0 to 1")


@contextmanager
def _writing(
    predictor: Predictor, show: Show, paths: Sequence[str], out: Path
) -> Iterator[Callable[[Any], None]]:
    """Inside, a function that writes a result to `out`; what cannot be written is an error before
    any work is done."""
    from vitreous.data.decode.images import shown

    if not show.endings:
        raise ConfigError(
            f"--out {out}: nothing is drawn for the task {predictor.task.name}: use --json > FILE "
            "to keep the predictions"
        )
    names = file_names(paths, show.reserved)
    _check_free(paths, names.values(), show.endings, out)
    files = {shown(path): path for path in paths}
    with show.collecting(out, paths) as collect:

        def write(result: Any) -> None:
            path = files[result.image]
            image, _ = predictor.read(path)
            try:
                show.write(result, image, out, names[path])
            except OSError as error:
                raise ConfigError(f"--out {out}: cannot be written: {error}") from error
            collect(result, path)

        yield write


def _check_free(
    paths: Sequence[str], names: Iterable[str], endings: Iterable[str], out: Path
) -> None:
    """No image is written over."""
    given = {os.path.realpath(path): path for path in paths}
    for name, ending in itertools.product(names, endings):
        lost = given.get(os.path.realpath(out / f"{name}{ending}"))
        if lost is not None:
            raise ConfigError(
                f"--out {out}: {lost} would be written over, which is one of the images: give "
                "another folder"
            )


def file_names(paths: Sequence[str], taken: Sequence[str] = ()) -> dict[str, str]:
    """A name for each image's files, and no two the same: its own without its ending; where another
    has that already, with its folders before it; and where that does not help, with a number."""
    names: dict[str, str] = {}
    gone = set(taken)
    for path in dict.fromkeys(paths):
        # names that differ only in their case are the same on some disks
        names[path] = next(name for name in _ways(path) if name.casefold() not in gone)
        gone.add(names[path].casefold())
    return names


def _ways(path: str) -> Iterator[str]:
    """What an image may be called, the best first, in characters that all disks take."""
    from vitreous.data.decode.images import shown

    *folders, file = Path(shown(path)).parts
    for count in range(len(folders) + 1):
        text = "-".join((*folders[len(folders) - count :], Path(file).stem))
        plain = re.sub(r"[^\w.-]+", "-", text).strip("-") or "image"
        yield plain
    yield from (f"{plain}-{number}" for number in itertools.count(2))
