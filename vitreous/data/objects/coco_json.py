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

from vitreous.data.decode.images import shown
from vitreous.data.objects.json_lists import JsonLists
from vitreous.data.objects.outlines import Corners, Outline, Polygon
from vitreous.data.objects.table import AnnotatedObject, Annotation, ObjectTable
from vitreous.data.source import Problem
from vitreous.errors import DataError

Record = dict[str, Any]
NAMES = "annotation {number}"

_LARGEST = 2**53  # whole numbers beyond are not exact in floating point
_NUMBERS = {int, float}
_FIELDS = itemgetter("id", "image_id", "category_id", "iscrowd", "bbox", "area")


@dataclass
class Coco:
    """What a file has. The category of an object is a name."""

    path: str
    table: ObjectTable
    categories: dict[int, str] = field(default_factory=dict)
    images: dict[int, Annotation] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def problem(self, record: str, what: str, *, fatal: bool = False) -> None:
        self.problems.append(Problem(f"{shown(self.path)}, {record}", what, fatal))


def read_coco(path: str, table: ObjectTable) -> Coco:
    """Adds the objects of a file to the table. A file that is not COCO's at all is a DataError."""
    values = _load(path)
    coco = Coco(path, table)
    reader = _CocoReader(coco)
    parts = {
        "categories": reader.category,
        "images": reader.image,
        "annotations": reader.instance,
    }
    for part, read in parts.items():
        for number, record in enumerate(values.records(part)):
            read(number, record if isinstance(record, dict) else {})
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
class _CocoReader:
    """Adds one record after the other to `coco`."""

    coco: Coco
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
        if (first := images.get(id)) is None:
            annotation = Annotation(self._size(id, values), file)
            first = images[id] = self.coco.table.add_image(annotation)
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
        found = self._plain(values) or self._checked(number, values)
        if found is not None:
            image, one = found
            self.coco.table.add(image, (one,))

    def _plain(self, values: Record) -> tuple[Annotation, AnnotatedObject] | None:
        """The image and the object of a record whose values are all as COCO writes them: nearly all
        are, of millions. None where anything is odd."""
        try:
            id, image_id, category_id, crowd, box, area = _FIELDS(values)
        except KeyError:
            return None
        coco = self.coco
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
            return None
        self.ids.append(id)
        left, top, width, height = map(float, box)
        outline = None
        if coco.table.outlines is not None:
            outline = self._outline(f"annotation {id}", values)
        corners = (left, top, left + width, top + height)
        return coco.images[image_id], AnnotatedObject(
            id, coco.categories[category_id], corners, crowd == 1, area, outline
        )

    def _checked(self, number: int, values: Record) -> tuple[Annotation, AnnotatedObject] | None:
        """The same of any record: what is odd is reported. None where it belongs nowhere."""
        coco, record, id = self.coco, f"annotation {number} of the list", 0
        if _is_id(values.get("id")):
            id = self._id(values, "id")
            record = f"annotation {id}"
            self.ids.append(id)
        try:
            image = coco.images[self._id(values, "image_id", coco.images)]
        except DataError as error:
            coco.problem(record, f"{error}: not used")
            return None
        try:
            category = coco.categories[self._id(values, "category_id", coco.categories)]
        except DataError as error:
            image.errors.append(f"{record} of {shown(coco.path)} {error}")
            return None
        crowd, box = self._crowd(record, values), self._box(record, values)
        outline, area = self._outline(record, values), self._area(record, values)
        return image, AnnotatedObject(id, category, box, crowd, area, outline, record)

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
        if self.coco.table.outlines is None:
            return None
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
