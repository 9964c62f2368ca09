"""The outlines of objects, polygons or COCO's RLE: how they are kept, and how they are drawn."""

from __future__ import annotations

from array import array
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vitreous.data.decode.pixels import MAX_PIXELS
from vitreous.errors import DataError
from vitreous.mask_parts import Runs, Size, coco_tools

Polygon = NDArray[np.float64]  # x, y, x, y …
Outline = tuple[Polygon, ...] | Runs
Corners = tuple[float, float, float, float]  # left, top, right, bottom

FARTHEST = 10
"""Times its size that an outline may reach out of an image; long lines take long to draw."""
_NONE, _RUNS = -1, -2


class OutlineColumns:
    """The outlines of all objects, by their numbers in the order in which they were added: points
    behind points, for millions of objects."""

    def __init__(self) -> None:
        self._points, self._ends = array("d"), array("q")
        """The coordinates of all polygons, and where each polygon ends."""
        self._objects = array("q")
        """Of each object: its first polygon, and how many it has, or _NONE or _RUNS."""
        self._runs: dict[int, Runs] = {}

    def add(self, outline: Outline | None) -> None:
        count = _NONE if outline is None else len(outline)
        if isinstance(outline, dict):
            self._runs[len(self._objects) // 2] = outline
            count = _RUNS
        self._objects.extend((len(self._ends), count))
        for polygon in outline if isinstance(outline, tuple) else ():
            self._points.frombytes(polygon.tobytes())
            self._ends.append(len(self._points))

    def __getitem__(self, number: int) -> Outline | None:
        first, count = self._objects[2 * number : 2 * number + 2]
        if count == _RUNS:
            return self._runs[number]
        if count == _NONE:
            return None
        ends = [self._ends[first - 1] if first else 0, *self._ends[first : first + count]]
        return tuple(np.array(self._points[start:stop]) for start, stop in pairwise(ends))

    def kinds(self) -> NDArray[np.int8]:
        """(objects,): -1 without an outline, 0 with one that encloses nothing, else 1."""
        counts = np.array(self._objects[1::2], np.int64)
        return np.where(counts == _RUNS, 1, counts.clip(-1, 1)).astype(np.int8)


def runs_of(
    outline: Outline | None, size: Size, name: str, *, normalised: bool = False
) -> dict[str, Any]:
    """The pixels of an object in an image of `size`, as compressed RLE. An error begins with its
    name. normalised: polygons are in 0..1 of the image's width and height."""
    height, width = size
    if outline is None:
        raise DataError(f"{name} has no outline (segmentation) that can be drawn")
    tools = coco_tools()
    try:
        if isinstance(outline, dict):
            if list(outline["size"]) != [height, width]:
                what = f"its RLE is for {outline['size']}, not for {[height, width]}"
                raise DataError(f"{name}: {what}")
            counted = isinstance(outline["counts"], list)
            encoded = tools.frPyObjects(outline, height, width) if counted else outline
        elif not outline:
            empty = {"size": [height, width], "counts": [height * width]}
            encoded = tools.frPyObjects(empty, height, width)
        else:
            sides = np.array([width, height] if normalised else [1, 1])
            polygons = [(polygon.reshape(-1, 2) * sides).ravel() for polygon in outline]
            if any(np.abs(each).max() > FARTHEST * max(height, width) for each in polygons):
                raise DataError(f"{name}: its outline lies far outside the image")
            points = [polygon.tolist() for polygon in polygons]
            encoded = tools.merge(tools.frPyObjects(points, height, width))
        if isinstance(encoded["counts"], str):
            encoded = {**encoded, "counts": encoded["counts"].encode()}
        if isinstance(outline, dict):
            tools.decode(encoded)  # what cannot be decoded is an error here
        return encoded
    except (ValueError, RuntimeError, TypeError, OverflowError) as error:
        what = str(error).splitlines()[0]
        raise DataError(f"{name}: its RLE cannot be decoded: {what}") from None


def outline_corners(outline: Outline, name: str) -> Corners:
    """left, top, right, bottom around an outline that is not empty."""
    if not isinstance(outline, dict):
        points = np.concatenate(outline).reshape(-1, 2)
        (left, top), (right, bottom) = points.min(axis=0).tolist(), points.max(axis=0).tolist()
        return left, top, right, bottom
    runs = runs_of(outline, size_of_runs(outline), name)
    left, top, wide, tall = map(float, coco_tools().toBbox(runs))
    return left, top, left + wide, top + tall


def size_of_runs(outline: Any) -> Size:
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
