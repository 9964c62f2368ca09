"""What every model has, whatever paper it is from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from torch import Tensor

from vitreous.errors import InputError
from vitreous.layers.features import Features
from vitreous.layers.tap import Tapped


class Places(NamedTuple):
    """Where the tokens of one attention stand in the image."""

    prefix: int
    """Tokens without a place come first,"""
    grid: tuple[int, int]
    """then patches, row by row,"""
    pixels: tuple[int, int]
    """of this many pixels each."""
    windows: Tensor | None = None
    """(windows, n): where attention stays inside windows, which patch each token of a window is,
    and -1 for filling. None: all tokens see all."""


class Level(NamedTuple):
    """One feature map of a model, for images of some size."""

    channels: int
    grid: tuple[int, int]
    pixels: tuple[int, int]
    """Of the image for each position; at the bottom and right they may reach over its edge."""


class Model(Tapped):
    """A plain module, (b, channels, height, width) -> output, that knows how it was made."""

    config: Any
    """The frozen config of its family."""
    name: str = ""
    """The name it was created by."""
    input_weight: str
    """The parameter that sees the image's channels."""
    classwise: tuple[str, ...] = ("head.*",)
    """Patterns of the parameters that belong to the classes: others come with other classes."""

    @property
    def core(self) -> Model:
        """The model that looks at the image: itself, or the encoder inside it."""
        return self

    @property
    def width(self) -> int:
        """Channels of what the head sees."""
        return self.levels((1 << 10, 1 << 10))[-1].channels

    def levels(self, size: tuple[int, int]) -> list[Level]:
        """The maps that `features` gives for each block or stage, for images of this size."""
        raise NotImplementedError

    @property
    def ends_with_norm(self) -> bool:
        """Whether a norm follows the last block, which `features` leaves out unless asked."""
        return False

    def features(
        self, images: Tensor, blocks: Iterable[int] | None = None, *, norm: bool = False
    ) -> Features:
        """What stands behind the chosen blocks or stages, and the output, in one pass.

        `norm` puts the final norm on what it fits: a ViT's every block, the last stage of others.
        """
        raise NotImplementedError

    def places(self, attention: str, size: tuple[int, int]) -> Places:
        """Where the tokens of an attention layer, by its name, stand in images of this size."""
        raise NotImplementedError

    def derived(self) -> dict[str, Tensor]:
        """What other libraries keep in their files although it follows from the sizes, by name."""
        return {}

    def check_images(self, images: Tensor) -> None:
        """Images are floating-point (b, channels, h, w) with as many channels as the model has."""
        channels = self.config.channels
        if images.ndim != 4 or images.shape[1] != channels:
            raise InputError(
                f"images of shape {tuple(images.shape)} were given; this model takes (batch, "
                f"{channels}, height, width): for another number of channels create it with "
                "channels=…"
            )
        if not images.is_floating_point():
            raise InputError(
                f"images of type {images.dtype} were given; this model takes normalised "
                "floating-point values: images.float() / 255, then subtract mean, divide by std"
            )
