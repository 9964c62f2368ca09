"""COCO's JSON: images, categories, and objects with a box and an outline.

Many programs write it and few write it well. Records are checked one by one: a bad one is a
`Problem` that names the record, or makes the image that it belongs to unusable. Nothing is dropped
silently, and an odd record does not stop the reading.
"""

from __future__ import annotations

import os
from array import array
from collections import Counter
from collections.abc import Container
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vitreous.data.decode.images import shown
from vitreous.data.decode.pixels import MAX_PIXELS
from vitreous.data.formats.instance_table import InstanceTable
from vitreous.data.formats.instances import Annotation, Corners, Instance
from vitreous.data.formats.json_lists import JsonLists
from vitreous.data.source import Problem
from vitreous.errors import DataError

Polygon = NDArray[np.float64]  # x, y, x, y …
Runs = dict[str, Any]  # {"size": [height, width], "counts": …}
Outline = tuple[Polygon, ...] | Runs
Record = dict[str, Any]

FARTHEST = 10
"""Times its size that an outline may reach out of an image; long lines take long to draw."""

_LARGEST = 2**53  # whole numbers beyond are not exact in floating point
_NUMBERS = {int, float}
_FIELDS = itemgetter("id", "image_id", "category_id", "iscrowd", "bbox", "area")


@dataclass
class Coco:
    """What a file has. The category of an object is a name."""

    path: str
    categories: dict[int, str] = field(default_factory=dict)
    images: dict[int, Annotation] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def problem(self, record: str, what: str, *, fatal: bool = False) -> None:
        self.problems.append(Problem(f"{shown(self.path)}, {record}", what, fatal))


def read_coco(path: str, *, outlines: bool = True) -> Coco:
    """A file that is not COCO's at all is a DataError.

    Without `outlines` objects have none: they are most of a file, and boxes do not need them.
    """
    values = _load(path)
    coco = Coco(path)
    reader = _Reader(coco, None if outlines else InstanceTable(coco.categories))
    parts = {
        "categories": reader.category,
        "images": reader.image,
        "annotations": reader.instance,
    }
    for part, read in parts.items():
        for number, record in enumerate(values.records(part)):
            read(number, record if isinstance(record, dict) else {})
    for image, rows in reader.table.close() if reader.table is not None else ():
        coco.images[image].instances = rows
    for what, count in reader.text_ids.items():
        coco.problem(what, f"{count} ids are text instead of numbers: read as numbers")
    if twice := reader.repeated_ids():
        what = f"{len(twice)} ids are used by several annotations, {twice[0]} first: all are used"
        coco.problem("annotations", what)
    for part in ("categories", "images"):
        if not getattr(coco, part):
            why = coco.problems[0].what if any(values.records(part)) else "the list is empty"
            raise DataError(f"{shown(path)}: has no usable {part}: {why}")
    return coco


def _load(path: str) -> JsonLists:
    values = JsonLists(path)
    for part in ("images", "annotations", "categories"):
        if not values.has_list(part):
            found = "is not" if values.keys is None else f"has {', '.join(values.keys[:8])}"
            raise DataError(
                f"{shown(path)}: is not a COCO file of objects: expected an object with lists of "
                f"images, annotations and categories; it {found}, and no list {part!r}"
            )
    return values


@dataclass
class _Reader:
    """Adds one record after the other to `coco`."""

    coco: Coco
    table: InstanceTable | None
    """For objects without outlines."""
    text_ids: Counter[str] = field(default_factory=Counter)
    files: dict[str, int] = field(default_factory=dict)
    ids: array[int] = field(default_factory=lambda: array("q"))
    """Of annotations: millions, so not as Python's numbers."""

    def category(self, number: int, values: Record) -> None:
        try:
            id, name = self._id(values, "id"), _text(values, "name")
        except DataError as error:
            self.coco.problem(f"category {number} of the list", f"{error}: not used")
            return
        if (known := self.coco.categories.setdefault(id, name)) != name:
            what = f"category {id} is both {known!r} and {name!r}"
            raise DataError(f"{shown(self.coco.path)}: {what}")

    def image(self, number: int, values: Record) -> None:
        images, problem = self.coco.images, self.coco.problem
        try:
            id, file = self._id(values, "id"), _text(values, "file_name")
        except DataError as error:
            problem(f"image {number} of the list", f"{error}: not used", fatal=True)
            return
        first = images.setdefault(id, Annotation(file=file, size=self._size(id, values)))
        if first.file != file:
            problem(f"image {id}", f"is {first.file} and {file}: the second is not used")
            first.errors.append(f"its id {id} is also that of {file}: whose are the objects?")
        elif (other := self.files.setdefault(os.path.normpath(file), id)) != id:
            # One sample per file; its objects are in two places, and perhaps twice.
            del images[id]
            problem(f"image {id}", f"has the same file as image {other}: not used")
            images[other].errors.append(f"occurs twice, as image {other} and {id}: keep one")

    def repeated_ids(self) -> list[int]:
        """Those of several annotations, in the order of the file."""
        ids, first, counts = np.unique(
            np.frombuffer(self.ids, np.int64), return_index=True, return_counts=True
        )
        return [int(ids[i]) for i in np.argsort(first, kind="stable") if counts[i] > 1]

    def instance(self, number: int, values: Record) -> None:
        if not self._add_plain(values):
            self._add_checked(number, values)

    def _add_plain(self, values: Record) -> bool:
        """Adds a record whose values are all as COCO writes them, without further checks: nearly
        all are, of millions. False where anything is odd."""
        try:
            id, image_id, category_id, crowd, box, area = _FIELDS(values)
        except KeyError:
            return False
        coco, table = self.coco, self.table
        if (
            {type(id), type(image_id), type(category_id), type(crowd)} != {int}
            or type(box) is not list
            or len(box) != 4
            or not {type(area), *map(type, box)} <= _NUMBERS
            or image_id not in coco.images
            or category_id not in coco.categories
            or crowd not in (0, 1)
            or abs(id) >= _LARGEST
            or not 0 <= area < _LARGEST
            or not sum(map(abs, box)) < _LARGEST  # also false for NaN
        ):
            return False
        self.ids.append(id)
        if table is not None:
            table.add(image_id, id, category_id, crowd, box, area)
            return True
        left, top, width, height = map(float, box)
        corners = left, top, left + width, top + height
        image, category = coco.images[image_id], coco.categories[category_id]
        record = f"annotation {id}"
        outline = self._outline(record, values)
        image.instances.append(Instance(record, category, corners, crowd == 1, area, outline))
        return True

    def _add_checked(self, number: int, values: Record) -> None:
        coco, record = self.coco, f"annotation {number} of the list"
        if _is_id(values.get("id")):
            id = self._id(values, "id")
            record = f"annotation {id}"
            self.ids.append(id)
        try:
            image_id = self._id(values, "image_id", coco.images)
        except DataError as error:
            coco.problem(record, f"{error}: not used")
            return
        image = coco.images[image_id]
        try:
            category = coco.categories[self._id(values, "category_id", coco.categories)]
        except DataError as error:
            image.errors.append(f"{record} of {shown(coco.path)} {error}")
            return
        crowd, box = self._crowd(record, values), self._box(record, values)
        outline = None if self.table is not None else self._outline(record, values)
        instance = Instance(record, category, box, crowd, self._area(record, values), outline)
        if self.table is not None:
            self.table.add_odd(image_id, instance)
        else:
            image.instances.append(instance)

    def _id(self, values: Record, key: str, known: Container[int] | None = None) -> int:
        """A whole number, also where it is written as text or as 3.0."""
        value = values.get(key)
        if value is None:
            raise DataError(f"has no {key}")
        if not _is_id(value):
            raise DataError(f"has the {key} {str(value)[:40]!r}, expected a whole number")
        if isinstance(value, str):
            self.text_ids[key] += 1
        if known is not None and int(value) not in known:
            raise DataError(f"has the unknown {key} {int(value)}")
        return int(value)

    def _odd(self, record: str, values: Record, key: str, what: str) -> None:
        self.coco.problem(record, f"{key} is {str(values.get(key))[:40]!r}{what}")

    def _size(self, id: int, values: Record) -> tuple[int, int] | None:
        sides = values.get("height"), values.get("width")
        height, width = (_finite(side) or 0 for side in sides)
        if height >= 1 and width >= 1:
            return int(height), int(width)
        if sides != (None, None):
            text = f"{sides[0]}x{sides[1]}"
            self.coco.problem(f"image {id}", f"height and width are {text[:40]}: not used")
        return None

    def _box(self, record: str, values: Record) -> Corners | None:
        box = values.get("bbox")
        if box is None or box == []:
            return None
        numbers = [_finite(value) for value in box] if isinstance(box, list) else []
        if len(numbers) != 4 or None in numbers:
            self._odd(record, values, "bbox", ", expected left, top, width and height: not used")
            return None
        left, top, width, height = (float(number or 0) for number in numbers)
        return left, top, left + width, top + height

    def _crowd(self, record: str, values: Record) -> bool:
        crowd = values.get("iscrowd")
        if crowd in (None, 0, 1, "0", "1"):  # and False and True
            return crowd in (1, "1")
        self._odd(record, values, "iscrowd", ", expected 0 or 1: read as 0")
        return False

    def _area(self, record: str, values: Record) -> float | None:
        area = _finite(values.get("area"))
        if values.get("area") is not None and (area is None or area < 0):
            self._odd(record, values, "area", ": that of the box is used")
            return None
        return area

    def _outline(self, record: str, values: Record) -> Outline | None:
        outline = values.get("segmentation")
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


def _text(values: Record, key: str) -> str:
    value = values.get(key)
    if not isinstance(value, str) or not value or "\0" in value:
        raise DataError(f"has no {key}")
    return value


def _is_id(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip().isdecimal() and len(value) < 19
    number = _finite(value)
    return number is not None and number == int(number)


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


def draw(thing: Instance, height: int, width: int) -> NDArray[np.bool_]:
    """(h, w): the pixels of an object. An error names the object."""
    from faster_coco_eval.core import mask as runs  # type: ignore[import-untyped,unused-ignore]

    return np.asarray(runs.decode(runs_of(thing, height, width)), dtype=bool)


def in_pixels(thing: Instance, height: int, width: int, normalised: bool) -> Instance:
    """With its polygons in pixels of its image, if they are normalised."""
    if not normalised or thing.outline is None:
        return thing
    size = np.array([width, height])
    polygons = [(polygon.reshape(-1, 2) * size).ravel() for polygon in thing.outline]
    return thing._replace(outline=tuple(polygons))


def outline_corners(thing: Instance) -> Corners:
    """left, top, right, bottom around an outline, which is not None and not empty."""
    from faster_coco_eval.core import mask as runs  # type: ignore[import-untyped,unused-ignore]

    if not isinstance(thing.outline, dict):
        points = np.concatenate(thing.outline).reshape(-1, 2)
        (left, top), (right, bottom) = points.min(axis=0).tolist(), points.max(axis=0).tolist()
        return left, top, right, bottom
    left, top, wide, tall = map(float, runs.toBbox(runs_of(thing, *size_of_runs(thing.outline))))
    return left, top, left + wide, top + tall


def size_of_runs(outline: Any) -> tuple[int, int]:
    """Height and width that an RLE states for itself. A size that no image has is an error: so many
    pixels would be decoded."""
    size = outline.get("size") if isinstance(outline, dict) else None
    whole = isinstance(size, list) and len(size) == 2 and all(type(side) is int for side in size)
    if size is None or not whole or min(size) < 1 or size[0] * size[1] > MAX_PIXELS:
        raise DataError(
            f"its mask is {str(outline)[:60]!r}: expected an RLE with size (height and width, at "
            f"most {MAX_PIXELS:,} pixels) and counts"
        )
    return size[0], size[1]


def runs_of(thing: Instance, height: int, width: int) -> Runs:
    """The pixels of an object, as compressed RLE. An error names the object."""
    from faster_coco_eval.core import mask as runs  # type: ignore[import-untyped,unused-ignore]

    outline: Outline | None = thing.outline
    if outline is None:
        raise DataError(f"{thing.name} has no outline (segmentation) that can be drawn")
    try:
        if isinstance(outline, dict):
            if list(outline["size"]) != [height, width]:
                what = f"its RLE is for {outline['size']}, not for {[height, width]}"
                raise DataError(f"{thing.name}: {what}")
            counted = isinstance(outline["counts"], list)
            encoded = runs.frPyObjects(outline, height, width) if counted else outline
        elif not outline:
            empty = {"size": [height, width], "counts": [height * width]}
            encoded = runs.frPyObjects(empty, height, width)
        else:
            far = FARTHEST * max(height, width)
            if any(np.abs(polygon).max() > far for polygon in outline):
                raise DataError(f"{thing.name}: its outline lies far outside the image")
            polygons = [polygon.tolist() for polygon in outline]
            encoded = runs.merge(runs.frPyObjects(polygons, height, width))
        if isinstance(encoded["counts"], str):
            encoded = {**encoded, "counts": encoded["counts"].encode()}
        if isinstance(outline, dict):
            runs.decode(encoded)  # what cannot be decoded is an error here
        return encoded
    except (ValueError, RuntimeError, TypeError, OverflowError) as error:
        what = str(error).splitlines()[0]
        raise DataError(f"{thing.name}: its RLE cannot be decoded: {what}") from None
