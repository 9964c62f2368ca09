"""One mask file as the class of every pixel.

`images.py` reads pictures as they are displayed; in a mask the stored values count. So the index
into a palette is the value, not its colour; values of few bits are not stretched to bytes; nothing
is blended. Formats with lossy compression, such as JPEG, are refused.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from vitreous.data.decode import png16, tiff
from vitreous.data.decode.images import (
    decoding,
    open_image,
    opened,
    orientation_of,
    pages_behind,
    shown,
    size_mismatch,
)
from vitreous.data.decode.pixels import MAX_PIXELS, ImageSize, check_pixels, upright
from vitreous.data.source import IGNORED
from vitreous.errors import DataError
from vitreous.labels import External, LabelMap

LARGEST_ID = 65535
"""The largest value of a pixel that can be a class: masks have 8 or 16 bits."""

_EXACT = ("PNG", "TIFF", "BMP", "GIF")
_LOSSY_TIFF = ("jpeg", "tiff_jpeg", "webp")
_STRETCHED = {"L;2": 85, "L;4": 17}  # what Pillow multiplies values of 2 and 4 bits with
_UNKNOWN = -2  # neither a class nor ignored
_LISTED = 6  # values in an error


class Mask(NamedTuple):
    """What a file has for each pixel."""

    values: NDArray[Any]
    """(h, w) of uint8 or uint16, or (h, w, 3) of uint8: colours."""
    orientation: int | None
    """That EXIF gives, and that has been applied; None where there is none."""
    unread_pages: int = 0
    """Of the file, if they were counted."""

    def check_size(self, path: str, image: str, size: ImageSize) -> None:
        """The mask of the file `path` must be as large as the image of the file `image`."""
        shape = (self.values.shape[0], self.values.shape[1])
        size = size if self.orientation is None else size._replace(orientation=1)
        if mismatch := size_mismatch(shape, size, "is", f"its image {shown(image)}"):
            raise DataError(f"{shown(path)}: {mismatch}")


def read_mask(path: str, *, max_pixels: int = MAX_PIXELS, count_pages: bool = False) -> Mask:
    """The values as stored. An error begins with the path."""
    with opened(path) as file:
        mask = _decoded(file, shown(path), max_pixels)
        return mask._replace(unread_pages=pages_behind(file)) if count_pages else mask


def _decoded(file: BinaryIO, name: str, max_pixels: int) -> Mask:
    with decoding(file, name, max_pixels) as head:
        of_tiff = tiff.orientation(file) if tiff.is_tiff(head) else None
        if tiff.is_tiff(head) and not tiff.pillow_suffices(file):
            values = tiff.read(file, name, max_pixels)
            return Mask(_plain(values[:, :, 0] if values.shape[2] == 1 else values, name), of_tiff)
        with open_image(file, head, name) as image:
            check_pixels(name, *image.size, max_pixels)
            _check_exact(image, name)
            if image.format == "PNG" and png16.is_deep(head):
                raise DataError(f"{name}: has 16 bits for each colour: save masks with 8")
            factor = _STRETCHED.get(_packing(image)[:3], 1)
            image.load()
            orientation = orientation_of(image)  # only now: loading a TIFF rotates it, resets EXIF
            values = _plain(np.asarray(image), name) // factor
            return Mask(upright(values, orientation or 1), of_tiff or orientation)


def _check_exact(image: Image.Image, name: str) -> None:
    lossy = image.info.get("compression") in _LOSSY_TIFF
    if image.format not in _EXACT or lossy:
        kind = f"a {image.format}{' with lossy compression' if lossy else ''}"
        raise DataError(f"{name}: is {kind}, which changes the values of pixels: save masks as PNG")


def _packing(image: Image.Image) -> str:
    """How Pillow unpacks the values, as L;2 for shades of gray in two bits."""
    tile = getattr(image, "tile", None)
    arguments = tile[0].args if tile else ""
    return str(arguments[0] if isinstance(arguments, tuple) and arguments else arguments)


def _plain(values: NDArray[Any], name: str) -> NDArray[Any]:
    """(h, w) of uint8 or uint16, or (h, w, 3) of uint8. Ambiguous values are refused. Alpha is
    dropped where it hides nothing; whole numbers may be stored as any type."""
    if values.ndim == 3 and values.shape[2] in (2, 4) and values.dtype.kind == "u":
        if (values[:, :, -1] != np.iinfo(values.dtype).max).any():
            raise DataError(f"{name}: is transparent in places: save masks without transparency")
        values = values[:, :, 0] if values.shape[2] == 2 else values[:, :, :3]
    if values.ndim == 3:
        if values.shape[2] != 3 or values.dtype != np.uint8:
            raise DataError(
                f"{name}: has {values.shape[2]} channels of {values.dtype}: a mask has one channel "
                "with the number of each pixel's class, or three of 8 bits with its colour"
            )
        return values
    if values.dtype in (np.uint8, np.uint16):
        return values
    with np.errstate(invalid="ignore"):  # NaN
        whole = values.astype(np.uint16)
    if (whole != values).any():
        raise DataError(f"{name}: has values that are not whole numbers from 0 to {LARGEST_ID}")
    return whole


def to_classes(values: NDArray[Any], labels: LabelMap, name: str) -> Tensor:
    """The class inside the model of every pixel; `name` is what errors begin with."""
    by_colour = isinstance(labels.external[0], str)  # those of the names file
    if by_colour and values.ndim == 2:
        raise DataError(
            f"{name}: has a number for each pixel, but the names are given for colours: name the "
            f'numbers, {{"{values.flat[0]}": …}}'
        )
    if not by_colour and values.ndim == 3:
        raise DataError(f"{name}: {in_colour(values)}")
    known, classes = _table(labels)
    if by_colour:
        numbers: NDArray[Any] = colour_codes(values)
        places = np.searchsorted(known, numbers).clip(max=len(known) - 1)
        found = np.where(known[places] == numbers, classes[places], np.int16(_UNKNOWN))
    else:
        numbers = values
        by_number = np.full(LARGEST_ID + 1, _UNKNOWN, np.int16)
        by_number[known] = classes
        found = by_number[numbers]
    if (found == _UNKNOWN).any():
        raise DataError(f"{name}: {_unknown(numbers[found == _UNKNOWN], by_colour)}")
    return torch.from_numpy(np.ascontiguousarray(found))


def in_colour(values: NDArray[Any]) -> str:
    """The error for a mask (h, w, 3) where numbers are expected."""
    same = (values[..., :1] == values).all()
    gray = " (of which all are gray: one channel would do)" if same else ""
    return (
        f"is in colour{gray}, where the number of each pixel's class is expected: save masks in "
        "shades of gray or indexed, or name the colours in the names file, "
        f'{{"{external_of(int(colour_codes(values).flat[0]), True)}": "sky", …}}'
    )


def colour_codes(values: NDArray[Any]) -> NDArray[np.int32]:
    """(h, w, 3) of colours to (h, w): one number for each colour, as #rrggbb is read."""
    wide: NDArray[np.int32] = values.astype(np.int32)
    return wide[..., 0] << 16 | wide[..., 1] << 8 | wide[..., 2]


def external_of(number: int, by_colour: bool) -> External:
    """A value of a mask as the names file has it."""
    return f"#{number:06x}" if by_colour else number


@lru_cache(maxsize=8)
def _table(labels: LabelMap) -> tuple[NDArray[np.int32], NDArray[np.int16]]:
    """The values that masks may have, in their order, and the class of each."""
    pairs = [(id, number) for number, id in enumerate(labels.external)]
    pairs += [(id, IGNORED) for id in labels.ignored]
    numbers = [(int(id[1:], 16) if isinstance(id, str) else id, number) for id, number in pairs]
    known, classes = zip(*sorted(numbers), strict=True)
    return np.array(known, np.int32), np.array(classes, np.int16)


def _unknown(numbers: NDArray[Any], by_colour: bool) -> str:
    values, counts = np.unique(numbers, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    ids = [external_of(int(values[i]), by_colour) for i in order]
    found = [f"{id} ({counts[i]:,} pixels)" for id, i in zip(ids, order, strict=True)]
    more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
    return (
        f"has values that are neither a class nor ignored: {', '.join(found[:_LISTED])}{more}: "
        f'name them in the names file, {{"{ids[0]}": "…"}}, or ignore them, {{"{ids[0]}": null}}'
    )
