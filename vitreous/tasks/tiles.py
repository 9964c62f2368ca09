"""An image in overlapping tiles, for what is small in it.

A model sees an image at its own size: of a large photograph, small objects lose the pixels by which
they are recognised. Tiles are cut out of the image as it is stored, and each goes the one way from
image to prediction, as if it were an image. So does the whole image, for what is larger than a
tile. The task merges the predictions.

Memory is bounded by the image as it is stored and by the tiles that are computed at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from vitreous.data.decode.pixels import MAX_PIXELS
from vitreous.data.preprocess import Preprocess
from vitreous.errors import ConfigError

if TYPE_CHECKING:
    from vitreous.tasks.task import Engine, Sizes, Task

OVERLAP = 0.2
"""Part of a tile that it shares with the next one."""
OVERLAPS = (0.05, 0.9)


class Tile(NamedTuple):
    """A part of an image, in its pixels."""

    top: int
    left: int
    height: int
    width: int

    @property
    def size(self) -> tuple[int, int]:
        return self.height, self.width

    def of(self, image: Tensor) -> Tensor:
        """(c, h, w) -> (c, height, width)"""
        rows = slice(self.top, self.top + self.height)
        return image[:, rows, self.left : self.left + self.width]


def starts(length: int, window: int, overlap: float) -> list[int]:
    """Where windows begin, evenly, the last one ending at the end."""
    if length <= window:
        return [0]
    step = max(round(window * (1 - overlap)), 1)
    count = -(-(length - window) // step) + 1
    return [round(i * (length - window) / (count - 1)) for i in range(count)]


def tiles_of(size: tuple[int, int], side: int, overlap: float) -> list[Tile]:
    """Tiles of one size that cover an image, row by row; a side of the image that is shorter than a
    tile's is taken as a whole."""
    height, width = size
    shape = min(side, height), min(side, width)
    tops, lefts = starts(height, side, overlap), starts(width, side, overlap)
    return [Tile(top, left, *shape) for top in tops for left in lefts]


class TiledInference:
    """A task's `infer` for images as they are stored, in tiles of `side` x `side` pixels."""

    def __init__(
        self,
        task: Task,
        preprocess: Preprocess,
        side: int,
        overlap: float | None = None,
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        overlap = OVERLAP if overlap is None else overlap
        how = "goes over large images in windows" if task.windows else "sees all of an image"
        self.objects = task.objects(
            f"tile = {side!r}: a model for the task {task.name} {how}: leave tile out"
        )
        if isinstance(side, bool) or not isinstance(side, int) or side < 1:
            raise ConfigError(f"tile = {side!r}: expected a whole number of pixels")
        least, most = OVERLAPS
        if not least <= overlap <= most:
            raise ConfigError(
                f"overlap = {overlap!r}: expected a part of a tile, from {least} to {most}: an "
                "object is seen whole by a tile if it is smaller than that part"
            )
        self.task, self.preprocess, self.max_pixels = task, preprocess, max_pixels
        self.side, self.overlap = side, overlap

    def keep(self, image: Tensor, max_pixels: int = MAX_PIXELS) -> Tensor:
        """In place of the preprocessing, which each tile has later: the image as it is stored."""
        height, width = image.shape[1:]
        for tile in ((height, width), (min(self.side, height), min(self.side, width))):
            self.preprocess.check_size(*tile, max_pixels)
        return image

    def infer(
        self, engine: Engine, images: Iterable[Tensor], sizes: Sizes, batch: int = 8
    ) -> list[Any]:
        """The predictions for images (c, h, w), `batch` tiles at a time; see `Task.infer`."""
        pairs = zip(images, sizes, strict=True)
        return [self._infer(engine, image, size, batch) for image, size in pairs]

    def _infer(self, engine: Engine, image: Tensor, size: tuple[int, int], batch: int) -> Any:
        whole = Tile(0, 0, *size)
        tiles = tiles_of(size, self.side, self.overlap)
        if len(tiles) == 1:
            return self._predict(engine, image, [whole])[0]
        batches = [[whole], *(tiles[i : i + batch] for i in range(0, len(tiles), batch))]
        found = (each for some in batches for each in self._predict(engine, image, some))
        return self.objects.merge(found, [whole, *tiles])

    def _predict(self, engine: Engine, image: Tensor, tiles: Sequence[Tile]) -> list[Any]:
        values = [self.preprocess(tile.of(image), self.max_pixels) for tile in tiles]
        return list(self.task.infer(engine, torch.stack(values), [tile.size for tile in tiles]))
