"""How much boxes overlap, and which are near each other.

Boxes are left, top, right, bottom (xyxy), all in the same unit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

SMALLEST = 1e-12
"""An area that no box has, to divide by instead of zero."""
ROUNDING = 1e-3
"""A part of a box's width that is far more than the rounding of an IoU can matter."""
PIECE = 1_000_000
"""Pairs of boxes that are compared at once."""


def _area(first: Tensor, last: Tensor) -> Tensor:
    """(…, 2), (…, 2) -> (…): from top left to bottom right; 0 if they cross."""
    width, height = (last - first).clamp(min=0).unbind(-1)
    return width * height


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
