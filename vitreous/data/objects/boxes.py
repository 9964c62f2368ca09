"""Which boxes can be used: the same rules for every format.

A box that does not tell where its object is (not a number, an end before its beginning, wholly
outside the image) makes its image unusable: without it, the image would teach that there is
nothing. A box without area and a box that occurs twice are left out. A box that reaches over the
edge is cut off there. All of it is reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from vitreous.data.objects.outlines import Corners
from vitreous.data.objects.table import AnnotatedObject, Annotation, ObjectTable
from vitreous.errors import DataError
from vitreous.labels import External
from vitreous.mask_parts import Size

LARGEST = 1e9
"""In pixels, or normalised: far beyond every image."""
THIN = 0.01
"""Pixels: a thinner box has no area; single precision could not tell its sides apart."""
ROUNDING = 0.01
"""Pixels over the edge that come from rounded decimals, and are not reported."""
THIN_NORMALISED, ROUNDING_NORMALISED = 1e-6, 1e-4
"""The same where boxes are normalised by the image's width and height."""
_LISTED = 5  # errors of one image in one message


class BoxVerdict(NamedTuple):
    """What is to be done with a box, as far as the size of its image does not matter."""

    kept: bool
    remark: str = ""
    """Why it is left out, or what is odd about it."""
    error: str = ""
    """Why the image is unusable."""


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
        elif min(right - left, bottom - top) < (THIN_NORMALISED if normalised else THIN):
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
