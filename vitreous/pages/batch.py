"""What a model is about to learn from: an augmented batch with its masks or boxes, in a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from vitreous.data.loader import Batch
from vitreous.data.preprocess import Preprocess
from vitreous.labels import LabelMap
from vitreous.pages.draw import blended, coloured, colours_of, in_bands
from vitreous.tasks.detect.boxes import to_pixels
from vitreous.tasks.detect.draw import Mark, boxed, enlargement

if TYPE_CHECKING:
    from PIL.Image import Image

GAP = 2
COLUMNS, TILE = 8, 240
"""Images in a row, and the longest side of each at least and at most …"""
BOXED = 4, 480
"""… and of images with boxes, whose names must leave room to see what they name."""


def batch_picture(
    batch: Batch, task: str, labels: LabelMap, preprocess: Preprocess, count: int = 32
) -> Image:
    """The first images of a batch as the model sees them, each with what it is to learn."""
    from PIL import Image

    targets = [None] * count if task == "classify" else batch.targets
    columns, side = BOXED if task == "detect" else (COLUMNS, TILE)
    tiles = [
        _tile((255 * preprocess.restore(image)).round().to(torch.uint8), target, labels, side)
        for image, target in zip(batch.images[:count], targets[:count], strict=False)
    ]
    wide, tall = (max(tile.size[axis] for tile in tiles) + GAP for axis in (0, 1))
    rows = -(-len(tiles) // columns)
    columns = min(len(tiles), columns)
    picture = Image.new("RGB", (columns * wide + GAP, rows * tall + GAP), (128, 128, 128))
    for number, tile in enumerate(tiles):
        row, column = divmod(number, columns)
        picture.paste(tile, (column * wide + GAP, row * tall + GAP))
    return picture


def _tile(image: Tensor, target: Any, labels: LabelMap, side: int) -> Image:
    """An image (c, h, w) with a mask (h, w), with boxes in parts of it, or alone."""
    from PIL import Image

    height, width = image.shape[1:]
    colours = colours_of(labels.external)
    if isinstance(target, dict):
        places = to_pixels(target["boxes"], (height, width)).tolist()
        classes = target["labels"].tolist()
        marks = [
            Mark(tuple(box), labels.names[label], colours[label])
            for box, label in zip(places, classes, strict=True)
        ]
        drawn = max(height, width) * enlargement(height, width)
        picture = boxed(image, marks, letters=max(drawn / side, 1))  # it will be made smaller again
    else:
        pixels = np.concatenate([pixels for _, pixels in in_bands(image)])
        if target is not None:
            pixels = blended(pixels, coloured(target.numpy(), colours))
        picture = Image.fromarray(pixels)
    factor = side / max(picture.size)
    if factor >= 2:  # whole pixels stay whole
        size = (picture.width * int(factor), picture.height * int(factor))
        return picture.resize(size, Image.Resampling.NEAREST)
    picture.thumbnail((side, side))
    return picture
