"""Objects in images, as files have them, and which of their boxes can be used.

The same rules hold for every format. A box that does not tell where its object is (not a number, an
end before its beginning, wholly outside the image) makes its image unusable: without it, the image
would teach that there is nothing. A box without area and a box that occurs twice are left out. A
box that reaches over the edge is cut off there. All of it is reported.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from vitreous.errors import DataError
from vitreous.labels import External

Corners = tuple[float, float, float, float]  # left, top, right, bottom

LARGEST = 1e9
"""In pixels, or normalised: far beyond every image."""
THIN = 0.01
"""Pixels: a thinner box has no area; single precision could not tell its sides apart."""
ROUNDING = 0.01
"""Pixels over the edge that come from rounded decimals, and are not reported."""
THIN_NORMALISED, ROUNDING_NORMALISED = 1e-6, 1e-4
"""The same where boxes are normalised by the image's width and height."""
_LISTED = 5  # errors of one image in one message


# ---- what files have


class Instance(NamedTuple):
    """An object in an image. A data set may have millions."""

    name: str
    """What messages call it: `annotation 17`, `object 3 (cat)`, `line 5`."""
    category: External
    """The class as the file has it."""
    corners: Corners | None
    """left, top, right, bottom; right and bottom are just outside. None where the file has none."""
    crowd: bool = False
    """Neither learned nor counted: a region of many objects, or one that is too hard to see."""
    area: float | None = None
    """Of the object itself in pixels, where it is known: COCO calls objects small by it."""
    outline: Any = None
    """COCO's polygons or runs of pixels, where they are asked for."""


@dataclass
class Annotation:
    """What a file says of one image."""

    instances: Any = field(default_factory=list)
    """A sequence of `Instance`: a list, or the rows of a table."""
    size: tuple[int, int] | None = None
    """Height and width of the image, where the file has them."""
    file: str = ""
    """The image's name, where the file has it."""
    errors: list[str] = field(default_factory=list)
    """Why it is unknown what the image shows."""
    remarks: list[str] = field(default_factory=list)
    """Oddities that do not matter for the rest."""


def finite(text: str) -> float | None:
    """A number that is written as text; None where it is not one."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


# ---- the rules for boxes


class CheckedBoxes(NamedTuple):
    """Boxes, checked as far as the size of their image does not matter."""

    kept: list[Instance]
    remarks: list[tuple[Instance, str]]
    """Boxes that were left out or are odd, and why."""
    errors: list[str]
    """Why the image is unusable."""


def check_corners(boxes: Sequence[Instance], *, normalised: bool = False) -> CheckedBoxes:
    kept, remarks, errors = result = CheckedBoxes([], [], [])
    seen: dict[tuple[Corners, bool], dict[External, Instance]] = {}
    for box in boxes:
        if box.corners is None:
            errors.append(f"{box.name} has no usable box")
            continue
        left, top, right, bottom = box.corners
        if not abs(left) + abs(top) + abs(right) + abs(bottom) < LARGEST:  # also false for NaN
            errors.append(f"{box.name}: its box has impossible numbers: {spelled(box.corners)}")
        elif right < left or bottom < top:
            errors.append(f"{box.name}: its box ends before it begins: {spelled(box.corners)}")
        elif min(right - left, bottom - top) < (THIN_NORMALISED if normalised else THIN):
            remarks.append((box, f"its box has no area ({spelled(box.corners)}): left out"))
        else:
            same = seen.setdefault((box.corners, box.crowd), {})
            if first := same.get(box.category):
                remarks.append((box, f"has the class and the box of {first.name}: left out"))
                continue
            if same:
                first = next(iter(same.values()))
                what = f"has the box of {first.name}, but another class: both are used"
                remarks.append((box, what))
            same[box.category] = box
            kept.append(box)
    return result


class PlacedBoxes(NamedTuple):
    """Boxes in pixels of their image."""

    truth: dict[str, Tensor]
    """boxes (n, 4), labels (n,), crowd (n,), and, where objects' own areas are known, area (n,), as
    `Source.truth` gives them."""
    over: list[float]
    """How many pixels each box reached over the edge, before it was cut off there."""


def place(
    boxes: Sequence[Instance],
    classes: dict[External, int],
    height: int,
    width: int,
    *,
    normalised: bool = False,
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
        "labels": torch.tensor([classes[box.category] for box in boxes], dtype=torch.int64),
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
