"""PNG files with 16 bits for each of several channels, of which Pillow gives 8.

Pillow has unpackers for 16-bit colour in either order of bytes, and both keep the more significant
one. PNG stores that one first; reading it in the other order gives the less significant bytes.
(torchvision reads all 16, but some damaged files make it crash, and the process with it.)
"""

from __future__ import annotations

from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFile


def is_deep(head: bytes) -> bool:
    """By the first bytes of a PNG. Not for gray without alpha, which Pillow reads in full."""
    depth, channels = head[24:25], head[25:26]  # the channels: colour, gray + alpha, colour + alpha
    return depth == b"\x10" and channels in (b"\2", b"\4", b"\6")


def read(file: BinaryIO) -> NDArray[Any]:
    """(h, w, c), uint16; alpha, if there is any, is last."""
    with Image.open(file, formats=("PNG",)) as image:
        kind = str(image.tile[0].args)
        if kind == "LA;16B":  # the four bytes of a pixel, as if they were four channels
            each = _unpacked(image, "RGBA")
            return each[:, :, 0::2].astype(np.uint16) << 8 | each[:, :, 1::2]
        pixels = _unpacked(image, kind).astype(np.uint16)
    pixels <<= 8  # in place: these may be hundreds of megabytes
    file.seek(0)
    with Image.open(file, formats=("PNG",)) as image:
        pixels |= _unpacked(image, {"RGB;16B": "RGB;16L", "RGBA;16B": "RGBA;16L"}[kind])
    return pixels


def _unpacked(image: ImageFile.ImageFile, kind: str) -> NDArray[np.uint8]:
    image.tile = [tile._replace(args=kind) for tile in image.tile]
    return np.asarray(image)
