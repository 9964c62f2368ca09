"""All annotated objects of a data set as columns of numbers, whatever files they come from.

Data sets have millions of objects, and columns take a sixth of what Python's objects would. A
format adds an `Annotation` for each image and a row for each object, in any order; `close` sorts
the rows by images.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import nan
from threading import Lock
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vitreous.data.objects.outlines import Corners, Outline, OutlineColumns
from vitreous.labels import IGNORED, External

UNKNOWN = -2
"""The label of a category that the data does not name."""


class AnnotatedObject(NamedTuple):
    """A row of the table."""

    number: int
    """COCO's id, or the place in a file, from 1."""
    category: External
    """The class as the file has it."""
    corners: Corners | None
    """left, top, right, bottom; right and bottom are just outside. None where the file has none."""
    crowd: bool = False
    """Neither learned nor counted: a region of many objects, or one that is too hard to see."""
    area: float | None = None
    """Of the object itself in pixels, where it is known: COCO calls objects small by it."""
    outline: Outline | None = None
    name: str = ""
    """What messages call it, if not by its number: `annotation 17`, `object 3 (cat)`, `line 5`."""


@dataclass(slots=True)
class Annotation:
    """What a file says of one image besides its objects, and where these are in the table."""

    size: tuple[int, int] | None = None
    """Height and width of the image, where the file has them."""
    file: str = ""
    """The image's name, where the file has it."""
    errors: list[str] = field(default_factory=list)
    """Why it is unknown what the image shows."""
    remarks: list[str] = field(default_factory=list)
    """Oddities that do not matter for the rest."""
    image: int = -1
    start: int = 0
    stop: int = 0

    @property
    def rows(self) -> slice:
        return slice(self.start, self.stop)


class ObjectTable:
    """names: what messages call an object, as "line {number}". Without `outlines` these are only
    counted: they are most of a file, and boxes do not need them."""

    def __init__(self, names: str, *, outlines: bool = False) -> None:
        self.names, self.images = names, list[Annotation]()
        self.categories: dict[External, int] = {}
        """Of all objects, numbered as they came."""
        self.outlined = 0
        """Objects with an outline."""
        self.outlines = OutlineColumns() if outlines else None
        self._own_names: dict[int, str] = {}
        self._whole, self._numbers, self._lock = array("q"), array("d"), Lock()

    def add_image(self, annotation: Annotation) -> Annotation:
        annotation.image = len(self.images)
        self.images.append(annotation)
        return annotation

    def add(self, annotation: Annotation, objects: Iterable[AnnotatedObject]) -> None:
        """Adds objects of an image; from any thread."""
        with self._lock:
            for one in objects:
                category = self.categories.setdefault(one.category, len(self.categories))
                if one.name:
                    self._own_names[len(self._whole) // 4] = one.name
                self._whole.extend((annotation.image, one.number, category, one.crowd))
                area = nan if one.area is None else one.area
                self._numbers.extend((*(one.corners or (nan,) * 4), area))
                self.outlined += one.outline is not None
                if self.outlines is not None:
                    self.outlines.add(one.outline)

    def close(self) -> ObjectTable:
        """Sorts the objects by images. Nothing can be added any more."""
        whole = np.frombuffer(self._whole, np.int64).reshape(-1, 4)
        numbers = np.frombuffer(self._numbers, np.float64).reshape(-1, 5)
        self.order = np.argsort(whole[:, 0], kind="stable")
        """(n,): which one it was when it was added."""
        self.numbers, self.codes = whole[self.order, 1], whole[self.order, 2]
        self.crowd = whole[self.order, 3].astype(bool)
        self.boxes, self.areas = numbers[self.order, :4], numbers[self.order, 4]
        ends = np.searchsorted(whole[self.order, 0], np.arange(len(self.images)), side="right")
        starts = [0, *ends[:-1].tolist()]
        self._spelled = list(self.categories)
        for annotation, start, stop in zip(self.images, starts, ends.tolist(), strict=True):
            annotation.start, annotation.stop = start, stop
        del whole, numbers, self._whole, self._numbers, self._lock
        return self

    def __len__(self) -> int:
        return len(self.order)

    def label(self, classes: Mapping[External, int]) -> None:
        """Gives each object its class, IGNORED, or UNKNOWN."""
        known = [classes.get(category, UNKNOWN) for category in self._spelled]
        self.labels = np.array(known, np.int64)[self.codes]

    def name(self, row: int) -> str:
        added, number = int(self.order[row]), int(self.numbers[row])
        return self._own_names.get(added) or self.names.format(
            number=number, category=self.category(row)
        )

    def category(self, row: int) -> External:
        return self._spelled[self.codes[row]]

    def outline(self, row: int) -> Outline | None:
        return None if self.outlines is None else self.outlines[int(self.order[row])]

    def outline_kinds(self) -> NDArray[np.int8]:
        """(n,): see `OutlineColumns.kinds`."""
        found = np.full(len(self), -1, np.int8) if self.outlines is None else self.outlines.kinds()
        return found[self.order]

    def objects(self, annotation: Annotation) -> Iterator[AnnotatedObject]:
        """The objects of one image, in the order of its file."""
        for row in range(annotation.start, annotation.stop):
            corners, area = tuple(self.boxes[row].tolist()), float(self.areas[row])
            yield AnnotatedObject(
                int(self.numbers[row]),
                self.category(row),
                None if np.isnan(corners[0]) else corners,
                bool(self.crowd[row]),
                None if np.isnan(area) else area,
                self.outline(row),
                self.name(row),
            )

    def keep(self, kept: NDArray[np.bool_]) -> None:
        """Leaves only these rows (n,)."""
        before = np.concatenate(([0], kept.cumsum())).tolist()
        for annotation in self.images:
            annotation.start, annotation.stop = before[annotation.start], before[annotation.stop]
        for column in ("order", "numbers", "codes", "crowd", "boxes", "areas", "labels"):
            setattr(self, column, getattr(self, column)[kept])

    def find_sound(self, thin: float, largest: float) -> NDArray[np.bool_]:
        """(n,): the rows that need no further check: they are used, and are boxes of a usual size
        that no other object of the image has."""
        left, top, right, bottom = self.boxes.T
        sound: NDArray[np.bool_] = np.abs(self.boxes).sum(axis=1) < largest  # false for NaN, too
        sound &= (np.minimum(right - left, bottom - top) >= thin) & (self.labels > IGNORED)
        images = np.repeat(
            [each.image for each in self.images], [e.stop - e.start for e in self.images]
        )
        order = np.lexsort((left, top, right, bottom, images))
        same = (self.boxes[order[1:]] == self.boxes[order[:-1]]).all(axis=1)
        sound[order[1:][same & (images[order[1:]] == images[order[:-1]])]] = False
        return sound
