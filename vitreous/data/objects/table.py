"""All annotated objects of a data set as columns of numbers, whatever files they come from; and
which of their boxes can be used, by the same rules for every format.

Data sets have millions of objects, and columns take a sixth of what Python's objects would. A
format adds an `Annotation` for each image and a row for each object, in any order; `close` sorts
the rows by images.

A box that does not tell where its object is (not a number, an end before its beginning, wholly
outside the image) makes its image unusable: without it, the image would teach that there is
nothing. A box without area and a box that occurs twice are left out. A box that reaches over the
edge is cut off there. All of it is reported.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from threading import Lock
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vitreous.data.objects.outlines import Corners, Outline, OutlineColumns
from vitreous.errors import DataError
from vitreous.labels import IGNORED, External
from vitreous.mask_parts import Size

UNKNOWN = -2
"""The label of a category that the data does not name."""
LARGEST = 1e9
"""In pixels, or normalised: far beyond every image."""
THIN = 0.01
"""Pixels: a thinner box has no area; single precision could not tell its sides apart."""
ROUNDING = 0.01
"""Pixels over the edge that come from rounded decimals, and are not reported."""
THIN_NORMALISED, ROUNDING_NORMALISED = 1e-6, 1e-4
"""The same where boxes are normalised by the image's width and height."""
_LISTED = 5  # errors of one image in one message


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

    def find_sound(self, *, normalised: bool) -> NDArray[np.bool_]:
        """(n,): the rows that need no further check: they are used, and are boxes of a usual size
        that no other object of the image has."""
        left, top, right, bottom = self.boxes.T
        sound: NDArray[np.bool_] = np.abs(self.boxes).sum(axis=1) < LARGEST  # false for NaN, too
        sound &= (np.minimum(right - left, bottom - top) >= _thin(normalised)) & (
            self.labels > IGNORED
        )
        images = np.repeat(
            [each.image for each in self.images], [e.stop - e.start for e in self.images]
        )
        order = np.lexsort((left, top, right, bottom, images))
        same = (self.boxes[order[1:]] == self.boxes[order[:-1]]).all(axis=1)
        sound[order[1:][same & (images[order[1:]] == images[order[:-1]])]] = False
        return sound


# ---- which boxes can be used


class BoxVerdict(NamedTuple):
    """What is to be done with a box, as far as the size of its image does not matter."""

    kept: bool
    remark: str = ""
    """Why it is left out, or what is odd about it."""
    error: str = ""
    """Why the image is unusable."""


def _thin(normalised: bool) -> float:
    return THIN_NORMALISED if normalised else THIN


def check_corners(
    boxes: Iterable[AnnotatedObject], *, normalised: bool = False
) -> Iterator[BoxVerdict]:
    """For each box of one image."""
    seen: dict[tuple[Corners, bool], dict[External, str]] = {}
    for box in boxes:
        if box.corners is None:
            yield BoxVerdict(False, error=f"{box.name} has no usable box")
            continue
        left, top, right, bottom = box.corners
        where = spelled(box.corners)
        if not abs(left) + abs(top) + abs(right) + abs(bottom) < LARGEST:  # also false for NaN
            yield BoxVerdict(False, error=f"{box.name}: its box has impossible numbers: {where}")
        elif right < left or bottom < top:
            yield BoxVerdict(False, error=f"{box.name}: its box ends before it begins: {where}")
        elif min(right - left, bottom - top) < _thin(normalised):
            yield BoxVerdict(False, f"its box has no area ({where}): left out")
        else:
            same = seen.setdefault((box.corners, box.crowd), {})
            if box.category in same:
                what = f"has the class and the box of {same[box.category]}: left out"
                yield BoxVerdict(False, what)
                continue
            first = next(iter(same.values()), "")
            same[box.category] = box.name
            other = f"has the box of {first}, but another class: both are used" if first else ""
            yield BoxVerdict(True, other)


class CutBoxes(NamedTuple):
    """Boxes in pixels of their image."""

    truth: dict[str, Tensor]
    """boxes (n, 4), labels (n,), crowd (n,), and, where objects' own areas are known, area (n,), as
    `Source.truth` gives them."""
    over: list[float]
    """How many pixels each box reached over the edge, before it was cut off there."""


def cut_to_image(
    table: ObjectTable, annotation: Annotation, size: Size, *, normalised: bool = False
) -> CutBoxes:
    """The checked boxes of an image in pixels, cut off at its edges; their order stays. A box
    outside the image is an error."""
    height, width = size
    sides = np.array([width, height, width, height], np.float64)
    given = table.boxes[annotation.rows] * (sides if normalised else 1)
    cut = given.clip(0, sides)
    small = (cut[:, 2:] - cut[:, :2]).min(axis=1, initial=np.inf) < THIN
    if small.any():
        raise DataError(
            errors_in_line(
                [
                    f"{table.name(annotation.start + place)}: its box is outside the image of "
                    f"{height}x{width} (height x width): {spelled(given[place])}"
                    for place in np.flatnonzero(small).tolist()
                ]
            )
        )
    over = np.abs(given - cut).max(axis=1, initial=0)
    truth = {
        "boxes": torch.from_numpy(cut.astype(np.float32)),
        "labels": torch.from_numpy(table.labels[annotation.rows].copy()),
        "crowd": torch.from_numpy(table.crowd[annotation.rows].copy()),
    }
    areas = table.areas[annotation.rows]
    if not np.isnan(areas).all():
        whole = (cut[:, 2:] - cut[:, :2]).prod(axis=1)
        truth["area"] = torch.from_numpy(np.where(np.isnan(areas), whole, areas))
    return CutBoxes(truth, np.where(over > ROUNDING, over, 0).tolist())


def spelled(corners: Sequence[float]) -> str:
    names = ("left", "top", "right", "bottom")
    return ", ".join(f"{name} {value:g}" for name, value in zip(names, corners, strict=True))


def errors_in_line(errors: Sequence[str]) -> str:
    """The errors of one image, in one line."""
    more = f" (and {len(errors) - _LISTED} more)" if len(errors) > _LISTED else ""
    return "; ".join(errors[:_LISTED]) + more
