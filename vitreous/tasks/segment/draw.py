"""Masks, and images under masks with a legend, drawn in the colours of the classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from vitreous.labels import IGNORED, External
from vitreous.pages.colours import Colour, colours_of
from vitreous.pages.pictures import (
    DATA,
    Pixels,
    as_picture,
    as_tensor,
    font,
    in_bands,
    save,
    save_data,
    save_picture,
)
from vitreous.results import Segmentation

if TYPE_CHECKING:
    from PIL.Image import Image

SHADE = 140
"""How much of an overlay's pixel is the colour of its class, of 256."""
DARKEST = 80
"""What becomes of black under it."""
MASK, OVERLAYS = "-mask.png", ("-overlay.jpg", "-overlay.png")
ENDINGS = (MASK, *OVERLAYS, DATA)
"""How the names of the files that `write` makes end."""
LARGEST = 255
"""The largest value of an indexed PNG."""
_GRAYS = (110, 190)
_BRIGHTNESS = (77, 150, 29)  # of red, green and blue, of 256


def mask_values(ids: Sequence[External]) -> list[int]:
    """The value of each class in a mask that is written: the data's own number where that fits into
    16 bits, or else (colours, larger numbers) the class counted from 0."""
    numbers = [id for id in ids if isinstance(id, int) and 0 <= id < 2**16]
    return numbers if len(numbers) == len(ids) else list(range(len(ids)))


def mask_picture(result: Segmentation) -> Image:
    """The mask as an indexed picture, each class in its colour; in 16 bits of gray where a value is
    larger than an index can be."""
    from PIL import Image

    values = mask_values(result.ids)
    if max(values) > LARGEST:
        return Image.fromarray(np.array(values, np.uint16)[result.mask])
    palette = np.zeros((LARGEST + 1, 3), np.uint8)
    palette[values] = colours_of(result.ids)
    picture = Image.fromarray(np.array(values, np.uint8)[result.mask])
    picture.putpalette(palette.tobytes())
    return picture


def coloured(mask: NDArray[Any], colours: Sequence[Colour]) -> Pixels:
    """(h, w) of classes as a picture of their colours; what is ignored is hatched in gray."""
    table = np.array([*colours, (0, 0, 0)], np.uint8)
    picture: Pixels = table[mask]  # IGNORED finds the last row
    ignored = mask == IGNORED
    if ignored.any():
        width = max(max(mask.shape) // 64, 1)
        ys, xs = np.nonzero(ignored)
        picture[ys, xs] = np.array(_GRAYS, np.uint8)[(ys + xs) // width % 2][:, None]
    return picture


def overlay(image: Tensor, result: Segmentation) -> Image:
    """An image (c, h, w) as it is stored, its mask laid over it, and a legend below it."""
    colours = colours_of(result.ids)
    entries = {
        f"{name}  {100 * share:.1f} %": colours[result.names.index(name)]
        for name, share in result.areas.items()
    }
    return _over_legend(image, result, entries)


def frame(image: Tensor, result: Segmentation) -> Image:
    """The same for a frame of a video, whose size must not change: the legend has all classes."""
    return _over_legend(image, result, dict(zip(result.names, colours_of(result.ids), strict=True)))


def _over_legend(image: Tensor, result: Segmentation, entries: Mapping[str, Colour]) -> Image:
    from PIL import Image

    colours = colours_of(result.ids)
    height, width = result.mask.shape
    key = legend(entries, width, max(11, min(min(height, width) // 32, 64)))
    canvas = np.full((height + key.height, max(width, key.width), 3), 255, np.uint8)
    for rows, pixels in in_bands(image):
        canvas[rows, :width] = blended(pixels, coloured(result.mask[rows], colours))
    canvas[height:, : key.width] = np.asarray(key)
    return Image.fromarray(canvas)


def blended(pixels: Pixels, colours: Pixels) -> Pixels:
    """The colours laid over the pixels, which become gray: all colour means a class. Black becomes
    a dark gray, on which colours can still be told apart."""
    bright = (pixels * np.array(_BRIGHTNESS, np.uint16)).sum(axis=2, keepdims=True, dtype=np.uint32)
    gray = DARKEST + (bright >> 8) * (255 - DARKEST) // 255
    return (gray * (256 - SHADE) + colours * np.uint32(SHADE) >> 8).astype(np.uint8)


def overlaid(image: Tensor, mask: Tensor, ids: Sequence[External]) -> Tensor:
    """(3, h, w) in 0..1: an image (c, h, w) in 0..1 under its mask, which may be without the
    image's padding."""
    pixels = np.array(as_picture(image).convert("RGB"))
    inside = pixels[: mask.shape[0], : mask.shape[1]]
    inside[:] = blended(inside, coloured(mask.numpy(), colours_of(tuple(ids))))
    return as_tensor(pixels)


def legend(entries: Mapping[str, Colour], width: int, size: int) -> Image:
    """Words with their colours, in lines that fit into `width`, or into the longest entry's."""
    from PIL import Image, ImageDraw

    letters, line, gap = font(size), round(1.7 * size), size
    lengths = [round(2.2 * size + letters.getlength(words)) + gap for words in entries]
    width = max(width, gap + max(lengths))
    places, x, y = [], gap, size // 2
    for length in lengths:
        if x > gap and x + length > width:
            x, y = gap, y + line
        places.append((x, y))
        x += length
    picture = Image.new("RGB", (width, y + line + size // 2), "white")
    drawing = ImageDraw.Draw(picture)
    for (words, colour), (x, y) in zip(entries.items(), places, strict=True):
        box = (x, y + 0.35 * size, x + 1.6 * size, y + 1.45 * size)
        drawing.rectangle(box, fill=colour, outline="#606060")
        drawing.text((x + 2.2 * size, y + 0.9 * size), words, "#101010", letters, anchor="lm")
    return picture


def write(result: Segmentation, image: Tensor, folder: Path, name: str) -> None:
    """The mask, the image under it, and the areas of the classes; `image` as it is stored."""
    save_picture(mask_picture(result), folder / f"{name}{MASK}")
    over = save(overlay(image, result), folder, name, OVERLAYS)
    record = result.to_dict()
    values = dict(zip(result.names, mask_values(result.ids), strict=True))
    for each in record["classes"]:
        each["value"] = values[each["label"]]
    save_data(record | {"mask": f"{name}{MASK}", "overlay": over}, folder, name)
