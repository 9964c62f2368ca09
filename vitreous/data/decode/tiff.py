"""TIFF files with more channels, pages or bits than Pillow can hold, read by tifffile.

Pillow opens many of them and silently loses data: it reads the first channel of two, three channels
of five, 8 bits of 16. So the header is read first, and Pillow (which knows every compression) is
used only where it returns everything that is stored.

Pages may be anything: documents, slices, moments in time, smaller copies. They are channels only
where the file declares one array, or ImageJ's channels; else the first page is read.
"""

from __future__ import annotations

import json
import re
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL.TiffImagePlugin import ImageFileDirectory_v2

from vitreous.data.decode.pixels import check_pixels, over_white, upright
from vitreous.errors import DataError

_BITS, _PHOTOMETRIC, _DESCRIPTION, _ORIENTATION = 258, 262, 270, 274
_SAMPLES, _PLANAR, _EXTRA, _KIND = 277, 284, 338, 339


def is_tiff(head: bytes) -> bool:
    return head[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


def pillow_suffices(file: BinaryIO) -> bool:
    """Whether Pillow reads everything that is stored. The file's position changes."""
    tags = _tags(file)
    samples = tags.get(_SAMPLES, 1)
    if tags.next and samples == 1 and described_channels(str(tags.get(_DESCRIPTION, ""))):
        return False
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


def orientation(file: BinaryIO) -> int:
    """The orientation tag, 1 to 8. The file's position changes."""
    value = _tags(file).get(_ORIENTATION, 1)
    return value if isinstance(value, int) else 1


def _tags(file: BinaryIO) -> ImageFileDirectory_v2:
    file.seek(0)
    head = file.read(8)
    if head[2:4] in (b"+\0", b"\0+"):  # BigTIFF has a longer header
        head += file.read(8)
    tags = ImageFileDirectory_v2(head)
    file.seek(tags.next)
    tags.load(file)
    return tags


def described_channels(description: str) -> int:
    """How many pages are the channels of one image by its description; 0 where it has no such.
    tifffile describes an array as {"shape": [5, 64, 64]}, with "axes" where they were given; ImageJ
    has lines like channels=5, and slices= or frames= where pages are something else."""
    if description.startswith("ImageJ="):
        counts = dict(re.findall(r"^(images|channels|slices|frames)=(\d+)\s*$", description, re.M))
        channels = int(counts.get("channels", 0))
        return channels if channels == int(counts.get("images", 0)) else 0
    try:
        values = json.loads(description)
    except ValueError:
        return 0
    if not isinstance(values, dict) or values.get("axes", "CYX") not in ("CYX", "SYX", "QYX"):
        return 0
    shape = values.get("shape")
    if not isinstance(shape, list) or len(shape) != 3:
        return 0
    return shape[0] if type(shape[0]) is int else 0


def unread_pages(file: BinaryIO) -> int:
    """How many pages there are where only the first is read; 0 where all are."""
    import tifffile  # type: ignore[import-not-found,unused-ignore]

    file.seek(0)
    with tifffile.TiffFile(file) as pages:
        count = len(pages.pages)
        return count if count > 1 and _stacked(pages) == 1 else 0


def _stacked(pages: Any) -> int:
    """How many pages are the channels of one image: 1, or all of them, which are then alike."""
    first = pages.pages[0]
    count = described_channels(first.description)
    if count < 2 or first.samplesperpixel > 1 or len(pages.pages) != count:
        return 1
    like = (first.shape, first.dtype)
    return count if all((page.shape, page.dtype) == like for page in pages.pages) else 1


def read(file: BinaryIO, name: str, max_pixels: int) -> NDArray[Any]:
    """(h, w, c) of the first page, or of all that are its channels: uint8, uint16 or float32."""
    import tifffile  # type: ignore[import-not-found,unused-ignore]

    file.seek(0)
    with tifffile.TiffFile(file) as pages:
        page: Any = pages.pages[0]
        height, width = page.imagelength, page.imagewidth
        stacked = _stacked(pages)
        channels = page.samplesperpixel * stacked
        # tifffile stores an array (h, w, 5) as h pages too: long, and too narrow for an image
        last = 2 * width < min(stacked, height)
        if last:
            height, width, channels = stacked, height, width
        check_pixels(name, width, height * page.imagedepth, max_pixels, channels)
        if page.imagedepth > 1:
            raise DataError(f"{name}: has {page.imagedepth} layers, where an image has one")
        pixels: NDArray[Any] = pages.asarray(key=range(stacked)) if stacked > 1 else page.asarray()
        planar = (stacked > 1 and not last) or (page.samplesperpixel > 1 and page.planarconfig == 2)
        extra = tuple(int(kind) for kind in page.extrasamples)
        tag = page.tags.get("Orientation")
    if planar:
        pixels = pixels.reshape(channels, height, width).transpose(1, 2, 0)
    else:
        pixels = pixels.reshape(height, width, channels)
    if np.iscomplexobj(pixels):
        raise DataError(f"{name}: has complex numbers, which are not colours")
    if pixels.dtype == np.bool_:
        pixels = pixels.astype(np.uint8) * np.uint8(255)
    elif pixels.dtype.kind == "u" and pixels.dtype.itemsize <= 2:
        pixels = pixels.astype(pixels.dtype.newbyteorder("="))
        if extra in ((1,), (2,)) and channels in (2, 4):
            pixels = over_white(pixels, multiplied=extra == (1,))
    else:
        pixels = pixels.astype(np.float32)
    return upright(pixels, int(tag.value) if tag is not None else 1)
