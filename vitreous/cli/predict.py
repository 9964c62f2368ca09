"""Say what images show, with the model of a run folder."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from vitreous.cli.images import Complaints, paths_of
from vitreous.cli.show import Table
from vitreous.config import positive
from vitreous.errors import ConfigError

if TYPE_CHECKING:
    from vitreous.predict import Predictor
    from vitreous.results import Classification, Segmentation


@dataclass(frozen=True)
class Arguments:
    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """A run folder that 'vitreous train' made."""
    images: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="IMAGES")]
    """Files, folders (all images in them), patterns like 'photos/*.jpg', or - for a list of files
    on standard input."""
    top: int = 5
    """How many classes to show."""
    batch: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Images at a time; 32 unless given, or 1 where images are used at their own size."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """For models that segment: write here for each image NAME-mask.png (indexed, in the classes'
    colours), NAME-overlay.jpg (the image under the mask, with a legend) and NAME.json."""
    json: Annotated[bool, tyro.conf.arg(name="json")] = False
    """Print one JSON object per image, each on a line."""


def run(arguments: Arguments) -> None:
    from vitreous.predict import load

    positive(arguments, "top", *(["batch"] if arguments.batch is not None else []))
    bad = Complaints()
    paths = list(paths_of(arguments.images, bad))
    predictor = load(arguments.run)
    keep = None if arguments.out is None else _keeper(predictor, paths, arguments.out)
    headings, row = ROWS[predictor.task.name]
    table = Table("image", *headings)
    for result in predictor.stream(paths, arguments.batch, bad=bad):
        if keep is not None:
            keep(result)
        if arguments.json:
            print(json.dumps(_told(result, arguments.top)), flush=True)
        else:
            table.row(result.image, *row(result, arguments.top))
    if table.rows:
        table.print()
    bad.raise_if_any(len(paths))


def _classified(result: Classification, top: int) -> tuple[str, ...]:
    best, *others = result.top(top)
    rest = ", ".join(f"{name} {score:.3f}" for name, score in others)
    return best[0], f"{best[1]:.3f}", rest


def _segmented(result: Segmentation, top: int) -> tuple[str, ...]:
    height, width = result.mask.shape
    best, *others = list(result.areas.items())[:top]
    rest = ", ".join(f"{name} {100 * share:.1f} %" for name, share in others)
    return f"{height}x{width}", best[0], f"{100 * best[1]:.1f} %", rest


ROWS: dict[str, tuple[tuple[str, ...], Callable[[Any, int], tuple[str, ...]]]] = {
    "classify": (("label", "score>", "then"), _classified),
    "segment": (("size", "largest", "share>", "then"), _segmented),
}
"""For each task the headings behind the image's, and what stands below them."""


def _told(result: Any, top: int) -> dict[str, Any]:
    from vitreous.results import Classification

    return result.to_dict(top) if isinstance(result, Classification) else result.to_dict()


def _keeper(predictor: Predictor, paths: Sequence[str], out: Path) -> Callable[[Any], None]:
    """What writes a result to `out`; what cannot be written is said before any work is done."""
    from vitreous.data.images import shown
    from vitreous.explain import draw

    if predictor.task.name != "segment":
        raise ConfigError(
            "--out is for models that draw, as those that segment do: this one says of an image "
            "what it shows; --json > FILE keeps that"
        )
    names = file_names(paths)
    files = {shown(path): path for path in paths}
    given = {os.path.realpath(path): path for path in paths}
    for name in names.values():
        for ending in (draw.MASK, *draw.OVERLAYS, draw.DATA):
            lost = given.get(os.path.realpath(out / f"{name}{ending}"))
            if lost is not None:
                raise ConfigError(
                    f"--out {out}: {lost} would be written over, which is one of the images: give "
                    "another folder"
                )

    def keep(result: Any) -> None:
        file = files[result.image]
        image, _ = predictor.read(file)
        try:
            draw.write(result, image, out, names[file])
        except OSError as error:
            raise ConfigError(f"--out {out}: cannot be written: {error}") from error

    return keep


def file_names(paths: Sequence[str]) -> dict[str, str]:
    """A name for each image's files, and no two the same: its own without its ending; where another
    has that already, with its folders before it; and where that does not help, with a number."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for path in dict.fromkeys(paths):
        # names that differ only in their case are the same on some disks
        names[path] = next(name for name in _ways(path) if name.casefold() not in taken)
        taken.add(names[path].casefold())
    return names


def _ways(path: str) -> Iterator[str]:
    """What an image may be called, the best first, in characters that all disks take."""
    from vitreous.data.images import shown

    *folders, file = Path(shown(path)).parts
    for count in range(len(folders) + 1):
        text = "-".join((*folders[len(folders) - count :], Path(file).stem))
        plain = re.sub(r"[^\w.-]+", "-", text).strip("-") or "image"
        yield plain
    yield from (f"{plain}-{number}" for number in itertools.count(2))
