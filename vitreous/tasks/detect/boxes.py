"""Boxes, in the two forms that there are here, and how alike two of them are.

What people and files have are pixels: left, top, right, bottom, of the image as it is stored. What
a model learns and says are parts: x and y of the middle, width and height, each divided by the
image's width or height. One becomes the other where data comes in and results go out, and nowhere
between.
"""

from __future__ import annotations

import torch
from torch import Tensor

Size = tuple[int, int]
"""Height and width, as everywhere."""
SMALLEST = 1e-12
"""An area that no box has, to divide by instead of zero."""


def corners(boxes: Tensor) -> Tensor:
    """(…, 4): middle x, y, width, height -> left, top, right, bottom, in the same unit."""
    middle, half = boxes[..., :2], boxes[..., 2:] / 2
    return torch.cat((middle - half, middle + half), dim=-1)


def middles(boxes: Tensor) -> Tensor:
    """(…, 4): left, top, right, bottom -> middle x, y, width, height, in the same unit."""
    first, last = boxes[..., :2], boxes[..., 2:]
    return torch.cat(((first + last) / 2, last - first), dim=-1)


def to_pixels(parts: Tensor, size: Size) -> Tensor:
    """(…, 4): a model's boxes -> left, top, right, bottom in pixels of an image of `size`."""
    return corners(parts) * _sides(parts, size)


def to_parts(pixels: Tensor, size: Size) -> Tensor:
    """(…, 4): left, top, right, bottom in pixels of an image of `size` -> a model's boxes."""
    return middles(pixels / _sides(pixels, size))


def area(boxes: Tensor) -> Tensor:
    """(…, 4): left, top, right, bottom -> (…); 0 where right is left of left."""
    return _area(boxes[..., :2], boxes[..., 2:])


def intersection(a: Tensor, b: Tensor) -> Tensor:
    """(…, 4), (…, 4): left, top, right, bottom -> (…): the area that they share. The other axes
    broadcast, so `intersection(a[:, None], b)` has every pair."""
    return _area(torch.maximum(a[..., :2], b[..., :2]), torch.minimum(a[..., 2:], b[..., 2:]))


def iou(a: Tensor, b: Tensor) -> Tensor:
    """Intersection over union, from 0 to 1, of boxes as `intersection` takes them."""
    common = intersection(a, b)
    return common / (area(a) + area(b) - common).clamp(min=SMALLEST)


def giou(a: Tensor, b: Tensor) -> Tensor:
    """Generalised intersection over union (Rezatofighi et al. 2019), from -1 to 1.

    a and b as `intersection` takes them. It falls as boxes that do not touch move apart, which
    `iou` does not. Boxes without area that lie on each other have 0.
    """
    common = intersection(a, b)
    around = _area(torch.minimum(a[..., :2], b[..., :2]), torch.maximum(a[..., 2:], b[..., 2:]))
    union = area(a) + area(b) - common
    return common / union.clamp(min=SMALLEST) - (around - union) / around.clamp(min=SMALLEST)


def pairwise_giou(a: Tensor, b: Tensor) -> Tensor:
    """a (…, n, 4), b (m, 4) -> (…, n, m): each of a with each of b."""
    return giou(a[..., None, :], b)


def _area(first: Tensor, last: Tensor) -> Tensor:
    """(…, 2), (…, 2) -> (…): of the box from left top to right bottom; nothing if they cross."""
    width, height = (last - first).clamp(min=0).unbind(-1)
    return width * height


def _sides(like: Tensor, size: Size) -> Tensor:
    height, width = size
    return torch.tensor([width, height, width, height], dtype=like.dtype, device=like.device)
