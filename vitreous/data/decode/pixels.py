"""What Pillow's and tifffile's readers share: the limit of pixels, transparency and rotation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vitreous.errors import DataError

MAX_PIXELS = 50_000_000


def check_pixels(name: str, width: int, height: int, max_pixels: int, channels: int = 1) -> None:
    """Bounds the work that an image can cause, by its header, before anything is decoded. The limit
    is on pixels; many channels multiply it, so four of each are allowed."""
    if not width or not height:
        raise DataError(f"{name}: has no pixels ({width}x{height})")
    if width * height * max(1, channels / 4) > max_pixels:
        of = f" with {channels} channels" if channels > 4 else ""
        raise too_many_pixels(name, f"{width}x{height}{of}", max_pixels)


def too_many_pixels(name: str, size: str, max_pixels: int) -> DataError:
    return DataError(f"{name}: too many pixels: {size}, at most {max_pixels:,} are allowed")


def over_white(pixels: NDArray[Any], *, multiplied: bool = False) -> NDArray[Any]:
    """(h, w, c + 1) with alpha last to (h, w, c): as seen on white.

    `multiplied`: the colours were stored already multiplied by alpha.
    """
    top = int(np.iinfo(pixels.dtype).max)
    wide: NDArray[np.int64] = pixels.astype(np.int64)
    colour, alpha = wide[:, :, :-1], wide[:, :, -1:]
    seen = colour if multiplied else (colour * alpha + top // 2) // top
    return np.minimum(seen + top - alpha, top).astype(pixels.dtype)


def upright(pixels: NDArray[Any], orientation: int) -> NDArray[Any]:
    """(h, w, c) rotated by EXIF's orientation (1 to 8)."""
    if orientation in (5, 6, 7, 8):
        pixels = pixels.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return pixels
