"""Which boxes are right and which objects are found, at one threshold of IoU."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from vitreous.data.objects.overlap import SMALLEST, area, intersection, iou

OVERLAP = 0.5
"""IoU of two boxes from which one counts as the other."""


class Judged(NamedTuple):
    """Which objects of an image are found, and which of the predicted boxes are right."""

    found: Tensor
    """(objects,)"""
    right: Tensor
    """(boxes,)"""
    counted: Tensor
    """(boxes,): not those inside a crowd, which may be right or wrong"""
    objects: int
    """Without crowds."""

    @property
    def missed(self) -> int:
        return self.objects - int(self.found.sum())

    @property
    def false(self) -> int:
        return int((self.counted & ~self.right).sum())

    @property
    def f1(self) -> float | None:
        """From 0 to 1; None if there are no objects and no predictions."""
        right = int(self.right.sum())
        all_ = 2 * right + self.missed + self.false
        return 2 * right / all_ if all_ else None


def judge(boxes: Tensor, labels: Tensor, truth: Tensor, classes: Tensor, crowd: Tensor) -> Judged:
    """boxes (n, 4) with classes `labels` (n,), the most confident first, against truth (m, 4) with
    `classes` (m,), of which `crowd` (m,) are; left, top, right, bottom.

    Each object is found by the most confident box of its class that covers it, and by no other.
    """
    alike = labels[:, None] == classes
    common, own = intersection(boxes[:, None], truth), area(boxes)[:, None].clamp(min=SMALLEST)
    overlap = torch.where(crowd, common / own, iou(boxes[:, None], truth))
    return judge_overlaps(overlap.masked_fill(~alike, 0.0), crowd)


def judge_overlaps(overlap: Tensor, crowd: Tensor) -> Judged:
    """overlap (n, m): of what is predicted, the most confident first, with objects of its class the
    IoU, and with crowds (m,) the part that is inside of them; 0 where classes differ."""
    covers, inside = overlap.masked_fill(crowd, 0.0), overlap.masked_fill(~crowd, 0.0)
    found = torch.zeros(len(crowd), dtype=torch.bool)
    right = torch.zeros(len(overlap), dtype=torch.bool)
    for number in (covers >= OVERLAP).any(dim=1).nonzero().flatten().tolist():
        row = covers[number].masked_fill(found, 0.0)
        if row.max() >= OVERLAP:
            found[row.argmax()] = right[number] = True
    counted = right | ~(inside >= OVERLAP).any(dim=1)
    return Judged(found, right, counted, int((~crowd).sum()))
