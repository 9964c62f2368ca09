"""Transparency and rotation of pixels (h, w, c): what Pillow's and tifffile's readers share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


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
