"""Boxes in their two forms, how they move with their image, how much two of them overlap, and which
of several say the same.

Files and results have left, top, right, bottom in pixels of the image as it is stored (xyxy).
Models learn and predict normalised cxcywh: x and y of the centre, width and height, divided by the
image's width or height. One becomes the other where data comes in and results go out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vitreous.data.truth import Size, Truth

Objects = dict[str, Any]
"""boxes (n, 4), labels (n,) and crowd (n,); it may have area (n,) too."""
SMALLEST = 1e-12
"""An area that no box has, to divide by instead of zero."""
ROUNDING = 1e-3
"""A part of a box's width that is far more than the rounding of an IoU can matter."""
PIECE = 1_000_000
"""Pairs of boxes that are compared at once."""


def cxcywh_to_xyxy(boxes: Tensor) -> Tensor:
    """(…, 4), in the same unit."""
    centre, half = boxes[..., :2], boxes[..., 2:] / 2
    return torch.cat((centre - half, centre + half), dim=-1)


def xyxy_to_cxcywh(boxes: Tensor) -> Tensor:
    """(…, 4), in the same unit."""
    first, last = boxes[..., :2], boxes[..., 2:]
    return torch.cat(((first + last) / 2, last - first), dim=-1)


def to_pixels(boxes: Tensor, size: Size) -> Tensor:
    """(…, 4): normalised cxcywh -> xyxy in pixels of an image of `size`."""
    return cxcywh_to_xyxy(boxes) * _sides(boxes, size)


def clipped(boxes: Tensor, size: Size) -> Tensor:
    """(…, 4): the same, cut off at the edges of the image, beyond which there is no object."""
    inside = to_pixels(boxes, size).clamp(min=0)
    return inside.minimum(_sides(boxes, size))


def normalised(boxes: Tensor, size: Size) -> Tensor:
    """(…, 4): xyxy in pixels of an image of `size` -> normalised cxcywh."""
    return xyxy_to_cxcywh(boxes / _sides(boxes, size))


class BoxesTruth(Truth):
    """Boxes are left, top, right, bottom in pixels, and in a target normalised cxcywh."""

    any_size = True

    def crop(
        self, truth: Objects, size: Size, top: int, left: int, height: int, width: int
    ) -> Objects:
        """Boxes end where the crop ends; an object of which nothing is left is left out."""
        height, width = min(height, size[0] - top), min(width, size[1] - left)
        boxes = truth["boxes"] - torch.tensor([left, top, left, top])
        boxes = boxes.minimum(torch.tensor([width, height, width, height])).clamp(min=0)
        inside = (boxes[:, 2:] > boxes[:, :2]).all(dim=1)
        return {name: values[inside] for name, values in {**truth, "boxes": boxes}.items()}

    def resize(self, truth: Objects, size: Size, new: Size) -> Objects:
        tall, wide = new[0] / size[0], new[1] / size[1]
        return {**truth, "boxes": truth["boxes"] * torch.tensor([wide, tall, wide, tall])}

    def hflip(self, truth: Objects, size: Size) -> Objects:
        left, top, right, bottom = truth["boxes"].unbind(1)
        return {**truth, "boxes": torch.stack((size[1] - right, top, size[1] - left, bottom), 1)}

    def classes(self, truth: Objects) -> list[int]:
        return truth["labels"].tolist()

    def target(self, truth: Objects, size: Size) -> Objects:
        return {**truth, "boxes": normalised(truth["boxes"], size)}


def area(boxes: Tensor) -> Tensor:
    """xyxy (…, 4) -> (…); 0 where right is left of left."""
    return _area(boxes[..., :2], boxes[..., 2:])


def intersection(a: Tensor, b: Tensor) -> Tensor:
    """The area that xyxy boxes a and b (…, 4) share. They broadcast: `intersection(a[:, None], b)`
    has every pair."""
    return _area(torch.maximum(a[..., :2], b[..., :2]), torch.minimum(a[..., 2:], b[..., 2:]))


def iou(a: Tensor, b: Tensor) -> Tensor:
    """Intersection over union, from 0 to 1, of boxes as `intersection` takes them."""
    common = intersection(a, b)
    return common / (area(a) + area(b) - common).clamp(min=SMALLEST)


def giou(a: Tensor, b: Tensor) -> Tensor:
    """Generalised IoU (Rezatofighi et al. 2019), from -1 to 1, of boxes like `intersection`'s.

    It falls as boxes that do not touch move apart, which IoU does not. Two boxes without area in
    the same place have 0.
    """
    common = intersection(a, b)
    union = area(a) + area(b) - common
    around = _area(torch.minimum(a[..., :2], b[..., :2]), torch.maximum(a[..., 2:], b[..., 2:]))
    return common / union.clamp(min=SMALLEST) - (around - union) / around.clamp(min=SMALLEST)


def nms(boxes: Tensor, labels: Tensor, most: float) -> Tensor:
    """Non-maximum suppression: which boxes (n, 4), the most confident first, are kept, (n,): those
    whose IoU with no kept box of their class (n,) before them is larger than `most`."""
    over = [found.pairs[found.iou > most] for found in near_pairs(boxes, labels, most)]
    kept_for = suppressed_by(len(boxes), torch.cat([torch.zeros(0, 2, dtype=torch.int64), *over]))
    return kept_for == torch.arange(len(boxes))


class Pairs(NamedTuple):
    """Some pairs of boxes."""

    pairs: Tensor
    """(m, 2): which boxes, the first one first"""
    iou: Tensor
    """(m,)"""


def near_pairs(boxes: Tensor, labels: Tensor, least: float) -> Iterator[Pairs]:
    """Pairs of boxes (n, 4) of one class (n,): all whose IoU is at least `least`, and some others.

    The matrix of all pairs would need gigabytes for an image with some ten thousand objects. So
    pairs come in pieces of `PIECE`, and only those that are near: two boxes with an IoU of t share
    a width of at least t times that of each, so one begins in the first 1 - t of the other.
    """
    if len(boxes) < 2:
        return
    left, width = boxes[:, 0].double(), (boxes[:, 2] - boxes[:, 0]).double()
    # Classes stand side by side, so that those of one are near each other alone.
    rank = labels.unique(return_inverse=True)[1]
    left = left - left.min() + rank * (2 * (left + width).max() - 2 * left.min() + 1)
    left, order = left.sort(stable=True)
    reach = left + (1 - least + ROUNDING) * width[order]
    after = torch.arange(1, len(boxes) + 1)
    # how many near ones come after each
    counts = (torch.searchsorted(left, reach, right=True) - after).clamp(min=0)
    ends = counts.cumsum(0)
    start = 0
    while start < len(boxes):
        before = ends[start] - counts[start]
        stop = max(int(torch.searchsorted(ends, before + PIECE, right=True)), start + 1)
        rows = torch.arange(start, stop).repeat_interleave(counts[start:stop])
        begin = (after - ends + counts)[start:stop].repeat_interleave(counts[start:stop])
        pairs = order[torch.stack((rows, begin + before + torch.arange(len(rows))), dim=1)]
        pairs = pairs.sort(dim=1).values
        yield Pairs(pairs, iou(boxes[pairs[:, 0]], boxes[pairs[:, 1]]))
        start = stop


def suppressed_by(count: int, pairs: Tensor) -> Tensor:
    """(count,): for each of several things, the best first, the one that is kept in its place.

    pairs (m, 2): those of which not both may be kept, the better one first. The best is kept and
    suppresses its partners, then the best of the others, and so on.
    """
    partners: dict[int, list[int]] = defaultdict(list)
    for better, other in pairs.tolist():
        partners[better].append(other)
    kept_for = list(range(count))
    for better in range(count):
        if kept_for[better] == better:
            for other in partners.get(better, ()):
                if kept_for[other] == other:
                    kept_for[other] = better
    return torch.tensor(kept_for, dtype=torch.int64)


def _area(first: Tensor, last: Tensor) -> Tensor:
    """(…, 2), (…, 2) -> (…): from top left to bottom right; 0 if they cross."""
    width, height = (last - first).clamp(min=0).unbind(-1)
    return width * height


def _sides(like: Tensor, size: Size) -> Tensor:
    height, width = size
    return torch.tensor([width, height, width, height], dtype=like.dtype, device=like.device)
