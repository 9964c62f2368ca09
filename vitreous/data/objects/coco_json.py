"""COCO's JSON: images, categories, and objects with a box and an outline.

Many programs write it and few write it well. Records are checked one by one: a bad one is a
`Problem` that names the record, or makes the image that it belongs to unusable. Nothing is dropped
silently, and an odd record does not stop the reading.
"""

from __future__ import annotations

import json
import os
import re
from array import array
from collections import Counter, deque
from collections.abc import Container, Iterator
from typing import Any

import numpy as np

from vitreous.data.decode.images import shown
from vitreous.data.formats.files import read_text
from vitreous.data.objects.outlines import Corners, Outline, Polygon
from vitreous.data.objects.table import AnnotatedObject, Annotation, ObjectTable
from vitreous.data.source import Problem
from vitreous.errors import DataError

Record = dict[str, Any]
NAMES = "annotation {number}"
_LARGEST = 2**53  # whole numbers beyond are not exact in floating point
_TOKEN = re.compile(r"[ \t\n\r]*(.?)[ \t\n\r]*", re.DOTALL)


class JsonLists:
    """A JSON object with long lists, of which each record is decoded when it is needed: as Python
    objects, millions take many times the size of their text. Not JSON is a DataError."""

    def __init__(self, path: str) -> None:
        self._text = read_text(path).lstrip()
        self._decode = json.JSONDecoder().raw_decode
        self._places: dict[str, int] = {}
        """Where the value of each key begins; as with json, the last one of a key counts."""
        try:
            self._find_places()
        except (ValueError, RecursionError) as error:
            raise DataError(f"{shown(path)}: is not JSON: {error}") from None

    @property
    def keys(self) -> list[str] | None:
        """None where the file is not an object."""
        return list(self._places) if self._text.startswith("{") else None

    def has_list(self, key: str) -> bool:
        return key in self._places and self._text.startswith("[", self._places[key])

    def records(self, key: str) -> Iterator[Any]:
        """The values of a list, one after the other."""
        return (value for value, _ in self._items(self._places[key]))

    def _find_places(self) -> None:
        text = self._text
        if not text.startswith("{"):
            json.loads(text)
            return
        end, at = self._token(0, "{")
        if text.startswith("}", at):
            end, at = self._token(at, "}")
        while end != "}":
            if not text.startswith('"', at):
                expected = "Expecting property name enclosed in double quotes"
                raise json.JSONDecodeError(expected, text, at)
            key, at = self._decode(text, at)
            _, at = self._token(at, ":")
            self._places[key] = at
            end, at = self._token(self._skip(at), ",}")
        if at != len(text):
            raise json.JSONDecodeError("Extra data", text, at)

    def _skip(self, at: int) -> int:
        """Where a value ends; of a list only one record is held at a time."""
        if not self._text.startswith("[", at):
            return self._decode(self._text, at)[1]
        last = deque(self._items(at), maxlen=1)
        return last[0][1] if last else self._token(at, "[")[1] + 1

    def _items(self, at: int) -> Iterator[tuple[Any, int]]:
        """Each value of the list that begins here, and where the next one begins."""
        end, at = self._token(at, "[")
        if self._text.startswith("]", at):
            return
        while end != "]":
            value, at = self._decode(self._text, at)
            end, at = self._token(at, ",]")
            yield value, at

    def _token(self, at: int, expected: str) -> tuple[str, int]:
        """One of the expected characters, and where the spaces behind it end."""
        found = _TOKEN.match(self._text, at)
        if found is None or not found[1] or found[1] not in expected:
            what = f"Expecting {' or '.join(map(repr, expected))} delimiter"
            raise json.JSONDecodeError(what, self._text, found.start(1) if found else at)
        return found[1], found.end()


class Coco:
    """What a file has; its objects are added to the table. The category of an object is a name. A
    file that is not COCO's at all is a DataError."""

    def __init__(self, path: str, table: ObjectTable) -> None:
        self.path, self.table = path, table
        self.categories: dict[int, str] = {}
        self.images: dict[int, Annotation] = {}
        self.problems: list[Problem] = []
        self._text_ids = Counter[str]()
        self._files: dict[str, int] = {}
        self._ids = array("q")
        """Of annotations: millions, so not as Python's numbers."""
        self._read(JsonLists(path))

    def _read(self, values: JsonLists) -> None:
        for part in ("images", "annotations", "categories"):
            if not values.has_list(part):
                found = "is not" if values.keys is None else f"has {', '.join(values.keys[:8])}"
                raise DataError(
                    f"{shown(self.path)}: is not a COCO file of objects: expected an object with "
                    "lists of images, annotations and categories; it "
                    f"{found}, and no list {part!r}"
                )
        parts = {"categories": self._category, "images": self._image, "annotations": self._object}
        for part, read in parts.items():
            for number, record in enumerate(values.records(part)):
                read(number, record if isinstance(record, dict) else {})
        for key, count in self._text_ids.items():
            self._problem(key, f"{count} ids are text instead of numbers: read as numbers")
        ids, first, counts = np.unique(
            np.frombuffer(self._ids, np.int64), return_index=True, return_counts=True
        )
        if (twice := counts > 1).any():
            what = f"{twice.sum()} ids are used by several annotations"
            id = ids[twice][first[twice].argmin()]
            self._problem("annotations", f"{what}, {id} first: all are used")
        for part in ("categories", "images"):
            if not getattr(self, part):
                why = self.problems[0].what if any(values.records(part)) else "the list is empty"
                raise DataError(f"{shown(self.path)}: has no usable {part}: {why}")

    def _problem(self, record: str, what: str, *, fatal: bool = False) -> None:
        self.problems.append(Problem(f"{shown(self.path)}, {record}", what, fatal))

    # ---- records

    def _category(self, number: int, values: Record) -> None:
        try:
            id, name = self._id(values, "id"), _text(values, "name")
        except DataError as error:
            self._problem(f"category {number} of the list", f"{error}: not used")
            return
        if (known := self.categories.setdefault(id, name)) != name:
            what = f"category {id} is both {known!r} and {name!r}"
            raise DataError(f"{shown(self.path)}: {what}")

    def _image(self, number: int, values: Record) -> None:
        try:
            id, file = self._id(values, "id"), _text(values, "file_name")
        except DataError as error:
            self._problem(f"image {number} of the list", f"{error}: not used", fatal=True)
            return
        if (first := self.images.get(id)) is None:
            annotation = Annotation(self._size(id, values), file)
            first = self.images[id] = self.table.add_image(annotation)
        if first.file != file:
            self._problem(f"image {id}", f"is {first.file} and {file}: the second is not used")
            first.errors.append(f"its id {id} is also that of {file}: whose are the objects?")
        elif (other := self._files.setdefault(os.path.normpath(file), id)) != id:
            # One sample per file; its objects are in two places, and perhaps twice.
            del self.images[id]
            self._problem(f"image {id}", f"has the same file as image {other}: not used")
            self.images[other].errors.append(f"occurs twice, as image {other} and {id}: keep one")

    def _object(self, number: int, values: Record) -> None:
        try:
            id, name = self._id(values, "id"), ""
            self._ids.append(id)
        except DataError:
            id, name = 0, f"annotation {number} of the list"
        record = name or f"annotation {id}"
        try:
            image = self.images[self._id(values, "image_id", self.images)]
        except DataError as error:
            self._problem(record, f"{error}: not used")
            return
        try:
            category = self.categories[self._id(values, "category_id", self.categories)]
        except DataError as error:
            image.errors.append(f"{record} of {shown(self.path)} {error}")
            return
        crowd, box = self._crowd(record, values), self._box(record, values)
        outline, area = self._outline(record, values), self._area(record, values)
        self.table.add(image, (AnnotatedObject(id, category, box, crowd, area, outline, name),))

    # ---- values

    def _id(self, values: Record, key: str, known: Container[int] | None = None) -> int:
        """A whole number, also where it is written as text or as 3.0."""
        value = values.get(key)
        if type(value) is int and (
            value in known if known is not None else -_LARGEST < value < _LARGEST
        ):
            return value  # as nearly all are, of millions
        if value is None:
            raise DataError(f"has no {key}")
        if not _is_id(value):
            raise DataError(f"has the {key} {str(value)[:40]!r}, expected a whole number")
        if isinstance(value, str):
            self._text_ids[key] += 1
        if known is not None and int(value) not in known:
            raise DataError(f"has the unknown {key} {int(value)}")
        return int(value)

    def _odd(self, record: str, values: Record, key: str, what: str) -> None:
        self._problem(record, f"{key} is {str(values.get(key))[:40]!r}{what}")

    def _size(self, id: int, values: Record) -> tuple[int, int] | None:
        sides = values.get("height"), values.get("width")
        height, width = (_finite(side) or 0 for side in sides)
        if height >= 1 and width >= 1:
            return int(height), int(width)
        if sides != (None, None):
            text = f"{sides[0]}x{sides[1]}"
            self._problem(f"image {id}", f"height and width are {text[:40]}: not used")
        return None

    def _box(self, record: str, values: Record) -> Corners | None:
        box = values.get("bbox")
        if box is None or box == []:
            return None
        if isinstance(box, list) and len(box) == 4 and None not in map(_finite, box):
            left, top, width, height = map(float, box)
            return left, top, left + width, top + height
        self._odd(record, values, "bbox", ", expected left, top, width and height: not used")
        return None

    def _crowd(self, record: str, values: Record) -> bool:
        crowd = values.get("iscrowd")
        if crowd in (None, 0, 1, "0", "1"):  # and False and True
            return crowd in (1, "1")
        self._odd(record, values, "iscrowd", ", expected 0 or 1: read as 0")
        return False

    def _area(self, record: str, values: Record) -> float | None:
        given = values.get("area")
        area = _finite(given)
        if given is not None and (area is None or area < 0):
            self._odd(record, values, "area", ": that of the box is used")
            return None
        return area

    def _outline(self, record: str, values: Record) -> Outline | None:
        if self.table.outlines is None:
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
                self._problem(record, what)
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
    is_number = type(value) is int or type(value) is float
    return value if is_number and -_LARGEST < value < _LARGEST else None


def _numbers(values: Any) -> Polygon | None:
    """A list of numbers; an outline may have thousands, and a file millions."""
    try:
        numbers = np.array(values if isinstance(values, list) else None)
    except ValueError:  # lists in it
        return None
    plain = numbers.ndim == 1 and (numbers.dtype.kind in "if" or not numbers.size)
    return numbers.astype(np.float64) if plain and np.isfinite(numbers).all() else None
