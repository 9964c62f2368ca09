"""One image file as a tensor, as it is meant to be displayed: (c, h, w), nothing rescaled.

The result is uint8, uint16 or float32, as stored. Grayscale has one channel; palettes, CMYK and
YCbCr become RGB; EXIF rotation is applied. Of an animation or a file with pages, the first is read,
unless a TIFF declares its pages to be the channels of one image.
Transparent images are put on white: that is what paper, browsers and viewers show behind them,
while the colour stored under full transparency is arbitrary, often black, and never displayed.

Files may come from anywhere, so only some formats are tried, and the number of pixels is read from
the header and limited before anything is decoded.
"""

from __future__ import annotations

import importlib
import io
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from PIL.ImageFile import ImageFile
from torch import Tensor

from vitreous.data.decode import png16, tiff
from vitreous.data.decode.pixels import (
    MAX_PIXELS,
    Enough,
    ImageSize,
    check_pixels,
    over_white,
    too_many_pixels,
    upright,
)
from vitreous.errors import DataError

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF", "PPM", "AVIF")
EXTENSIONS = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".dib", ".tif", ".tiff", ".gif"),
    *(".ppm", ".pgm", ".pbm", ".pnm", ".pfm", ".avif", ".heic", ".heif"),
)


class DecodedImage(NamedTuple):
    """An image, and what else its file shows."""

    pixels: Tensor
    """(c, h, w), uint8, uint16 or float32; of a JPEG, perhaps at a part of its size."""
    size: ImageSize
    """Of the whole image."""
    unread_pages: int = 0
    """Pages or frames of the file, where only the first is read; 0 where all is, or where they were
    not counted."""


class ImageBytes(NamedTuple):
    """An image file that is in memory, and its name."""

    data: bytes | bytearray
    name: str


AnyImage = str | Path | ImageBytes | Image.Image | NDArray[Any] | Tensor
"""An image as people have it: see `from_any`."""

# Other files that are often found in place of an image, by their first bytes.
_KNOWN_OTHERS = (
    (b"<!doctype html", "is an HTML page, not an image: was it a download that failed?"),
    (b"<html", "is an HTML page, not an image: was it a download that failed?"),
    (b"version https://git-lfs", "is a Git LFS pointer: 'git lfs pull' fetches the image itself"),
    (b"<svg", "is an SVG drawing: convert it to PNG"),
    (b"<?xml", "is an XML file, not an image of pixels"),
    (b"%pdf", "is a PDF document: convert its pages to images"),
    (b"8bps", "is a Photoshop file: convert it to PNG or TIFF"),
    (b"pk\3\4", "is a ZIP archive: unpack it"),
)
_SWAPPED = (5, 6, 7, 8)  # EXIF orientations that swap height and width
_PNG_EXIF = (b"eXIf", b"type exif", b"adobe.xmp")
MAX_VALUE = 1e9
"""Of a floating-point image: a model's sums of squares must stay far below float32's largest."""
_HEIC = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")
_VIDEO = (
    "is a video file: vitreous predict (predictor.video in Python) reads it if it is called .mp4 "
    "or the like; for all else, save its frames as images"
)
_CUT_SHORT = "is damaged or cut short: its header cannot be read"
_DAMAGED = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"II*\0", b"MM\0*", b"RIFF", b"BM")


def open_image(file: BinaryIO, head: bytes, name: str) -> ImageFile:
    """What Pillow makes of a file's header; HEIC by pillow-heif, if it is installed."""
    formats: tuple[str, ...] = FORMATS
    if _brand(head) in _HEIC and b"avif" not in head:  # which mif1 may also contain
        try:
            importlib.import_module("pillow_heif").register_heif_opener()
        except ImportError:
            raise DataError(
                f"{name}: is a HEIC image: install pillow-heif (pip install pillow-heif), or "
                "convert it to JPEG or PNG"
            ) from None
        formats = ("HEIF",)
    file.seek(0)
    return Image.open(file, formats=formats)


def _brand(head: bytes) -> bytes:
    """What a file in ISO's container for media holds: avif, heic, mp42 …; empty in other files."""
    return head[8:12] if head[4:8] == b"ftyp" else b""


def read_image(path: str | Path, *, max_pixels: int = MAX_PIXELS) -> Tensor:
    """(c, h, w), uint8, uint16 or float32. An error begins with the path."""
    return read_decoded(path, max_pixels=max_pixels).pixels


def read_decoded(
    path: str | Path,
    *,
    max_pixels: int = MAX_PIXELS,
    enough: Enough | None = None,
    count_pages: bool = False,
) -> DecodedImage:
    """The same with its size and, if `count_pages`, how many pages are not read."""
    with opened(path) as file:
        found = decode(file, shown(path), max_pixels=max_pixels, enough=enough)
        return found._replace(unread_pages=pages_behind(file)) if count_pages else found


@contextmanager
def opened(path: str | Path) -> Iterator[BinaryIO]:
    """A file to read; whatever is wrong with it is a DataError that begins with the path."""
    name = shown(path)
    try:
        if not stat.S_ISREG(mode := os.stat(path).st_mode):
            what = "is a folder" if stat.S_ISDIR(mode) else "is not a regular file"
            raise DataError(f"{name}: {what}, not an image")
        with open(path, "rb") as file:
            yield file
    except FileNotFoundError:
        what = "there is no such file"
        if os.path.islink(path):
            what = "is a link to a file that does not exist"
        elif re.match(r"https?:/", name):
            what = (
                "is an address, and images are read from files alone: download it first (curl -O)"
            )
        raise DataError(f"{name}: {what}") from None
    except ValueError as error:  # a zero byte in the name
        raise DataError(f"{name}: {error}") from None
    except OSError as error:  # no permission, a loop of links, a failing disk
        raise DataError(f"{name}: cannot be read: {error.strerror or error}") from None


def decode(
    file: BinaryIO, name: str, *, max_pixels: int = MAX_PIXELS, enough: Enough | None = None
) -> DecodedImage:
    """The image in an open file; `name` is what errors begin with. enough: a JPEG is decoded at a
    half, a quarter or an eighth of its size, which takes less time, where that is enough. Nothing
    that a model answers for may ask for it: the pixels are others."""
    with decoding(file, name, max_pixels) as head:
        orientation, sides = tiff.orientation(file) if tiff.is_tiff(head) else 1, None
        if tiff.is_tiff(head) and not tiff.pillow_suffices(file):
            pixels = tiff.read(file, name, max_pixels)
        else:
            with open_image(file, head, name) as image:
                deep = image.format == "PNG" and png16.is_deep(head)
                if enough is not None and image.format == "JPEG":
                    sides = _shrink(image, enough)
                pixels = _pixels(image, name, max_pixels, deep_png=file if deep else None)
                if not tiff.is_tiff(head):
                    orientation = orientation_of(image) or 1
    height, width = sides or pixels.shape[:2]
    size = ImageSize(height, width, orientation)
    return DecodedImage(_with_usable_values(_tensor(pixels), name), size)


@contextmanager
def decoding(file: BinaryIO, name: str, max_pixels: int) -> Iterator[bytes]:
    """Gives the first bytes of a file. Whatever goes wrong inside is a DataError."""
    head = file.read(64)
    file.seek(0)
    if not head:
        raise DataError(f"{name}: the file is empty")
    # Damaged bytes make decoders fail in too many ways to list (struct.error, KeyError,
    # SyntaxError, zlib.error …); all of them mean the same to the user.
    try:
        yield head
    except DataError:
        raise
    # Our own limit is checked for every image. Turning Pillow's warning into an error here would
    # take `warnings.catch_warnings`, which is not safe where several threads decode.
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        count = next(iter(re.findall(r"\((\d+) pixels\)", str(error))), "far more")
        if count.isdecimal() and int(count) <= max_pixels:
            what = f"has {count} pixels, more than Pillow opens (PIL.Image.MAX_IMAGE_PIXELS)"
            raise DataError(f"{name}: {what}: make the image smaller") from None
        size = f"{int(count):,}" if count.isdecimal() else count
        raise too_many_pixels(name, size, max_pixels) from None
    except Image.UnidentifiedImageError:
        raise DataError(f"{name}: {_not_an_image(head)}") from None
    except MemoryError:
        raise DataError(f"{name}: does not fit into memory") from None
    except Exception as error:
        text = str(error) or type(error).__name__
        if isinstance(error, EOFError) or any(w in text.lower() for w in ("truncated", "eof")):
            raise DataError(f"{name}: is cut short ({text})") from None
        raise DataError(f"{name}: is damaged ({text})") from None


def from_any(thing: AnyImage, *, max_pixels: int = MAX_PIXELS) -> tuple[Tensor, str]:
    """An image in any form as (c, h, w), and a name for it. A tensor is (c, h, w) or (h, w). A
    numpy array is (h, w) or (h, w, c), or (c, h, w) if its first axis is shorter than its last.
    Floating-point values stay as they are."""
    if isinstance(thing, str | Path):
        return read_image(thing, max_pixels=max_pixels), shown(thing)
    if isinstance(thing, ImageBytes):
        found = decode(io.BytesIO(thing.data), thing.name, max_pixels=max_pixels)
        return found.pixels, thing.name
    if isinstance(thing, Image.Image):
        name = shown(getattr(thing, "filename", "") or "image")
        try:
            return _tensor(_pixels(thing, name, max_pixels)), name
        except (OSError, SyntaxError, ValueError) as error:
            raise DataError(f"{name}: is damaged ({error})") from None
    if isinstance(thing, np.ndarray):
        if thing.ndim == 3 and thing.shape[0] >= thing.shape[2]:
            thing = thing.transpose(2, 0, 1)
        if thing.dtype.kind not in "buif":
            raise DataError(f"array: has values of type {thing.dtype}, which are no colours")
        thing = thing.astype(thing.dtype.newbyteorder("="))  # a copy: torch wants one of its own
        return _from_tensor(torch.from_numpy(thing), "array"), "array"
    if isinstance(thing, Tensor):
        return _from_tensor(thing.detach().cpu(), "tensor"), "tensor"
    raise DataError(
        f"{type(thing).__name__}: expected a path, a PIL image, a numpy array or a torch tensor"
    )


def several(images: Any) -> Sequence[Any] | None:
    """The images of a list, a tuple or a batch, (b, c, h, w) or (b, h, w, c); None if it is one."""
    if isinstance(images, np.ndarray | Tensor) and images.ndim == 4:
        return list(images)
    return images if isinstance(images, list | tuple) else None


def displayed_size(path: str | Path, *, max_pixels: int = MAX_PIXELS) -> ImageSize:
    """Of the image that `read_image` gives, for who does not need that. Only headers are read where
    they are enough."""
    with opened(path) as file, decoding(file, shown(path), max_pixels) as head:
        if tiff.is_tiff(head):
            return decode(file, shown(path), max_pixels=max_pixels).size
        # Pillow decodes a whole PNG to find EXIF, which may come last.
        data = file.read() if head.startswith(b"\x89PNG") else b""
        plain = bool(data) and not any(mark in data for mark in _PNG_EXIF)
        with open_image(file, head, shown(path)) as image:
            check_pixels(shown(path), *image.size, max_pixels)
            orientation = 1 if plain else orientation_of(image) or 1
            width, height = image.size
            if orientation in _SWAPPED:
                height, width = width, height
            return ImageSize(height, width, orientation)


def size_mismatch(
    labelled: tuple[int, int] | None, displayed: ImageSize, what: str, image: str = "the image"
) -> str:
    """The error where a mask or boxes may be for another image than the one that is read, or "".
    labelled: the height and width that they are for, where known. what: `the mask is`, `the boxes
    are for`."""
    height, width, orientation = displayed
    if labelled is not None and labelled != (height, width):
        rotated = f" after EXIF's rotation (orientation {orientation})" if orientation != 1 else ""
        return (
            f"{what} {labelled[0]}x{labelled[1]} (height x width), but {image} is "
            f"{height}x{width}{rotated}"
        )
    if orientation == 1 or (labelled and orientation in _SWAPPED and height != width):
        return ""
    return (
        f"EXIF rotates {image} (orientation {orientation}), and nothing tells whether the labels "
        "are for the image as stored or as displayed: save it upright, without EXIF"
    )


def unread_pages(path: str) -> int:
    """How many pages or frames a file has of which only the first is read; 0 where all is read."""
    try:
        with open(path, "rb") as file:
            return pages_behind(file)
    except OSError:
        return 0


def pages_behind(file: BinaryIO) -> int:
    """The same for an open file. JPEGs are left out: what cameras store behind the first picture is
    a preview of it."""
    try:
        file.seek(0)
        head = file.read(64)
        if tiff.is_tiff(head):
            return tiff.unread_pages(file)
        if not head.startswith((b"GIF8", b"RIFF", b"\x89PNG")) and not _brand(head):
            return 0
        with open_image(file, head, "") as image:
            frames: int = getattr(image, "n_frames", 1)
            return frames if frames > 1 else 0
    except Exception:  # later pages may be damaged, but they are not read
        return 0


def _from_tensor(image: Tensor, name: str) -> Tensor:
    shape = "x".join(map(str, image.shape))
    if image.ndim == 2:
        image = image[None]
    if image.ndim != 3 or not image.numel():
        raise DataError(f"{name}: expected (c, h, w) or (h, w) with pixels in it, got {shape}")
    if image.dtype == torch.bool:
        return image.to(torch.uint8) * 255
    if image.is_floating_point():
        return _with_usable_values(image.to(torch.float32), name)
    if image.dtype in (torch.uint8, torch.uint16):
        return image
    raise DataError(
        f"{name}: {image.dtype} does not say which value is white: "
        "use uint8 (255), uint16 (65535) or floating point (1.0)"
    )


def _with_usable_values(image: Tensor, name: str) -> Tensor:
    """The image; floating-point values with which no model can compute are a DataError."""
    if not image.is_floating_point():
        return image
    if not image.isfinite().all():
        raise DataError(f"{name}: has values that are not finite (NaN or infinity)")
    extreme = max(image.min().item(), image.max().item(), key=abs)
    if abs(extreme) > MAX_VALUE:
        raise DataError(
            f"{name}: has values of {extreme:.3g}, beyond {MAX_VALUE:g}, as some programs mark "
            "missing pixels: replace them by an ordinary value"
        )
    return image


def shown(path: str | Path | bytes) -> str:
    """A path as text that can be printed and stored, also where its bytes are not UTF-8."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _pixels(
    image: Image.Image, name: str, max_pixels: int, deep_png: BinaryIO | None = None
) -> NDArray[Any]:
    """(h, w, c), upright and without transparency."""
    check_pixels(name, *image.size, max_pixels)
    image.load()
    orientation = orientation_of(image) or 1  # only now: loading a TIFF rotates it and resets EXIF
    if deep_png is not None:
        deep_png.seek(0)
        pixels = png16.read(deep_png)
        pixels = over_white(pixels) if pixels.shape[2] in (2, 4) else pixels
    elif image.mode == "1":
        pixels = np.asarray(image.convert("L"))
    elif image.has_transparency_data and image.mode not in ("I", "F") and image.mode[0:2] != "I;":
        gray = image.mode in ("L", "LA", "La")
        pixels = over_white(np.asarray(image.convert("LA" if gray else "RGBA")))
    elif image.mode.startswith("I;16"):
        pixels = np.asarray(image).astype(np.uint16)
    elif image.mode == "I":
        # Pillow's 32-bit integers are a PNM's 16 bits, or whole numbers of a TIFF in any range.
        is_16 = image.format in ("PPM", "PNG")
        pixels = np.asarray(image).astype(np.uint16 if is_16 else np.float32)
    elif image.mode in ("L", "F", "RGB"):
        pixels = np.asarray(image)
    else:
        pixels = np.asarray(image.convert("RGB"))
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    return upright(pixels, orientation)


def _shrink(image: ImageFile, enough: Enough) -> tuple[int, int]:
    """Let the JPEG decoder leave out what is more than enough; height and width without that."""
    swapped = (orientation_of(image) or 1) in _SWAPPED
    width, height = image.size[::-1] if swapped else image.size
    least = enough(height, width)
    if 2 * least[0] <= height and 2 * least[1] <= width:
        image.draft(image.mode, least if swapped else (least[1], least[0]))
    return height, width


def _tensor(pixels: NDArray[Any]) -> Tensor:
    """(h, w, c) to (c, h, w), in memory of its own: Pillow's must not be written to. Photographs
    stay as they are in memory: Pillow and torch resize them several times as fast so."""
    if pixels.dtype == np.uint8 and pixels.shape[2] == 3:
        return torch.from_numpy(np.require(pixels, requirements=("C", "W"))).permute(2, 0, 1)
    return torch.from_numpy(np.array(pixels.transpose(2, 0, 1), order="C"))


def orientation_of(image: Image.Image) -> int | None:
    """The EXIF orientation, 1 to 8; None where there is none."""
    try:
        value = image.getexif().get(0x0112)
    except Exception:  # with damaged EXIF the pixels may still be fine
        return None
    return value if isinstance(value, int) else None


def _not_an_image(head: bytes) -> str:
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    for magic, what in _KNOWN_OTHERS:
        if start.startswith(magic):
            return what
    if brand := _brand(head):
        known = brand in _HEIC or b"avif" in head
        return _CUT_SHORT if known else _VIDEO
    if head.startswith(_DAMAGED):
        return _CUT_SHORT
    return "is not an image that can be read (JPEG, PNG, WEBP, BMP, TIFF, GIF, AVIF, HEIC, PNM)"
