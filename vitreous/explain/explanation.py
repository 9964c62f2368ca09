"""What explains one prediction, as named tensors: what `predictor.explain(image)` returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from vitreous.errors import ConfigError
from vitreous.explain.attention import Layer

Encode = Callable[[Tensor], Any]
"""Makes plain data of maps (…, gh, gw)."""
Pixel = tuple[int, int]
"""y and x"""


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """One image, cut into patches, and the model's result for it: what every task's explanation
    has. Maps are (gh, gw), a number for each patch."""

    result: Any
    """Of the whole image, also where the explanation is about a part of it."""
    image: Tensor
    """(c, h, w) in 0..1, as the model sees it."""
    photo: Tensor | None = None
    """(c, h, w), the image as given."""
    grid: tuple[int, int]
    """Patches in height and width, where they are smallest."""
    pixels: tuple[int, int]
    """Height and width of such a patch in `image`."""
    region: tuple[float, float, float, float]
    """top, left, height and width of what the model sees, in pixels of the image as given."""
    attention: list[Tensor]
    """For each layer of the encoder (heads, gh, gw): what the tokens that the explanation is about
    attend to. Swin's later layers have coarser grids."""
    layers: list[Layer] = field(default_factory=list)
    """All attention of the encoder, where it was asked for."""
    pixel: Pixel | None = None
    """In the image as given: what the explanation is about; None: the whole image."""
    at: Pixel | None = None
    """The same in what the model sees."""
    chosen: bool = False
    """Whether the user chose the pixel."""

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

    def to_dict(self, encode: Encode = Tensor.tolist) -> dict[str, Any]:
        """Plain data for JSON, without the picture; maps are lists unless `encode` makes something
        else of them."""
        return {
            **self.result.to_dict(),
            "grid": list(self.grid),
            "pixels": list(self.pixels),
            "region": list(self.region),
            "attention": [encode(layer) for layer in self.attention],
            **({} if self.pixel is None else {"pixel": list(self.pixel)}),
        }


@dataclass(frozen=True, kw_only=True)
class MapExplanation(Explanation):
    """What the encoder attends to, and which patches are evidence for a class."""

    rollout: Tensor
    """(gh, gw), attention rollout over all layers, back from the same tokens; sums to one."""
    class_maps: dict[str, Tensor] = field(default_factory=dict)
    """By class name (gh, gw), the evidence for the class; sums to one."""
    prefix: tuple[str, ...] = ()
    """The tokens before the patches: class, distillation, register 1 …"""

    def to_dict(self, encode: Encode = Tensor.tolist) -> dict[str, Any]:
        return {
            **super().to_dict(encode),
            "rollout": encode(self.rollout),
            "class_maps": {name: encode(values) for name, values in self.class_maps.items()},
        }
