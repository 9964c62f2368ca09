"""The mask of an object as a model gives it: logits on a grid over an image, or over tiles of it.

It is drawn, or encoded as COCO's runs of pixels, when it is asked for: a dense mask has a byte for
each pixel of the image, and an image may have hundreds of objects.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Size = tuple[int, int]
"""Height and width."""
Runs = dict[str, Any]
"""{"size": [height, width], "counts": bytes}, compressed as COCO's tools do it."""


class MaskPart(NamedTuple):
    """Where an object is in an image, or in a tile of it, as the model gives it: logits on a grid
    over that region. Only cells around the object need be kept."""

    logits: NDArray[np.float16]
    """(h', w'): above 0 inside; all other cells of the grid are outside."""
    corner: tuple[int, int]
    """Row and column of the first one,"""
    grid: tuple[int, int]
    """in a grid of so many rows and columns,"""
    region: tuple[int, int, int, int]
    """which covers this: top, left, height and width in pixels of the image."""

    @classmethod
    def whole(cls, logits: NDArray[np.float16], size: Size) -> MaskPart:
        """Of an image of this size, with all cells."""
        rows, columns = logits.shape
        return cls(logits, (0, 0), (rows, columns), (0, 0, *size))

    def trimmed(self) -> MaskPart:
        """The same mask by as few cells as it needs: those inside and their neighbours. What is not
        finite is kept, to be found."""
        inside = ~(self.logits <= 0)
        spans = [np.flatnonzero(inside.any(axis=axis)) for axis in (1, 0)]
        first = [max(span[0] - 1, 0) if len(span) else 0 for span in spans]
        last = [span[-1] + 2 if len(span) else 0 for span in spans]
        kept = self.logits[first[0] : last[0], first[1] : last[1]].copy()
        corner = (self.corner[0] + int(first[0]), self.corner[1] + int(first[1]))
        return self._replace(logits=kept, corner=corner)

    def cells(self) -> NDArray[np.float16]:
        """Of the whole grid."""
        found = np.full(self.grid, -1, np.float16)
        (top, left), (height, width) = self.corner, self.logits.shape
        found[top : top + height, left : left + width] = self.logits
        return found

    def of(self, image: NDArray[Any]) -> NDArray[Any]:
        """(h, w) -> (height, width): a view of the region."""
        top, left, height, width = self.region
        return image[top : top + height, left : left + width]

    def dense(self) -> NDArray[np.bool_]:
        """(height, width) of the region."""
        return enlarged(self.cells(), self.region[2:])


MaskParts = tuple[MaskPart, ...]
"""One mask: that of the whole image, if it is among them, then those of tiles, which replace it
where they look, and are united with each other."""


def united(parts: MaskParts, size: Size) -> NDArray[np.bool_]:
    """(h, w)"""
    found = np.zeros(size, bool)
    tiles = [part for part in parts if part.region[2:] != size]
    for part in parts:
        if part.region[2:] == size:
            found |= part.dense()
    for part in tiles:
        part.of(found)[:] = False
    for part in tiles:
        part.of(found)[:] |= part.dense()
    return found


def encoded(parts: MaskParts, size: Size) -> Runs:
    """Of what `united` draws; where there are only tiles, the image is not drawn."""
    if all(part.region[2:] != size for part in parts):
        return encode_at(((part.dense(), *part.region[:2]) for part in parts), size)
    return encode(united(parts, size))


def encode(mask: NDArray[Any]) -> Runs:
    """(h, w) -> its runs."""
    return coco_tools().encode(np.asfortranarray(mask != 0, np.uint8))


def encode_at(parts: Iterable[tuple[NDArray[np.bool_], int, int]], size: Size) -> Runs:
    """The union of masks (h', w'), each with its top and left, as one in an image of this size. It
    takes as long as the parts are large, however large the image is."""
    height, inside = size[0], [np.zeros(0, np.int64)]
    for mask, top, left in parts:
        columns, rows = np.nonzero(mask.T)  # column by column, as runs go
        inside.append((columns + left) * height + rows + top)
    places = np.unique(np.concatenate(inside))
    breaks = np.flatnonzero(np.diff(places) != 1)
    starts = places[np.concatenate(([0], breaks + 1))] if len(places) else places
    stops = places[np.append(breaks, len(places) - 1)] + 1 if len(places) else places
    return compressed(np.stack((starts, stops), axis=1).ravel(), size)


def in_text(runs: Runs) -> dict[str, Any]:
    """For JSON."""
    return {**runs, "counts": runs["counts"].decode("ascii")}


def area(runs: Runs) -> int:
    """Number of pixels."""
    return int(coco_tools().area(runs))


def compressed(bounds: NDArray[np.int64], size: Size) -> Runs:
    """From where runs begin and end, in turn, counted down the columns."""
    height, width = size
    counts = np.diff(bounds, prepend=0, append=height * width).tolist()
    return coco_tools().frPyObjects({"size": [height, width], "counts": counts}, height, width)


def enlarged(logits: NDArray[np.float16], size: Size) -> NDArray[np.bool_]:
    """(h', w') -> (h, w): enlarged bilinearly, by the centres of pixels, and cut at 0."""
    import torch
    import torch.nn.functional as F

    values = torch.from_numpy(np.ascontiguousarray(logits, np.float32))[None, None]
    large = F.interpolate(values, size, mode="bilinear", align_corners=False)[0, 0]
    return (large > 0).numpy()


def coco_tools() -> Any:
    from faster_coco_eval.core import mask  # type: ignore[import-untyped,unused-ignore]

    return mask
