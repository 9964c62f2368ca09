"""Mosaics (YOLOv4, Bochkovskiy et al. 2020, section 3.3): four images around one point, as one.

A mosaic is as large as the first image. Each of the four fills its quarter with a window of itself,
at a random scale: at the smallest it just covers the quarter, so that objects are small and many;
at the largest it would cover all of the mosaic, so that they are as large as ever, and many are
cut. Objects are clipped to their window, and move with it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from vitreous.data.augment import cropped, resized
from vitreous.data.preprocess import Preprocess
from vitreous.data.truth import Truth
from vitreous.errors import DataError

PARTS = 4
CENTRE = (0.25, 0.75)
"""Where the four meet, at least and at most, as a part of each side."""


def mosaic(
    parts: Sequence[tuple[Tensor, Any]], preprocess: Preprocess, moves: Truth, max_pixels: int
) -> tuple[Tensor, Any]:
    """Four images (c, h, w) as they are stored, with the same channels, and their ground truth ->
    one of the first one's size, with the ground truth of all. Draws from torch's RNG."""
    first = parts[0][0]
    height, width = first.shape[1:]
    middle = [max(round(side * _between(*CENTRE)), 1) for side in (height, width)]
    canvas, placed = torch.empty_like(first), []
    rows, columns = (
        ((0, at), (at, side)) for at, side in zip(middle, (height, width), strict=True)
    )
    corners = itertools.product(rows, columns)
    for (image, truth), ((top, bottom), (left, right)) in zip(parts, corners, strict=True):
        if image.dtype != first.dtype:
            raise DataError(
                f"is of {first.dtype}, and another image of {image.dtype}: they cannot be parts of "
                "one mosaic; pass mosaic=0"
            )
        size, quarter = image.shape[1:], (bottom - top, right - left)
        if 0 in quarter:  # of an image of one row
            continue
        smallest, largest = (
            max(want / have for want, have in zip(wanted, size, strict=True))
            for wanted in (quarter, (height, width))
        )
        factor = math.exp(_between(math.log(smallest), math.log(largest)))
        window = [
            min(max(round(want / factor), 1), have)
            for want, have in zip(quarter, size, strict=True)
        ]
        y, x = (int(torch.randint(a - b + 1, ())) for a, b in zip(size, window, strict=True))
        image, truth = cropped(image, truth, moves, y, x, *window)
        image, truth = resized(image, truth, moves, quarter, preprocess, max_pixels)
        canvas[:, top:bottom, left:right] = image
        placed.append((truth, top, left))
    return canvas, moves.mosaic(placed, (height, width))


def _between(low: float, high: float) -> float:
    return low + (high - low) * float(torch.rand(()))
