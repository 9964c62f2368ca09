"""What every explanation has, whatever the task: an image as a model sees it, cut into patches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from vitreous.errors import ConfigError
from vitreous.results import Classification, Detection, Segmentation


@dataclass(frozen=True)
class Seen:
    """One image and what the model says of it. Maps are (gh, gw), a number for each patch."""

    result: Classification | Segmentation | Detection
    """Of the whole image, also where the rest is about a part of it."""
    image: Tensor
    """(c, h, w) in 0..1, as the model sees it."""
    grid: tuple[int, int]
    """Patches in height and width, where they are smallest."""
    pixels: tuple[int, int]
    """Height and width of such a patch in `image`."""
    region: tuple[float, float, float, float]
    """top, left, height and width of what the model sees, in pixels of the image as given."""

    def box(self, row: int, column: int) -> tuple[float, float, float, float]:
        """top, left, bottom, right of a patch, in pixels of the image as given."""
        if not (0 <= row < self.grid[0] and 0 <= column < self.grid[1]):
            raise ConfigError(
                f"there is no patch ({row}, {column}) in a grid of {self.grid[0]}x{self.grid[1]}"
            )
        top, left, height, width = self.region
        tall = self.pixels[0] * height / self.image.shape[1]
        wide = self.pixels[1] * width / self.image.shape[2]
        return (
            top + row * tall,
            left + column * wide,
            min(top + (row + 1) * tall, top + height),
            min(left + (column + 1) * wide, left + width),
        )

    def to_dict(self) -> dict[str, Any]:
        """For programs: what is said, and where the patches are."""
        return {
            **self.result.to_dict(),
            "grid": list(self.grid),
            "pixels": list(self.pixels),
            "region": list(self.region),
        }
