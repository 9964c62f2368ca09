"""Predict what images show, with the model of a run folder."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
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
    from vitreous.results import Classification, Detection, Segmentation

RESULTS = "results"
"""The file of a detector's answers for all images is called so, with .json."""


@dataclass(frozen=True)
class Arguments:
    run: tyro.conf.Positional[Path]
    """Run folder of a trained model."""
    images: Annotated[tyro.conf.Positional[tuple[str, ...]], IMAGES]
    """Files, folders, patterns like 'photos/*.jpg', or - for a list of files on standard input."""
    top: Annotated[int, option("N")] = 5
    """Number of classes or objects to show per image."""
    threshold: Annotated[float | None, option("T", "0.5")] = None
    """Smallest score, from 0 to 1, of an object that counts as detected."""
    batch: Annotated[int | None, option("N", "32, or fewer for images of any size")] = None
    """Images per forward pass."""
    out: Annotated[Path | None, option("FOLDER", "none")] = None
    """Folder for masks, overlays or drawn boxes, with a JSON file per image."""
    json: Flag = False
    """Print one JSON object per image and line."""


def run(arguments: Arguments) -> None:
    from vitreous.predict import load

    positive(arguments, "top", *(["batch"] if arguments.batch is not None else []))
    bad = Complaints()
    paths = list(paths_of(arguments.images, bad))
    predictor = load(arguments.run)
    _check_threshold(arguments.threshold, predictor)
    headings, row = ROWS[predictor.task.name]
    table = Table("image", *headings)
    with ExitStack() as stack:
        keep = None
        if arguments.out is not None:
            keep = _keeper(predictor, paths, arguments.out, stack)
        for result in predictor.stream(paths, arguments.batch, bad=bad):
            if arguments.threshold is not None:
                result = result.above(arguments.threshold)
            if keep is not None:
                keep(result)
            if arguments.json:
                print(json.dumps(_told(result, arguments.top)), flush=True)
            else:
                table.row(result.image, *row(result, arguments.top))
    if table.rows:
        table.print()
    bad.raise_if_any(len(paths))


def _check_threshold(threshold: float | None, predictor: Predictor) -> None:
    if threshold is None:
        return
    if predictor.task.name != "detect":
        raise ConfigError(
            f"--threshold {threshold:g} is for models that detect, and this one is to "
            f"{predictor.task.name}: leave it out"
        )
    if not 0 <= threshold <= 1:
        raise ConfigError(f"--threshold {threshold:g}: expected a number from 0 to 1")


def _classified(result: Classification, top: int) -> tuple[str, ...]:
    best, *others = result.top(top)
    rest = ", ".join(f"{name} {score:.3f}" for name, score in others)
    return best[0], f"{best[1]:.3f}", rest


def _segmented(result: Segmentation, top: int) -> tuple[str, ...]:
    height, width = result.mask.shape
    best, *others = list(result.areas.items())[:top]
    rest = ", ".join(f"{name} {100 * share:.1f} %" for name, share in others)
    return f"{height}x{width}", best[0], f"{100 * best[1]:.1f} %", rest


def _detected(result: Detection, top: int) -> tuple[str, ...]:
    """Of an image in which nothing is found, what is nearest to it: the threshold may be high."""
    shown = [f"{found.label} {found.score:.2f}" for found in result.objects[:top]]
    if len(result.objects) > top:
        shown.append("…")
    if not shown:
        best = result.names[result.classes[0]]
        shown = [f"none of {result.threshold:g} or more; {best} {result.scores[0]:.2f} is next"]
    height, width = result.size
    return f"{height}x{width}", str(len(result.objects)), ", ".join(shown)


ROWS: dict[str, tuple[tuple[str, ...], Callable[[Any, int], tuple[str, ...]]]] = {
    "classify": (("label", "score>", "then"), _classified),
    "segment": (("size", "largest", "share>", "then"), _segmented),
    "detect": (("size", "objects>", "surest"), _detected),
}
"""For each task the headings behind the image's, and what stands below them."""


def _told(result: Any, top: int) -> dict[str, Any]:
    from vitreous.results import Classification

    return result.to_dict(top) if isinstance(result, Classification) else result.to_dict()


def _keeper(
    predictor: Predictor, paths: Sequence[str], out: Path, stack: ExitStack
) -> Callable[[Any], None]:
    """What writes a result to `out`, and is done with it when `stack` is; what cannot be written is
    said before any work is done."""
    from vitreous.data.decode.images import shown
    from vitreous.pages import draw
    from vitreous.tasks.detect import draw as boxes
    from vitreous.tasks.detect.coco_results import writing

    files = {shown(path): path for path in paths}
    option = f"--out {out}"

    def write(write_one: Callable[[Any, Any, Path, str], None], result: Any, name: str) -> None:
        image, _ = predictor.read(files[result.image])
        try:
            write_one(result, image, out, name)
        except OSError as error:
            raise ConfigError(f"{option}: cannot be written: {error}") from error

    if predictor.task.name == "segment":
        names = file_names(paths)
        _check_free(paths, names.values(), draw.ENDINGS, out)
        return lambda result: write(draw.write, result, names[files[result.image]])
    if predictor.task.name == "detect":
        names, ids = file_names(paths, taken=(RESULTS,)), image_ids(paths)
        _check_free(paths, names.values(), boxes.ENDINGS, out)
        all_results = stack.enter_context(writing(out / f"{RESULTS}.json", option))

        def keep(result: Detection) -> None:
            file = files[result.image]
            write(boxes.write, result, names[file])
            if file in ids:  # an image may be named twice
                all_results.add(result.to_coco(ids.pop(file)))

        return keep
    raise ConfigError(
        "--out is for models that draw, as those that segment or detect do: this one says of an "
        "image what it shows; --json > FILE keeps that"
    )


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


def image_ids(paths: Sequence[str]) -> dict[str, str]:
    """What a file of results calls each image: its file's name, or all of its path where another
    image has that name."""
    from vitreous.data.decode.images import shown

    files = Counter(Path(path).name for path in set(paths))
    return {path: shown(path if files[Path(path).name] > 1 else Path(path).name) for path in paths}


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
