"""Images with boxes: which boxes can be used, and the Source of every format that has boxes.

The same rules hold for every format. A box that does not tell where its object is (not a number, an
end before its beginning, wholly outside the image) makes its image unusable: without it, the image
would teach that there is nothing. A box without area and a box that occurs twice are left out. A
box that reaches over the edge is cut off there. All of it is reported.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from vitreous.data.decode.images import displayed_size, shown, size_mismatch
from vitreous.data.formats.files import FileSource
from vitreous.data.source import Problem, Sample
from vitreous.errors import DataError

Corners = tuple[float, float, float, float]  # left, top, right, bottom

LARGEST = 1e9
"""In pixels, or normalised: far beyond every image."""
THIN = 0.01
"""Pixels: a thinner box has no area; single precision could not tell its sides apart."""
ROUNDING = 0.01
"""Pixels over the edge that come from rounded decimals, and are not reported."""
THIN_NORMALISED, ROUNDING_NORMALISED = 1e-6, 1e-4
"""The same where boxes are normalised by the image's width and height."""
EDGE = 1.0
"""Pixels over the edge that come from counting from 0 or from 1. They are counted, not listed."""

_LISTED = 5  # errors of one image in one message


@dataclass(frozen=True, slots=True)
class Box:
    """A record of a file."""

    name: str
    """What messages call it: `annotation 17`, `object 3 (cat)`, `line 5`."""
    label: int
    """The class, from 0."""
    corners: Corners
    """left, top, right, bottom; right and bottom are just outside."""
    crowd: bool = False
    """Neither learned nor counted: a region of many objects, or one that is too hard to see."""
    area: float | None = None
    """Of the object itself in pixels, where it is known: COCO calls objects small by it."""


@dataclass
class CheckedBoxes:
    """The boxes of an image, checked as far as its size does not matter."""

    kept: list[Box] = field(default_factory=list)
    remarks: list[tuple[Box, str]] = field(default_factory=list)
    """Boxes that were left out or are odd, and why."""
    errors: list[str] = field(default_factory=list)
    """Why the image is unusable."""


def check_corners(boxes: Iterable[Box], *, normalised: bool = False) -> CheckedBoxes:
    result = CheckedBoxes()
    seen: dict[tuple[Corners, bool], dict[int, Box]] = {}
    for box in boxes:
        left, top, right, bottom = box.corners
        if not all(abs(value) < LARGEST for value in box.corners):  # also false for NaN
            what = f"its box has impossible numbers: {spelled(box.corners)}"
            result.errors.append(f"{box.name}: {what}")
        elif right < left or bottom < top:
            what = f"its box ends before it begins: {spelled(box.corners)}"
            result.errors.append(f"{box.name}: {what}")
        elif min(right - left, bottom - top) < (THIN_NORMALISED if normalised else THIN):
            what = f"its box has no area ({spelled(box.corners)}): left out"
            result.remarks.append((box, what))
        else:
            same = seen.setdefault((box.corners, box.crowd), {})
            if box.label in same:
                what = f"has the class and the box of {same[box.label].name}: left out"
                result.remarks.append((box, what))
                continue
            if same:
                first = next(iter(same.values())).name
                what = f"has the box of {first}, but another class: both are used"
                result.remarks.append((box, what))
            same[box.label] = box
            result.kept.append(box)
    return result


class PlacedBoxes(NamedTuple):
    """Boxes in pixels of their image."""

    truth: dict[str, Tensor]
    """boxes (n, 4), labels (n,), crowd (n,), and, where objects' own areas are known, area (n,), as
    `Source.truth` gives them."""
    over: list[float]
    """How many pixels each box reached over the edge, before it was cut off there."""


def place(
    boxes: Sequence[Box], height: int, width: int, *, normalised: bool = False
) -> PlacedBoxes:
    """Checked boxes in pixels, cut off at the edges of the image; their order stays.

    A box outside the image is an error.
    """
    size = np.array([width, height, width, height], np.float64)
    given = np.array([box.corners for box in boxes], np.float64).reshape(-1, 4)
    given = given * size if normalised else given
    cut = given.clip(0, size)
    outside = [
        f"{box.name}: its box is outside the image of {height}x{width} (height x width): "
        f"{spelled(before)}"
        for box, before, (left, top, right, bottom) in zip(boxes, given.tolist(), cut, strict=True)
        if min(right - left, bottom - top) < THIN
    ]
    if outside:
        raise DataError(joined(outside))
    over = np.abs(given - cut).max(axis=1, initial=0)
    truth = {
        "boxes": torch.from_numpy(cut.astype(np.float32)),
        "labels": torch.tensor([box.label for box in boxes], dtype=torch.int64),
        "crowd": torch.tensor([box.crowd for box in boxes], dtype=torch.bool),
    }
    if any(box.area is not None for box in boxes):
        whole = (cut[:, 2:] - cut[:, :2]).prod(axis=1).tolist()
        areas = [
            area if box.area is None else box.area for box, area in zip(boxes, whole, strict=True)
        ]
        truth["area"] = torch.tensor(areas, dtype=torch.float64)
    return PlacedBoxes(truth, np.where(over > ROUNDING, over, 0).tolist())


def spelled(corners: Sequence[float]) -> str:
    names = ("left", "top", "right", "bottom")
    return ", ".join(f"{name} {value:g}" for name, value in zip(names, corners, strict=True))


def joined(errors: Sequence[str]) -> str:
    """The errors of one image, in one line."""
    more = f" (and {len(errors) - _LISTED} more)" if len(errors) > _LISTED else ""
    return "; ".join(errors[:_LISTED]) + more


@dataclass
class BoxSource(FileSource):
    """A sample's target is the path below `root` of the file that has its boxes, or "" where it has
    none. The dictionaries are by the sample's id."""

    objects: dict[str, tuple[Box, ...]] = field(default_factory=dict, kw_only=True, repr=False)
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict, kw_only=True, repr=False)
    """The height and width that the file of the boxes gives."""
    unusable: dict[str, str] = field(default_factory=dict, kw_only=True)
    """Why it is unknown what the image shows."""
    normalised: bool = field(default=False, kw_only=True)
    """Boxes are in 0..1 of the image's width and height, not in pixels."""
    ignored: Counter[str] = field(default_factory=Counter, kw_only=True)
    """How many objects there are of each class that the names file ignores."""
    image_ids: dict[str, int] = field(default_factory=dict, kw_only=True, repr=False)
    """The number that a COCO file gives to the image."""

    def truth(self, sample: Sample) -> dict[str, Tensor]:
        return self.placed(sample).truth

    def placed(self, sample: Sample) -> PlacedBoxes:
        """The boxes of an image, and which of them were cut off at its edge."""
        if sample.id in self.unusable:
            raise DataError(f"{self._begin(sample)}: {self.unusable[sample.id]}")
        height, width, turned = displayed_size(self.file(sample), max_pixels=self.max_pixels)
        try:
            size = self.sizes.get(sample.id)
            if mismatch := size_mismatch(size, (height, width), turned, self._boxes_are(sample)):
                raise DataError(mismatch)
            return place(self.objects[sample.id], height, width, normalised=self.normalised)
        except DataError as error:
            raise DataError(f"{self._begin(sample)}: {error}") from None

    def annotation(self, sample: Sample) -> str:
        """What messages call the file that has the boxes of a sample."""
        return str(sample.target) or sample.id

    def record(self, sample: Sample, name: str) -> str:
        """What messages call a record of that file."""
        return f"{self.annotation(sample)}, {name}"

    def cut_off(self, sample: Sample, placed: PlacedBoxes) -> list[Problem]:
        """The boxes that reach over the edge of the image by more than the usual pixel."""
        return [
            Problem(
                self.record(sample, box.name),
                f"its box reaches {far:.4g} pixels over the edge of the image: cut off there",
                fatal=False,
            )
            for box, far in zip(self.objects[sample.id], placed.over, strict=True)
            if far > EDGE
        ]

    def files(self, sample: Sample) -> dict[str, str]:
        images = super().files(sample)
        return images | {sample.target: self.path(sample.target)} if sample.target else images

    def _begin(self, sample: Sample) -> str:
        """An error begins with the file that has to be changed."""
        return shown(self.path(sample.target)) if sample.target else self.where(sample)

    def _boxes_are(self, sample: Sample) -> str:
        """Before the size that the file of the boxes gives."""
        return "its boxes are for an image of"

    def put(self, sample: Sample, boxes: Iterable[Box], errors: Iterable[str] = ()) -> None:
        """Adds what a file has for an image; `errors` make it unusable."""
        checked = check_corners(boxes, normalised=self.normalised)
        self.objects[sample.id] = tuple(checked.kept)
        self.problems += [
            Problem(self.record(sample, box.name), what, fatal=False)
            for box, what in checked.remarks
        ]
        if all_errors := [*errors, *checked.errors]:
            self.unusable[sample.id] = joined(all_errors)

    def add_notes(self) -> None:
        """Once all boxes are there: what each split has that should not be overlooked."""
        for category, count in self.ignored.items():
            self.notes.append(f"{count} objects of {category} are ignored: the names file has null")
        for split, samples in self.splits.items():
            bad = [sample.id for sample in samples if sample.id in self.unusable]
            good = [sample.id for sample in samples if sample.id not in self.unusable]
            if empty := sum(not self.objects[id] for id in good):
                self.notes.append(f"{split}: {empty} images have no objects")
            if over := sum(map(self._over, good)):
                what = "boxes reach over the edge of their image and are cut off there"
                self.notes.append(f"{split}: {over} {what}")
            if bad:
                what = "images have boxes that cannot be used"
                self.notes.append(f"{split}: {len(bad)} {what}: {bad[0]} …")

    def _over(self, id: str) -> int:
        """How many boxes reach over the edge, as far as the size of the image is known."""
        height, width = (1, 1) if self.normalised else self.sizes.get(id, (math.inf, math.inf))
        slack = ROUNDING_NORMALISED if self.normalised else ROUNDING
        return sum(
            left < -slack or top < -slack or right > width + slack or bottom > height + slack
            for left, top, right, bottom in (box.corners for box in self.objects[id])
        )
