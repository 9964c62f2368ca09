"""What Pillow's and tifffile's readers share: the limit of pixels, transparency, rotation
and channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vitreous.errors import DataError

MAX_PIXELS = 50_000_000
Enough = Callable[[int, int], tuple[int, int]]
"""Of an image that is displayed as h x w: the height and width that it is to have at least."""


class ImageSize(NamedTuple):
    """Of an image as it is displayed."""

    height: int
    width: int
    orientation: int = 1
    """EXIF's, which has been applied."""


SEEN = 8
"""What a pixel that only enlarging has made counts where the model sees it: that takes many times
as long as decoding, and there is nothing to see."""
PLAIN = 8
"""Times the model's own size that any image may become: enlarged sides of 8:1 are no attack."""
_VALUES_AT_ONCE = 1 << 20


def check_pixels(name: str, width: int, height: int, max_pixels: int, channels: int = 1) -> None:
    """Bounds the work that an image can cause, by its header, before anything is decoded. The limit
    is on pixels; many channels multiply it, so four of each are allowed."""
    if not width or not height or not channels:
        of = "" if channels else " with 0 channels"
        raise DataError(f"{name}: has no pixels ({width}x{height}{of})")
    if width * height * max(1, channels / 4) > max_pixels:
        of = f" with {channels} channels" if channels > 4 else ""
        raise too_many_pixels(name, f"{width}x{height}{of}", max_pixels)


def too_many_pixels(name: str, size: str, max_pixels: int) -> DataError:
    return DataError(
        f"{name}: too many pixels: {size}, at most {max_pixels:,} are allowed: make the image "
        "smaller, or raise --max-pixels (max_pixels in Python)"
    )


def check_enlarged(
    size: tuple[int, int], resized: tuple[int, int], max_pixels: int, *, own: int, seen: bool
) -> None:
    """Bounds the work behind the decoder before it is done. A file of a few bytes can be an image
    so long and narrow that gigabytes come out when its shorter side is enlarged.

    size, resized: height and width before and after. own: pixels of the model's own size. seen: the
    model sees all that comes out; else most of it is cropped away.
    """
    stored, made = size[0] * size[1], resized[0] * resized[1]
    counted = made * (SEEN if seen else 1)
    if made > max(stored, PLAIN * own) and counted > max_pixels:
        raise DataError(
            f"is {size[0]}x{size[1]} (height x width) and would be enlarged to {resized[0]}x"
            f"{resized[1]} for the model, {made:,} pixels: cut a part out of the image, or raise "
            f"--max-pixels (max_pixels in Python) from {max_pixels:,} to {counted:,}"
        )


def over_white(pixels: NDArray[Any], *, multiplied: bool = False) -> NDArray[Any]:
    """(h, w, c + 1) with alpha last to (h, w, c): as seen on white. `multiplied`: the colours were
    stored already multiplied by alpha."""
    top = int(np.iinfo(pixels.dtype).max)
    height, width, channels = pixels.shape
    result = np.empty((height, width, channels - 1), pixels.dtype)
    rows = max(_VALUES_AT_ONCE // (width * channels), 1)  # wider numbers, for a few rows only
    for first in range(0, height, rows):
        wide: NDArray[np.int64] = pixels[first : first + rows].astype(np.int64)
        colour, alpha = wide[:, :, :-1], wide[:, :, -1:]
        seen = colour if multiplied else (colour * alpha + top // 2) // top
        result[first : first + rows] = np.minimum(seen + top - alpha, top)
    return result


def upright(pixels: NDArray[Any], orientation: int) -> NDArray[Any]:
    """(h, w, c) rotated by EXIF's orientation (1 to 8)."""
    if orientation in (5, 6, 7, 8):
        pixels = pixels.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return pixels


def as_channels(image: Tensor, channels: int) -> Tensor:
    """(c, h, w) to (channels, h, w): gray to RGB by repeating, RGB to gray by luminance. Luminance
    is that of ITU-R 601, as everywhere: 0.299 R + 0.587 G + 0.114 B."""
    have = image.shape[0]
    if have == channels:
        return image
    if have == 1 and channels == 3:
        return image.expand(3, -1, -1)
    if have == 3 and channels == 1:
        weights = torch.tensor([0.299, 0.587, 0.114], device=image.device).view(3, 1, 1)
        gray = (image.to(torch.float32) * weights).sum(0, keepdim=True)
        return gray if image.is_floating_point() else gray.round().to(image.dtype)
    raise DataError(other_channels(have, channels))


def can_be(have: int, channels: int) -> bool:
    """Whether `as_channels` can convert one into the other."""
    return have == channels or {have, channels} == {1, 3}


def other_channels(have: int, channels: int) -> str:
    """The error for an image that `as_channels` cannot convert."""
    return (
        f"has {have} channels, expected {channels}: only 1 and 3 can be converted into each other"
    )


def without_alpha(image: Tensor) -> Tensor:
    """(4, h, w) of whole numbers with alpha, as seen on white: (3, h, w)."""
    pixels = over_white(image.permute(1, 2, 0).numpy())
    return torch.from_numpy(pixels).permute(2, 0, 1)
