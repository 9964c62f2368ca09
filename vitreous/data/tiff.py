"""TIFF files with more channels or bits than Pillow can hold, read by tifffile.

Pillow opens many of them and silently gives less: the first channel of two, three channels of five,
8 bits of 16. So the header is looked at first, and Pillow (which knows every compression) is used
only where it gives everything that is stored.
"""

from __future__ import annotations

from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL.TiffImagePlugin import ImageFileDirectory_v2

from vitreous.data.pixels import over_white, upright
from vitreous.errors import DataError

_WIDTH, _HEIGHT, _BITS, _PHOTOMETRIC, _SAMPLES = 256, 257, 258, 262, 277
_PLANAR, _EXTRA, _KIND = 284, 338, 339


def is_tiff(head: bytes) -> bool:
    return head[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


def pillow_suffices(file: BinaryIO) -> bool:
    """Whether Pillow gives all that the first page stores. Leaves the file anywhere."""
    tags = _tags(file)
    samples = tags.get(_SAMPLES, 1)
    bits = max(tags.get(_BITS, (1,)))
    kind = max(tags.get(_KIND, (1,)))
    if tags.get(_PHOTOMETRIC) not in (0, 1, 2):  # palette, CMYK, YCbCr …: always 8 bits to us
        return True
    if samples == 1:
        # "planar" means nothing with one channel, but makes Pillow misread more than 8 bits
        known = (kind, bits) in ((1, 16), (2, 16), (2, 32), (3, 32))
        return bits <= 8 or (tags.get(_PLANAR, 1) == 1 and known)
    alpha = tuple(tags.get(_EXTRA, ())) in ((1,), (2,))
    colours = 3 if tags.get(_PHOTOMETRIC) == 2 else 1
    return bits <= 8 and kind == 1 and samples == colours + alpha


def _tags(file: BinaryIO) -> ImageFileDirectory_v2:
    file.seek(0)
    head = file.read(8)
    if head[2:4] in (b"+\0", b"\0+"):  # BigTIFF has a longer header
        head += file.read(8)
    tags = ImageFileDirectory_v2(head)
    file.seek(tags.next)
    tags.load(file)
    return tags


def read(file: BinaryIO, name: str, max_pixels: int) -> NDArray[Any]:
    """(h, w, c) of the first page: uint8, uint16 or float32."""
    try:
        import tifffile  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise DataError(
            f"{name}: a TIFF with these channels or bits needs tifffile: pip install tifffile"
        ) from None
    file.seek(0)
    with tifffile.TiffFile(file) as pages:
        page: Any = pages.pages[0]
        height, width, channels = page.imagelength, page.imagewidth, page.samplesperpixel
        # the limit is on pixels; many channels multiply it, so four of each are allowed
        if height * width * max(1, channels / 4) > max_pixels or page.imagedepth > 1:
            raise DataError(
                f"{name}: too many pixels: {width}x{height}x{page.imagedepth} with {channels} "
                f"channels, where at most {max_pixels:,} are allowed"
            )
        pixels: NDArray[Any] = page.asarray()
        planar = channels > 1 and page.planarconfig == 2
        extra = tuple(int(kind) for kind in page.extrasamples)
        tag = page.tags.get("Orientation")
    pixels = (
        pixels.reshape(channels, height, width).transpose(1, 2, 0)
        if planar
        else (pixels.reshape(height, width, channels))
    )
    if np.iscomplexobj(pixels):
        raise DataError(f"{name}: has complex numbers, which are no colours")
    if pixels.dtype == np.bool_:
        pixels = pixels.astype(np.uint8) * np.uint8(255)
    elif pixels.dtype.kind == "u" and pixels.dtype.itemsize <= 2:
        pixels = pixels.astype(pixels.dtype.newbyteorder("="))
        if extra in ((1,), (2,)) and channels in (2, 4):
            pixels = over_white(pixels, multiplied=extra == (1,))
    else:
        pixels = pixels.astype(np.float32)
    return upright(pixels, int(tag.value) if tag is not None else 1)
