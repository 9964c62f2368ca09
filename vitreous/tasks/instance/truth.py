"""Objects with masks, and how they move with their image."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vitreous.data.instance_masks import InstanceMasks
from vitreous.data.truth import Size
from vitreous.tasks.objects.boxes import BoxesTruth, normalised

Instances = dict[str, Any]
"""boxes (n, 4), labels (n,), crowd (n,), area (n,) and masks, `InstanceMasks` or (n, h, w) of bool;
after a crop also cut (n,), which objects it has changed."""


class InstancesTruth(BoxesTruth):
    """In a target, masks are (n, h, w) of bool; the metrics take them as `InstanceMasks`."""

    def crop(
        self, truth: Instances, size: Size, top: int, left: int, height: int, width: int
    ) -> Instances:
        """Of an object that is cut, the box is later that of what remains of its mask."""
        height, width = min(height, size[0] - top), min(width, size[1] - left)
        left_top, right_bottom = truth["boxes"].split(2, dim=1)
        outside = left_top < torch.tensor([left, top])
        outside |= right_bottom > torch.tensor([left + width, top + height])
        rows, columns = torch.arange(top, top + height), torch.arange(left, left + width)
        moved = {
            **truth,
            "masks": masks_of(truth).taken(rows, columns),
            "cut": truth.get("cut", torch.tensor(False)) | outside.any(dim=1),
        }
        return super().crop(moved, size, top, left, height, width)

    def resize(self, truth: Instances, size: Size, new: Size) -> Instances:
        """Each pixel takes the nearest one's value, by their centres."""
        rows, columns = (
            ((torch.arange(after) + 0.5) * (before / after)).long().clamp_(max=before - 1)
            for before, after in zip(size, new, strict=True)
        )
        masks = masks_of(truth) if size == new else masks_of(truth).taken(rows, columns)
        return super().resize({**truth, "masks": masks}, size, new)

    def hflip(self, truth: Instances, size: Size) -> Instances:
        columns = torch.arange(size[1]).flip(0)
        masks = masks_of(truth).taken(torch.arange(size[0]), columns)
        return super().hflip({**truth, "masks": masks}, size)

    def target(self, truth: Instances, size: Size) -> dict[str, Tensor]:
        """Objects of which no pixel is left are left out."""
        masks, boxes = masks_of(truth).dense(), truth["boxes"]
        if "cut" in truth:
            left = within(boxes, InstanceMasks.of(masks).boxes())
            boxes = torch.where(truth["cut"][:, None], left, boxes)
        there = masks.flatten(1).any(dim=1)
        found = {**truth, "boxes": normalised(boxes, size), "masks": masks}
        return {name: values[there] for name, values in found.items() if name != "cut"}

    def reference(self, truth: Instances, size: Size) -> Instances:
        return {**truth, "boxes": normalised(truth["boxes"], size), "masks": masks_of(truth)}


def masks_of(truth: Instances) -> InstanceMasks:
    """A program's own augmentation may give dense masks."""
    masks = truth["masks"]
    return masks if isinstance(masks, InstanceMasks) else InstanceMasks.of(masks)


def within(boxes: Tensor, limits: Tensor) -> Tensor:
    """(n, 4) each: the boxes, cut off at the limits; these themselves where both do not meet."""
    first = torch.maximum(boxes[:, :2], limits[:, :2])
    last = torch.minimum(boxes[:, 2:], limits[:, 2:])
    meet = (last > first).all(dim=1, keepdim=True)
    return torch.where(meet, torch.cat((first, last), dim=1), limits)
