"""The picture of the first batch: augmented images as the model sees them, with their targets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from vitreous.data.loader import Batch
from vitreous.data.preprocess import Preprocess
from vitreous.labels import LabelMap
from vitreous.pages.pictures import captioned
from vitreous.tasks import show_of

if TYPE_CHECKING:
    from PIL.Image import Image

GAP = 2


def batch_picture(
    batch: Batch, task: str, labels: LabelMap, preprocess: Preprocess, count: int = 32
) -> Image:
    """The first images of a batch, each with what the model is to learn from it."""
    from PIL import Image

    show = show_of(task)
    columns, side = show.batch_layout
    tiles = []
    for image, target in zip(batch.images[:count], show.targets(batch)[:count], strict=True):
        seen = (255 * preprocess.restore(image)).round().to(torch.uint8)
        tile = _fitted(show.draw_target(seen, target, labels, side), side)
        text = show.target_text(target, labels)
        tiles.append(captioned(tile, text) if text else tile)
    wide, tall = (max(tile.size[axis] for tile in tiles) + GAP for axis in (0, 1))
    rows = -(-len(tiles) // columns)
    columns = min(len(tiles), columns)
    picture = Image.new("RGB", (columns * wide + GAP, rows * tall + GAP), (128, 128, 128))
    for number, tile in enumerate(tiles):
        row, column = divmod(number, columns)
        picture.paste(tile, (column * wide + GAP, row * tall + GAP))
    return picture


def _fitted(picture: Image, side: int) -> Image:
    """Enlarged by a whole factor, so that pixels stay squares, or made smaller."""
    from PIL import Image

    factor = side / max(picture.size)
    if factor >= 2:
        size = (picture.width * int(factor), picture.height * int(factor))
        return picture.resize(size, Image.Resampling.NEAREST)
    picture.thumbnail((side, side))
    return picture
