"""What a model says, drawn: the one place for the colours of classes, masks, overlays and legends.

Pictures may be large: they stay whole numbers of 8 bits, and are worked on in bands of rows.
"""

from __future__ import annotations

import colorsys
import json
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vitreous.labels import IGNORED, External
from vitreous.results import Segmentation

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFont import FreeTypeFont

Colour = tuple[int, int, int]
Pixels = NDArray[np.uint8]
"""(h, w, 3)"""

SHADE = 140
"""How much of an overlay's pixel is the colour of its class, of 256."""
DARKEST = 80
"""What becomes of black under it."""
BAND = 256
"""Rows that are worked on at a time."""
JPEG_SIDE = 65_500
"""The longest side that a JPEG can have."""
MASK, OVERLAYS, DATA = "-mask.png", ("-overlay.jpg", "-overlay.png"), ".json"
ENDINGS = (MASK, *OVERLAYS, DATA)
"""How the names of the files that `write` makes end."""
LARGEST = 255
"""The largest value of an indexed PNG."""

# Told apart by hue and by lightness, gray left out: it is for what is ignored.
_FIRST = (
    *("#4363d8", "#f58231", "#3cb44b", "#e6194b", "#911eb4", "#42d4f4", "#ffe119", "#f032e6"),
    *("#9a6324", "#bfef45", "#469990", "#fabed4", "#800000", "#aaffc3", "#808000", "#dcbeff"),
    *("#000075", "#ffd8b1", "#fffac8"),
)
_GRAYS = (110, 190)
_BRIGHTNESS = (77, 150, 29)  # of red, green and blue, of 256


@lru_cache(maxsize=8)
def colours_of(ids: tuple[External, ...]) -> tuple[Colour, ...]:
    """A colour for each class: the data's own where its masks are in colour, or else ours."""
    if _are_colours(ids):
        return tuple(_parsed(str(id)) for id in ids)
    found = [_parsed(text) for text in _FIRST[: len(ids)]]
    number = 0
    while len(found) < len(ids):  # hues that are far apart (the golden ratio), in turn darker
        hue, value = number * 0.618034 % 1, (0.95, 0.7, 0.5)[number % 3]
        red, green, blue = colorsys.hsv_to_rgb(hue, (0.85, 0.55)[number % 2], value)
        colour = (round(255 * red), round(255 * green), round(255 * blue))
        number += 1
        if colour not in found:
            found.append(colour)
    return tuple(found)


def _are_colours(ids: Sequence[External]) -> bool:
    return all(isinstance(id, str) and re.fullmatch("#[0-9a-fA-F]{6}", id) for id in ids)


def _parsed(text: str) -> Colour:
    return int(text[1:3], 16), int(text[3:5], 16), int(text[5:7], 16)


def mask_values(ids: Sequence[External]) -> list[int]:
    """What each class is in a mask that is written: the data's own number where that fits into 16
    bits, or else (colours, larger numbers) the class counted from 0."""
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
    from PIL import Image

    colours = colours_of(result.ids)
    entries = [
        Entry(f"{name}  {100 * share:.1f} %", colours[result.names.index(name)])
        for name, share in result.areas.items()
    ]
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


def in_bands(image: Tensor) -> Iterator[tuple[slice, Pixels]]:
    """An image (c, h, w) as it is stored, some rows after the others, as it is looked at."""
    shown = image if image.shape[0] == 3 else image[:1]  # of two or many channels the first
    darkest, brightest = _range(shown)
    for first in range(0, image.shape[1], BAND):
        rows = slice(first, min(first + BAND, image.shape[1]))
        yield rows, _as_bytes(shown[:, rows], darkest, brightest)


def _range(image: Tensor) -> tuple[float, float]:
    """What is drawn black and white: of 16 bits and of floating point, what the image has."""
    if image.dtype == torch.uint8:
        return 0.0, 255.0
    values = image.numpy()  # torch knows no smallest number of uint16
    return float(values.min()), float(values.max())


def _as_bytes(image: Tensor, darkest: float, brightest: float) -> Pixels:
    """(1 or 3, h, w) as stored -> (h, w, 3)"""
    pixels = image.expand(3, -1, -1).permute(1, 2, 0).numpy()
    if pixels.dtype == np.uint8:
        return pixels
    shares = (pixels.astype(np.float32) - darkest) / max(brightest - darkest, 1e-12)
    return (255 * shares).round().astype(np.uint8)


class Entry(NamedTuple):
    """What one colour means."""

    words: str
    colour: Colour


def legend(entries: Sequence[Entry], width: int, size: int) -> Image:
    """Colours with their words, in lines that fit into `width`, or into the longest entry's."""
    from PIL import Image, ImageDraw

    letters, line, gap = font(size), round(1.7 * size), size
    lengths = [round(2.2 * size + letters.getlength(entry.words)) + gap for entry in entries]
    width = max(width, gap + max(lengths))
    places, x, y = [], gap, size // 2
    for length in lengths:
        if x > gap and x + length > width:
            x, y = gap, y + line
        places.append((x, y))
        x += length
    picture = Image.new("RGB", (width, y + line + size // 2), "white")
    drawing = ImageDraw.Draw(picture)
    for entry, (x, y) in zip(entries, places, strict=True):
        box = (x, y + 0.35 * size, x + 1.6 * size, y + 1.45 * size)
        drawing.rectangle(box, fill=entry.colour, outline="#606060")
        drawing.text((x + 2.2 * size, y + 0.9 * size), entry.words, "#101010", letters, anchor="lm")
    return picture


@lru_cache(maxsize=4)
def font(size: int) -> FreeTypeFont:
    """The one that matplotlib brings along: it knows more alphabets than Pillow's own."""
    from matplotlib import get_data_path
    from PIL import ImageFont

    return ImageFont.truetype(str(Path(get_data_path(), "fonts", "ttf", "DejaVuSans.ttf")), size)


def write(result: Segmentation, image: Tensor, folder: Path, name: str) -> None:
    """The mask, the image under it, and the areas of the classes; `image` as it is stored."""
    folder.mkdir(parents=True, exist_ok=True)
    mask_picture(result).save(folder / f"{name}{MASK}")
    over = save(overlay(image, result), folder, name, OVERLAYS)
    told = result.to_dict()
    values = dict(zip(result.names, mask_values(result.ids), strict=True))
    for each in told["classes"]:
        each["value"] = values[each["label"]]
    save_data(told | {"mask": f"{name}{MASK}", "overlay": over}, folder, name)


def save(drawn: Image, folder: Path, name: str, endings: tuple[str, str]) -> str:
    """As JPEG, or where it is too large for that as PNG, by their endings; the file's name, back"""
    file = f"{name}{endings[max(drawn.size) > JPEG_SIDE]}"
    drawn.save(folder / file, quality=92, subsampling=0)
    return file


def save_data(told: dict[str, Any], folder: Path, name: str) -> None:
    text = json.dumps(told, indent=2) + "\n"
    (folder / f"{name}{DATA}").write_text(text, encoding="utf-8")
