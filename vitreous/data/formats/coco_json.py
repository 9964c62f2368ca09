"""COCO's JSON: images, categories, and objects with a box and an outline, as plain records.

Many programs write it and few write it well. Records are checked one by one: a bad one is a
`Problem` that names the record, or makes the image that it belongs to unusable. Nothing is dropped
silently, and an odd record does not stop the reading.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vitreous.data.decode.images import shown
from vitreous.data.formats.files import read_text
from vitreous.data.source import Problem
from vitreous.errors import DataError

Polygon = NDArray[np.float64]  # x, y, x, y …
Runs = dict[str, Any]  # {"size": [height, width], "counts": …}
Outline = tuple[Polygon, ...] | Runs

FARTHEST = 10
"""Times its size that an outline may reach out of an image; long lines take long to draw."""

_LARGEST = 2**53  # whole numbers beyond are not exact in floating point


@dataclass(frozen=True, slots=True)
class CocoImage:
    id: int
    file: str
    """As the JSON has it."""
    size: tuple[int, int] | None
    """Height and width, where the JSON has them."""


@dataclass(frozen=True, slots=True)
class CocoObject:
    name: str
    """What messages call it: `annotation 17`."""
    category: int
    crowd: bool
    """A region of many objects that were not separated."""
    box: tuple[float, float, float, float] | None
    """left, top, width, height, where there is a valid one."""
    outline: Outline | None
    """Polygons, or runs of pixels (RLE) as in the JSON; None where there is neither."""
    area: float | None = None
    """Inside the outline, in pixels, where the JSON has it."""


@dataclass
class Coco:
    """What a file has."""

    path: str
    categories: dict[int, str] = field(default_factory=dict)
    images: dict[int, CocoImage] = field(default_factory=dict)
    objects: dict[int, list[CocoObject]] = field(default_factory=dict)
    """By the image's id; every image has a list."""
    unusable: dict[int, list[str]] = field(default_factory=dict)
    """By the image's id: why it is unknown what the image shows."""
    problems: list[Problem] = field(default_factory=list)

    def problem(self, record: str, what: str, *, fatal: bool = False) -> None:
        self.problems.append(Problem(f"{shown(self.path)}, {record}", what, fatal))

    def reject(self, image: int, what: str) -> None:
        self.unusable.setdefault(image, []).append(what)


def read_coco(path: str, *, outlines: bool = True) -> Coco:
    """A file that is not COCO's at all is a DataError.

    Without `outlines` objects have none: they are most of a file, and boxes do not need them.
    """
    values = _load(path)
    reader = _Reader(Coco(path), outlines)
    for number, record in enumerate(values["categories"]):
        reader.category(number, record)
    for number, record in enumerate(values["images"]):
        reader.image(number, record)
    for number, record in enumerate(values["annotations"]):
        reader.object(number, record)
    for what, count in reader.text_ids.items():
        reader.coco.problem(what, f"{count} ids are text instead of numbers: read as numbers")
    if twice := [id for id, count in reader.annotations.items() if count > 1]:
        what = f"{len(twice)} ids are used by several annotations, {twice[0]} first: all are used"
        reader.coco.problem("annotations", what)
    for part in ("categories", "images"):
        if not getattr(reader.coco, part):
            why = f": {reader.coco.problems[0].what}" if values[part] else ": the list is empty"
            raise DataError(f"{shown(path)}: has no usable {part}{why}")
    return reader.coco


def read_json(path: str | Path) -> Any:
    text = read_text(path)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{shown(path)}: is not JSON: {error}") from None


def _load(path: str) -> dict[str, list[Any]]:
    name, values = shown(path), read_json(path)
    for part in ("images", "annotations", "categories"):
        if not isinstance(values, dict) or not isinstance(values.get(part), list):
            found = f"has {', '.join(list(values)[:8])}" if isinstance(values, dict) else "is not"
            raise DataError(
                f"{name}: is not a COCO file of objects: expected an object with lists of images, "
                f"annotations and categories; it {found}, and no list {part!r}"
            )
    return values


@dataclass
class _Reader:
    """Adds one record after the other to `coco`."""

    coco: Coco
    outlines: bool
    text_ids: Counter[str] = field(default_factory=Counter)
    files: dict[str, int] = field(default_factory=dict)
    annotations: Counter[int] = field(default_factory=Counter)

    def category(self, number: int, values: Any) -> None:
        id, name = self._id(values, "id"), _get(values, "name")
        categories = self.coco.categories
        if id is None or not isinstance(name, str) or not name:
            what = _no_number(values, "id", "has no id or no name")
            self.coco.problem(f"category {number} of the list", f"{what}: not used")
        elif categories.setdefault(id, name) != name:
            raise DataError(
                f"{shown(self.coco.path)}: category {id} is both {categories[id]!r} and {name!r}"
            )

    def image(self, number: int, values: Any) -> None:
        id, file = self._id(values, "id"), _get(values, "file_name")
        if id is None or not isinstance(file, str) or not file or "\0" in file:
            what = _no_number(values, "id", "has no id or no file_name")
            self.coco.problem(f"image {number} of the list", f"{what}: not used", fatal=True)
            return
        image = CocoImage(id, file, self._size(f"image {id}", values))
        first = self.coco.images.setdefault(id, image)
        if first.file != file:
            self.coco.problem(f"image {id}", f"is {first.file} and {file}: the second is not used")
            self.coco.reject(id, f"its id {id} is also that of {file}: whose are the objects?")
        elif self.files.setdefault(os.path.normpath(file), id) != id:
            # One sample per file; its objects are in two places, and perhaps twice.
            del self.coco.images[id]
            other = self.files[os.path.normpath(file)]
            self.coco.problem(f"image {id}", f"has the same file as image {other}: not used")
            self.coco.reject(other, f"occurs twice, as image {other} and {id}: keep one")
        self.coco.objects.setdefault(id, [])

    def _size(self, record: str, values: Any) -> tuple[int, int] | None:
        sides = [_get(values, side) for side in ("height", "width")]
        numbers = [int(side) for side in map(_finite, sides) if side is not None and side >= 1]
        if len(numbers) == 2:
            return numbers[0], numbers[1]
        if sides != [None, None]:
            text = "x".join(str(side) for side in sides)
            self.coco.problem(record, f"height and width are {text[:40]}: not used")
        return None

    def object(self, number: int, values: Any) -> None:
        id = self._id(values, "id")
        record = f"annotation {number} of the list" if id is None else f"annotation {id}"
        if id is not None:
            self.annotations[id] += 1
        image, category = self._id(values, "image_id"), self._id(values, "category_id")
        if image is None or image not in self.coco.images:
            what = f"is for image {image}, which is missing"
            if image is None:
                what = _no_number(values, "image_id", "has no image_id")
            self.coco.problem(record, f"{what}: not used")
            return
        if category is None or category not in self.coco.categories:
            what = f"has the unknown category {category}"
            if category is None:
                what = _no_number(values, "category_id", "has no category_id")
            self.coco.reject(image, f"{record} of {shown(self.coco.path)} {what}")
            return
        crowd = self._crowd(record, values)
        box = self._box(record, values)
        outline = self._outline(record, values) if self.outlines else None
        area = self._area(record, values)
        thing = CocoObject(record, category, crowd, box, outline, area)
        self.coco.objects[image].append(thing)

    def _box(self, record: str, values: Any) -> tuple[float, float, float, float] | None:
        box = _get(values, "bbox")
        if box is None or box == []:
            return None
        numbers = [_finite(value) for value in box] if isinstance(box, list) else []
        if len(numbers) != 4 or None in numbers:
            text = f"bbox is {str(box)[:40]}, expected left, top, width and height"
            self.coco.problem(record, f"{text}: not used")
            return None
        left, top, width, height = (float(number or 0) for number in numbers)
        return left, top, width, height

    def _crowd(self, record: str, values: Any) -> bool:
        crowd = _get(values, "iscrowd")
        if crowd in (None, 0, 1, "0", "1"):  # and False and True
            return crowd in (1, "1")
        self.coco.problem(record, f"iscrowd is {str(crowd)[:40]!r}, expected 0 or 1: read as 0")
        return False

    def _area(self, record: str, values: Any) -> float | None:
        given = _get(values, "area")
        area = _finite(given)
        if given is not None and (area is None or area < 0):
            self.coco.problem(record, f"area is {str(given)[:40]!r}: that of the box is used")
            return None
        return area

    def _outline(self, record: str, values: Any) -> Outline | None:
        outline = _get(values, "segmentation")
        if isinstance(outline, dict):
            return outline if {"size", "counts"} <= outline.keys() else None
        if not isinstance(outline, list) or not outline:
            return None
        polygons = []
        for points in outline:
            polygon = _numbers(points)
            if polygon is None or len(polygon) % 2:
                return None
            if len(polygon) < 6:  # which would be taken for a box
                what = f"has a polygon of {len(polygon) // 2} points, which encloses nothing"
                self.coco.problem(record, what)
            else:
                polygons.append(polygon)
        return tuple(polygons)

    def _id(self, values: Any, key: str) -> int | None:
        """A whole number, also where it is written as text or as 3.0."""
        value = _get(values, key)
        if not _is_id(value):
            return None
        if isinstance(value, str):
            self.text_ids[key] += 1
        return int(value)


def _get(values: Any, key: str) -> Any:
    return values.get(key) if isinstance(values, dict) else None


def _is_id(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip().isdecimal() and len(value) < 19
    number = _finite(value)
    return number is not None and number == int(number)


def _no_number(values: Any, key: str, missing: str) -> str:
    """The error for an id that is missing, or is not a whole number."""
    value = _get(values, key)
    if value is None or _is_id(value):
        return missing
    return f"has the {key} {str(value)[:40]!r}, expected a whole number"


def _finite(value: Any) -> float | int | None:
    """A usable number: not a bool, NaN or too large."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if -_LARGEST < value < _LARGEST else None


def _numbers(values: Any) -> Polygon | None:
    """A list of numbers; an outline may have thousands, and a file millions."""
    try:
        numbers = np.array(values if isinstance(values, list) else None)
    except ValueError:  # lists in it
        return None
    plain = numbers.ndim == 1 and (numbers.dtype.kind in "if" or not numbers.size)
    return numbers.astype(np.float64) if plain and np.isfinite(numbers).all() else None


def draw(thing: CocoObject, height: int, width: int) -> NDArray[np.bool_]:
    """(h, w): the pixels of an object. An error names the object."""
    from faster_coco_eval.core import mask as runs  # type: ignore[import-untyped,unused-ignore]

    if thing.outline is None:
        raise DataError(f"{thing.name} has no outline (segmentation) that can be drawn")
    try:
        if isinstance(thing.outline, dict):
            if list(thing.outline["size"]) != [height, width]:
                size = thing.outline["size"]
                raise DataError(f"{thing.name}: its RLE is for {size}, not for {[height, width]}")
            encoded = thing.outline
            if isinstance(encoded["counts"], list):
                encoded = runs.frPyObjects(encoded, height, width)
        elif not thing.outline:
            return np.zeros((height, width), bool)
        else:
            far = FARTHEST * max(height, width)
            if any(np.abs(polygon).max() > far for polygon in thing.outline):
                raise DataError(f"{thing.name}: its outline lies far outside the image")
            polygons = [polygon.tolist() for polygon in thing.outline]
            encoded = runs.merge(runs.frPyObjects(polygons, height, width))
        return np.asarray(runs.decode(encoded), dtype=bool)
    except (ValueError, RuntimeError, TypeError, OverflowError) as error:
        what = str(error).splitlines()[0]
        raise DataError(f"{thing.name}: its RLE cannot be decoded: {what}") from None
