"""The boxes of one image: which can be used, which are cut off, which are left out.

The same rules hold for every file format. A box that does not tell where its object is (no numbers,
an end before its beginning, wholly outside of the image) spoils its image: without it, the image
would teach that there is nothing. A box that encloses nothing, and one that is there a second time,
are left out; a box that reaches over the edge is cut off there. All of it is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from vitreous.errors import DataError

Corners = tuple[float, float, float, float]  # left, top, right, bottom

LARGEST = 1e9
"""Pixels, or parts: far beyond every image."""
THIN = 0.01
"""Pixels: what is thinner encloses nothing, and single precision could not tell its sides apart."""
ROUNDING = 0.01
"""Pixels over the edge that come from decimals cut short, and are nothing to tell."""
THIN_PART, PART_ROUNDING = 1e-6, 1e-4
"""The same where boxes are parts of the image."""
EDGE = 1.0
"""Pixels over the edge that are usual: whether one counts from 0 or from 1. They are counted."""

_TOLD = 5  # faults of one image that an error lists


@dataclass(frozen=True, slots=True)
class Box:
    """A record of a file."""

    name: str
    """What errors call it: `annotation 17`, `object 3 (cat)`, `line 5`."""
    label: int
    """The class inside the model."""
    corners: Corners
    """left, top, right, bottom; right and bottom are just outside."""
    crowd: bool = False
    """Neither learned nor counted: a region of many objects, or one that is too hard to see."""
    area: float | None = None
    """Of the object itself in pixels, where it is known: COCO calls objects small by it."""


@dataclass
class Sorted:
    """What is known of an image's boxes before its size is."""

    kept: list[Box] = field(default_factory=list)
    told: list[tuple[Box, str]] = field(default_factory=list)
    """What was left out or is odd, and why."""
    wrong: list[str] = field(default_factory=list)
    """What spoils the image."""


def sort_out(boxes: Iterable[Box], *, parts: bool = False) -> Sorted:
    """Which boxes can be used, wherever the edges of the image are. parts: of its sides."""
    result = Sorted()
    seen: dict[tuple[Corners, bool], dict[int, Box]] = {}
    for box in boxes:
        left, top, right, bottom = box.corners
        if not all(abs(value) < LARGEST for value in box.corners):  # NaN neither
            what = f"its box has numbers that no image has: {spelled(box.corners)}"
            result.wrong.append(f"{box.name}: {what}")
        elif right < left or bottom < top:
            what = f"its box ends before it begins: {spelled(box.corners)}"
            result.wrong.append(f"{box.name}: {what}")
        elif min(right - left, bottom - top) < (THIN_PART if parts else THIN):
            what = f"its box encloses nothing ({spelled(box.corners)}): left out"
            result.told.append((box, what))
        else:
            same = seen.setdefault((box.corners, box.crowd), {})
            if box.label in same:
                what = f"has the class and the box of {same[box.label].name}: left out"
                result.told.append((box, what))
                continue
            if same:
                first = next(iter(same.values())).name
                what = f"has the box of {first}, which is of another class: both are used"
                result.told.append((box, what))
            same[box.label] = box
            result.kept.append(box)
    return result


class Placed(NamedTuple):
    """Boxes in an image."""

    truth: dict[str, Tensor]
    """boxes (n, 4), labels (n,), crowd (n,), and, where objects' own areas are known, area (n,), as
    `Source.truth` gives them."""
    over: list[float]
    """How many pixels each box reached over the edge, before it was cut off there."""


def place(boxes: Sequence[Box], height: int, width: int, *, parts: bool = False) -> Placed:
    """What `sort_out` has kept, in pixels and cut off at the edges of the image.

    A box that lies outside is an error. The order stays.
    """
    size = np.array([width, height, width, height], np.float64)
    wide = np.array([box.corners for box in boxes], np.float64).reshape(-1, 4)
    wide = wide * size if parts else wide
    cut = wide.clip(0, size)
    outside = [
        f"{box.name}: nothing of its box is in the image of {height}x{width} (height x width): "
        f"{spelled(before)}"
        for box, before, (left, top, right, bottom) in zip(boxes, wide.tolist(), cut, strict=True)
        if min(right - left, bottom - top) < THIN
    ]
    if outside:
        raise DataError(together(outside))
    over = np.abs(wide - cut).max(axis=1, initial=0)
    truth = {
        "boxes": torch.from_numpy(cut.astype(np.float32)),
        "labels": torch.tensor([box.label for box in boxes], dtype=torch.int64),
        "crowd": torch.tensor([box.crowd for box in boxes], dtype=torch.bool),
    }
    if any(box.area is not None for box in boxes):
        sides = cut[:, 2:] - cut[:, :2]
        own = [box.area for box in boxes]
        areas = [
            box if area is None else area
            for area, box in zip(own, sides.prod(axis=1).tolist(), strict=True)
        ]
        truth["area"] = torch.tensor(areas, dtype=torch.float64)
    return Placed(truth, np.where(over > ROUNDING, over, 0).tolist())


def check_fits(
    said: tuple[int, int] | None, seen: tuple[int, int], turned: int, file: str = ""
) -> None:
    """An error where boxes may be for another image than the one that is read.

    said, seen: height and width that `file` says, and those of the image, which EXIF turned.
    """
    height, width = seen
    if said is not None and said != seen:
        turn = f" when it is turned as EXIF says (orientation {turned})" if turned != 1 else ""
        says = f"{file} says" if file else "says"
        raise DataError(
            f"{says} {said[0]}x{said[1]}, but the image is {height}x{width} (height x width)"
            f"{turn}: are the boxes for this image?"
        )
    told = said is not None and turned in (5, 6, 7, 8) and height != width
    if turned != 1 and not told:
        raise DataError(
            f"the image is turned by what EXIF says (orientation {turned}), and nothing tells "
            "whether its boxes are for the image as stored or as seen: save the image upright, "
            "without EXIF"
        )


def spelled(corners: Sequence[float]) -> str:
    names = ("left", "top", "right", "bottom")
    return ", ".join(f"{name} {value:g}" for name, value in zip(names, corners, strict=True))


def together(faults: Sequence[str]) -> str:
    """What is wrong with one image, in one line."""
    more = f" (and {len(faults) - _TOLD} more)" if len(faults) > _TOLD else ""
    return "; ".join(faults[:_TOLD]) + more
