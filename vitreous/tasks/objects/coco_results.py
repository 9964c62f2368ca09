"""COCO's file of results: what a model has found in images, as a list of boxes with scores.

Every program that detects can write it, ours too. It says nothing of what it is about: ids of
images and of categories are those of the data. So nothing unknown is passed over when it is read:
most likely it is for other data, and the numbers would be wrong without a word.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import torch

from vitreous.atomic_write import making_folder, naming_file, renaming
from vitreous.data.decode.images import shown
from vitreous.data.formats.files import read_json
from vitreous.data.instance_masks import box as box_around
from vitreous.data.objects.coco_json import NAMES, Coco
from vitreous.data.objects.outlines import runs_of, size_of_runs
from vitreous.data.objects.table import ObjectTable
from vitreous.data.source import Source
from vitreous.errors import ConfigError, DataError, naming
from vitreous.labels import LabelMap
from vitreous.mask_parts import Runs
from vitreous.tasks.objects.boxes import normalised
from vitreous.tasks.objects.metrics import BoxPrediction, DetectMetrics
from vitreous.tasks.task import Log

ImageId = int | str
Corners = tuple[float, float, float, float]
KEYS = ("image_id", "category_id", "bbox", "score")


class ResultBox(NamedTuple):
    """One box of a file of results."""

    corners: Corners
    """left, top, right, bottom in pixels of the image as it is stored"""
    label: int
    """The class's place in the data's label map."""
    score: float
    runs: Runs | None = None
    """The mask, where masks are read."""


def image_ids(source: Source, split: str) -> dict[str, ImageId]:
    """By the sample's id what results call an image: the number that the data's own file has for
    it, or else just that id."""
    numbers: Mapping[str, int] = getattr(source, "image_ids", {})
    return {sample.id: numbers.get(sample.id, sample.id) for sample in source.splits[split]}


class CocoIds(NamedTuple):
    """What a COCO file calls images and classes."""

    images: dict[str, int]
    """By the path of the image."""
    categories: tuple[int | None, ...]
    """For each class of the model; None for one that the data has not."""


def coco_ids(
    paths: Sequence[str],
    labels: LabelMap,
    data: str | Path | None = None,
    log: Log = lambda text: None,
) -> CocoIds:
    """The ids of a COCO file, `data`, whose images are found by the names of their files; without
    one, images are numbered from 1 in their order. Classes that it has not are logged."""
    if data is None:
        paths = list(dict.fromkeys(paths))
        return CocoIds({path: i for i, path in enumerate(paths, 1)}, labels.numbers)
    known = Coco(os.fspath(data), ObjectTable(NAMES))
    files: dict[str, list[tuple[tuple[str, ...], int]]] = defaultdict(list)
    for number, image in known.images.items():
        parts = Path(image.file).parts
        files[parts[-1]].append((parts, number))
    images = {path: _known_image(path, files, data) for path in paths}
    categories = {name: id for id, name in known.categories.items()}
    if not any(name in categories for name in labels.names):
        raise DataError(
            f"{shown(data)}: has none of the model's classes ({', '.join(labels.names)}): its "
            f"categories are {', '.join(categories)}"
        )
    log_missing(labels, categories, shown(data), log)
    return CocoIds(images, tuple(categories.get(name) for name in labels.names))


def log_missing(labels: LabelMap, known: Container[str], data: str, log: Log) -> None:
    """A box of a class that the data has not can have no id of it."""
    missing = [name for name in labels.names if name not in known]
    if missing:
        log(f"boxes of classes that {data} has not are left out: {', '.join(missing)}")


def _known_image(path: str, files: dict[str, list[tuple[tuple[str, ...], int]]], data: Any) -> int:
    """Of several files of this name, the one whose folders are the path's too."""
    here = Path(os.path.abspath(path)).parts
    same = files.get(here[-1], [])
    if len(same) > 1:
        same = [(parts, number) for parts, number in same if here[-len(parts) :] == parts]
    if len(same) != 1:
        what = "several images" if same else "no image"
        raise DataError(f"{shown(data)}: has {what} called {shown(path)}")
    return same[0][1]


class ResultsWriter:
    """A list in JSON that grows row by row: there may be millions."""

    def __init__(self, file: TextIO, option: str) -> None:
        self.file, self.option, self.rows = file, option, 0

    def write(self, text: str) -> None:
        with naming_file(self.option):
            self.file.write(text)

    def add(self, rows: Iterable[dict[str, Any]]) -> None:
        for row in rows:
            try:
                text = json.dumps(row, allow_nan=False)
            except ValueError:
                raise DataError(
                    f"image {row['image_id']}: the model's prediction is not finite "
                    f"({_quoted(row)}): were its weights damaged, or has its training failed?"
                ) from None
            self.write(f",\n{text}" if self.rows else text)
            self.rows += 1


@contextmanager
def writing(path: Path, option: str) -> Iterator[ResultsWriter]:
    """A file that is there when this ends well; what was there before stays until then.

    That it cannot be written is an error at the beginning, which calls it by `option`.
    """
    if path.is_dir():
        raise ConfigError(f"{option}: cannot be written: it is a folder")
    with making_folder(path.parent, named=option), renaming(path) as part:
        with naming_file(option):
            file = part.open("w", encoding="utf-8")
        try:
            writer = ResultsWriter(file, option)
            writer.write("[\n")
            yield writer
            writer.write("\n]\n")
            with naming_file(option):
                file.flush()
        finally:
            with suppress(OSError):  # what could not be written has been said
                file.close()


def read_results(
    path: str | Path, source: Source, split: str, *, masks: bool = False
) -> dict[str, list[ResultBox]]:
    """By the sample's id the boxes of a file, the highest score first; with `masks`, rows must have
    those too, and need no box.

    An image or a category that the data has not, and a row that is not one, are errors that name
    them.
    """
    rows = _load(path)
    images = _images(image_ids(source, split))
    classes: dict[Any, int] = {id: i for i, id in enumerate(source.labels.numbers)}
    classes |= {id: i for i, id in enumerate(source.labels.external)}
    found: dict[str, list[ResultBox]] = defaultdict(list)
    strange: dict[str, Counter[Any]] = {"image_id": Counter(), "category_id": Counter()}
    for number, row in enumerate(rows):
        where = f"{shown(path)}, row {number}"
        if not isinstance(row, dict):
            raise DataError(
                f"{where}: is {_quoted(row)}, where an object with {KEYS[0]} … is expected"
            )
        runs = None
        if masks:
            with naming(where):
                given = row.get("segmentation")
                runs = runs_of(given, size_of_runs(given), "segmentation")
            if "bbox" not in row:
                left, top, right, bottom = box_around(runs)
                row["bbox"] = [left, top, right - left, bottom - top]
        image, category, box, score = _checked(row, where)
        if category in source.labels.ignored:
            continue  # the data has such objects, and they count for nothing
        # ours have the image's file too, where its number is only its place in the list
        file = row.get("file_name")
        sample = images.get(file if isinstance(file, str) else image)
        label = classes.get(category)
        if sample is None or label is None:
            strange["image_id"][image] += sample is None
            strange["category_id"][category] += label is None
            continue
        found[sample].append(ResultBox(box, label, score, runs))
    _refuse(strange["image_id"], path, "image_id", f"{split} of {source.name}", list(images))
    _refuse(strange["category_id"], path, "category_id", source.name, list(classes))
    for boxes in found.values():
        boxes.sort(key=lambda box: -box.score)
    return found


def measure_results(
    path: str | Path, source: Source, split: str, metrics: DetectMetrics, *, masks: bool
) -> dict[str, Any]:
    """The metrics of a file, of any program; masks are RLE of the size of the image. The images are
    not read."""
    results = read_results(path, source, split, masks=masks)
    for sample in source.splits[split]:
        found, truth = results.get(sample.id, []), source.truth(sample)
        runs = [each.runs for each in found if each.runs] if masks else None
        size = list(truth["masks"].stored) if masks else []
        if odd := next((each["size"] for each in runs or () if each["size"] != size), None):
            raise DataError(
                f"{shown(path)}: a mask of image {sample.id} is {odd[0]}x{odd[1]} pixels large, "
                f"but the image is {size[0]}x{size[1]} (height x width)"
            )
        # of an image of 1x1, in which pixels are normalised
        target = {**truth, "boxes": normalised(truth["boxes"].double(), (1, 1))}
        metrics.add(as_prediction(found), target, runs)
    return metrics.compute(metrics.counts()) | {"intervals": metrics.intervals()}


def as_prediction(found: Sequence[ResultBox]) -> BoxPrediction:
    """Of an image of 1x1."""
    boxes = torch.tensor([box.corners for box in found], dtype=torch.float64).reshape(-1, 4)
    labels = torch.tensor([box.label for box in found], dtype=torch.int64)
    scores = torch.tensor([box.score for box in found], dtype=torch.float64)
    return BoxPrediction(boxes, labels, scores, torch.arange(len(found)), (1, 1))


def _load(path: str | Path) -> list[Any]:
    name, values = shown(path), read_json(path)
    if not isinstance(values, list):
        has = f"an object with {', '.join(list(values)[:6])}" if isinstance(values, dict) else "not"
        annotations = isinstance(values, dict) and "annotations" in values
        hint = ": this is the ground truth, not a model's predictions" if annotations else ""
        raise DataError(
            f"{name}: is not a COCO file of results: expected a list of rows with "
            f"{', '.join(KEYS)}; it is {has}{hint}"
        )
    return values


def _images(ids: Mapping[str, ImageId]) -> dict[ImageId, str]:
    """Which sample is meant: by its number, by its id, or by the name of its file, if no other file
    has it."""
    files = Counter(os.path.basename(sample) for sample in ids)
    known: dict[ImageId, str] = {id: sample for sample, id in ids.items()}
    for sample in ids:
        known.setdefault(sample, sample)
    for sample in ids:
        if files[os.path.basename(sample)] == 1:
            known.setdefault(os.path.basename(sample), sample)
    return known


def _checked(row: dict[str, Any], where: str) -> tuple[Any, Any, Corners, float]:
    """image, category, box as left, top, right, bottom, and score of a row that has them all."""
    missing = [key for key in KEYS if key not in row]
    if missing:
        hint = "; masks are not boxes" if "segmentation" in row else ""
        raise DataError(f"{where}: has no {' and no '.join(missing)}{hint}")
    for key in ("image_id", "category_id"):
        if isinstance(row[key], bool) or not isinstance(row[key], int | float | str):
            raise DataError(f"{where}: {key} is {_quoted(row[key])}: expected a number or a name")
    box, score = row["bbox"], row["score"]
    if not (isinstance(box, list) and len(box) == 4 and all(map(_finite, box))):
        raise DataError(f"{where}: bbox is {_quoted(box)}: expected left, top, width, height")
    if box[2] < 0 or box[3] < 0:
        raise DataError(f"{where}: bbox is {_quoted(box)}: width and height are 0 or more")
    if not _finite(score):
        raise DataError(f"{where}: score is {_quoted(score)}: expected a number")
    left, top, width, height = map(float, box)
    corners = (left, top, left + width, top + height)
    return row["image_id"], row["category_id"], corners, float(score)


def _finite(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and abs(value) < 2**53


def _quoted(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _refuse(strange: Counter[Any], path: Any, key: str, what: str, known: list[Any]) -> None:
    """An error that lists what is unknown, beside what is known."""
    unknown = [id for id, rows in strange.items() if rows]
    if not unknown:
        return

    def listed(ids: list[Any]) -> str:
        return ", ".join(_quoted(id) for id in ids[:5]) + (" …" if len(ids) > 5 else "")

    rows = sum(strange.values())
    as_text = {str(id) for id in known if not isinstance(id, str)}
    hint = ""
    if any(isinstance(id, str) and id in as_text for id in unknown):
        hint = ". They are text where the data has numbers: write them without quotes"
    raise DataError(
        f"{shown(path)}: {rows:,} rows have an {key} that {what} has not: {listed(unknown)}; it "
        f"has {listed(known)}{hint or '. Is the file for this data, and for this split?'}"
    )
