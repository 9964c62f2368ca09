"""Objects with boxes, and how they move with their image."""

from __future__ import annotations

from typing import Any

import torch

from vitreous.data.truth import Size, Truth
from vitreous.tasks.objects.boxes import normalised

Objects = dict[str, Any]
"""boxes (n, 4), labels (n,) and crowd (n,); it may have area (n,) too."""


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
