"""Boxes that move with their image, through torchvision's `tv_tensors`.

The truth of an image for detection is a dict: boxes (n, 4), left, top, right, bottom in pixels,
labels (n,) and crowd (n,). Here it is changed as the image is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Objects = dict[str, Tensor]
Size = tuple[int, int]


def cut(objects: Objects, size: Size, top: int, left: int, height: int, width: int) -> Objects:
    """What is seen of the objects of an image of `size` in a part of it.

    Boxes end where the part ends; an object of which nothing is left is left out.
    """
    from torchvision.transforms.v2 import functional

    part = (top, left, min(height, size[0] - top), min(width, size[1] - left))
    moved = _moved(objects, size, lambda boxes: functional.crop(boxes, *part))
    # torchvision clamps what is cut; a box that is outside becomes a line or a point
    sides = moved["boxes"][:, 2:] - moved["boxes"][:, :2]
    kept = (sides > 0).all(dim=1)
    return {name: values[kept] for name, values in moved.items()}


def resized(objects: Objects, size: Size, new: Size) -> Objects:
    from torchvision.transforms.v2 import functional

    return _moved(objects, size, lambda boxes: functional.resize(boxes, list(new)))


def mirrored(objects: Objects, size: Size) -> Objects:
    from torchvision.transforms.v2 import functional

    return _moved(objects, size, functional.horizontal_flip)


def as_parts(objects: Objects, size: Size) -> Objects:
    """As models learn and say it: centre x, centre y, width and height, in parts of the image."""
    height, width = size
    boxes = objects["boxes"]
    scale = torch.tensor([width, height, width, height], dtype=boxes.dtype)
    low, high = (boxes / scale).chunk(2, dim=1)
    return {**objects, "boxes": torch.cat(((low + high) / 2, high - low), dim=1)}


def _moved(objects: Objects, size: Size, move: Callable[[Any], Any]) -> Objects:
    from torchvision import tv_tensors

    boxes = tv_tensors.BoundingBoxes(
        objects["boxes"], format=tv_tensors.BoundingBoxFormat.XYXY, canvas_size=size
    )
    return {**objects, "boxes": move(boxes).as_subclass(Tensor)}
