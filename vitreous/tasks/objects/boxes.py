"""Boxes in their two forms, how they move with their image, and which of several say the same.

Files and results have left, top, right, bottom in pixels of the image as it is stored (xyxy).
Models learn and predict normalised cxcywh: x and y of the centre, width and height, divided by the
image's width or height. One becomes the other where data comes in and results go out.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from torch import Tensor

from vitreous.data.objects.overlap import near_pairs
from vitreous.data.truth import Size, Truth

Objects = dict[str, Any]
"""boxes (n, 4), labels (n,) and crowd (n,); it may have area (n,) too."""


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


def nms(boxes: Tensor, labels: Tensor, most: float) -> Tensor:
    """Non-maximum suppression: which boxes (n, 4), the most confident first, are kept, (n,): those
    whose IoU with no kept box of their class (n,) before them is larger than `most`."""
    over = [found.pairs[found.iou > most] for found in near_pairs(boxes, labels, most)]
    kept_for = suppressed_by(len(boxes), torch.cat([torch.zeros(0, 2, dtype=torch.int64), *over]))
    return kept_for == torch.arange(len(boxes))


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


def _sides(like: Tensor, size: Size) -> Tensor:
    height, width = size
    return torch.tensor([width, height, width, height], dtype=like.dtype, device=like.device)
