"""Boxes with words, drawn into images of any size."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from vitreous.pages.colours import Colour, class_colours, colours_of, ink_on
from vitreous.pages.maps import BoxMark, Corners
from vitreous.pages.pictures import (
    DATA,
    JPEG_SIDE,
    Pixels,
    fitting,
    font,
    in_bands,
    save,
    save_data,
)
from vitreous.results import DetectedObject, Detection

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont

Place = tuple[int, int, int, int]
"""Corners in pixels of a picture, but right and bottom are the last ones inside."""

Masks = Sequence[NDArray[np.bool_]] | None
"""(h, w) for each object, in pixels of the image."""

PICTURES = ("-boxes.jpg", "-boxes.png")
ENDINGS = (*PICTURES, DATA)
"""How the names of the files that `write` makes end."""
LONG, SHORT = 512, 64
"""Pixels that the sides of a picture have at least: a smaller image is enlarged, as words cannot be
made smaller than they can be read."""
SHADE = 0.45
"""How much of a pixel under a mask is its colour."""
DARK = (16, 16, 16)
"""The colour of the thin lines beside those of objects: they are seen on every ground."""
TINTS = (0.0, 0.45, -0.4, 0.7)
"""Of a class's colour, for boxes that overlap: towards white, or black."""
TRACK_COLOURS = 16
SMALLEST = 11
"""Height of letters that can still be read."""


def marks_of(result: Detection) -> list[BoxMark]:
    """The detected objects, the most confident first."""
    colours = class_colours(result.names, result.ids)
    return told_apart([mark_of(found, colours) for found in result.objects])


def frame_marks(result: Detection) -> list[BoxMark]:
    """The same for a frame of a video, in which nothing must flicker: the smallest on top, whatever
    the scores are, in the colour of its class. A tracked object has its number and a colour of its
    own, and no score."""
    colours = class_colours(result.names, result.ids)
    palette = colours_of(tuple(range(TRACK_COLOURS)))
    return [
        mark_of(found, colours)
        if found.track is None
        else BoxMark(
            found.box, f"{found.label} #{found.track}", palette[found.track % TRACK_COLOURS]
        )
        for found in smallest_first(result)
    ]


def smallest_first(result: Detection) -> list[Any]:
    """The detected objects, in the order of `frame_marks`."""

    def extent(found: DetectedObject) -> float:
        left, top, right, bottom = found.box
        return (right - left) * (bottom - top)

    return sorted(result.objects, key=extent)


def mark_of(found: DetectedObject, colours: Mapping[str, Colour]) -> BoxMark:
    return BoxMark(found.box, f"{found.label} {found.score:.2f}", colours[found.label])


def told_apart(marks: Sequence[BoxMark]) -> list[BoxMark]:
    """Boxes of one class that overlap in different tints of its colour, as far as there are."""
    chosen: list[tuple[BoxMark, int]] = []
    for mark in marks:
        near = {
            number
            for other, number in chosen
            if other.colour == mark.colour and _meet(other.box, mark.box)
        }
        free = (number for number in range(len(TINTS)) if number not in near)
        chosen.append((mark, next(free, len(near) % len(TINTS))))
    return [mark._replace(colour=_tinted(mark.colour, TINTS[number])) for mark, number in chosen]


def _tinted(colour: Colour, share: float) -> Colour:
    """Nearer to white, or where the share is negative, to black."""
    towards = 255 if share > 0 else 0
    red, green, blue = (round(part + abs(share) * (towards - part)) for part in colour)
    return red, green, blue


def moved(marks: Iterable[BoxMark], size: Sequence[int], new: Sequence[int]) -> list[BoxMark]:
    """For the same image at another size; sizes are height and width."""
    tall, wide = new[0] / size[0], new[1] / size[1]
    return [
        mark._replace(box=(left * wide, top * tall, right * wide, bottom * tall))
        for mark in marks
        for left, top, right, bottom in (mark.box,)
    ]


def boxed(
    image: Tensor, marks: Sequence[BoxMark], letters: float = 1.0, masks: Masks = None
) -> Image:
    """An image (c, h, w) as it is stored with boxes, the first on top; enlarged if it is small.

    `letters`: how many times as large as usual, for pictures that are shown small. `masks`: of each
    object the pixels, which are drawn instead of its box; a dashed box is drawn, too.
    """
    from PIL import Image, ImageDraw

    height, width = image.shape[1:]
    times = enlargement(height, width)
    canvas = np.empty((height * times, width * times, 3), np.uint8)
    for rows, pixels in in_bands(image):
        large = pixels.repeat(times, axis=0).repeat(times, axis=1)
        canvas[rows.start * times : rows.stop * times] = large
    size = round(letters * letter_size(*canvas.shape[:2]))
    line = max(round(size / 5.5), 2)
    if masks is not None:
        for mark, mask in reversed(list(zip(marks, masks, strict=True))):
            paint(canvas, mask, mark.colour, times, line)
    picture = Image.fromarray(canvas)
    drawing = ImageDraw.Draw(picture)
    places = [_edges(mark.box, times, picture) for mark in marks]
    for mark, place in reversed(list(zip(marks, places, strict=True))):
        if masks is None or mark.dashed:
            _outline(drawing, place, mark, line)
    taken: list[Corners] = []
    for mark, place in zip(marks, places, strict=True):
        if mark.words:
            taken.append(_label(drawing, place, mark, font(size), taken))
    return picture


def paint(canvas: Pixels, mask: NDArray[np.bool_], colour: Colour, times: int, line: int) -> None:
    """Lays a mask (h, w) over a picture that is so many times as large: its pixels tinted, and
    inside of its edge a line of the colour behind a thin dark one."""
    from scipy.ndimage import binary_erosion

    rows, columns = (np.flatnonzero(mask.any(axis=axis)) for axis in (1, 0))
    if not len(rows):
        return
    part = mask[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    large = part.repeat(times, axis=0).repeat(times, axis=1)
    begin = rows[0] * times, columns[0] * times
    here = canvas[begin[0] : begin[0] + large.shape[0], begin[1] : begin[1] + large.shape[1]]
    inner = binary_erosion(large)
    core = binary_erosion(inner, iterations=line)
    tint = np.array(colour, np.float32) * SHADE
    here[core] = (here[core] * (1 - SHADE) + tint).round().astype(np.uint8)
    here[inner & ~core] = colour
    here[large & ~inner] = DARK


def enlargement(height: int, width: int) -> int:
    """How many times as large an image is drawn."""
    long, short_ = max(height, width), min(height, width)
    wanted = max(-(-LONG // long), -(-SHORT // short_))
    return max(min(wanted, JPEG_SIDE // long), 1)


def letter_size(height: int, width: int) -> int:
    """By the picture's size: when it is shown as large as the screen is, they look the same."""
    return max(min(math.isqrt(height * width) // 36, min(height, width) // 4), SMALLEST)


def _edges(box: Corners, times: int, picture: Image) -> Place:
    """The outermost pixels of a box that are in the picture, at least one."""
    sides = (picture.width, picture.height) * 2
    low = [min(max(round(v * times), 0), s - 1) for v, s in zip(box[:2], sides[:2], strict=True)]
    high = [min(round(v * times), s) - 1 for v, s in zip(box[2:], sides[2:], strict=True)]
    return low[0], low[1], max(high[0], low[0]), max(high[1], low[1])


def _outline(drawing: ImageDraw, place: Place, mark: BoxMark, line: int) -> None:
    """Inside of the box's edge, between two thin dark lines: it is seen on every ground."""
    parts = list(_dashes(place, line + 2)) if mark.dashed else list(_sides(place, line + 2))
    for part in parts:
        drawing.rectangle(part, fill=DARK)
    for left, top, right, bottom in parts:
        inner = (left + 1, top + 1, max(right - 1, left + 1), max(bottom - 1, top + 1))
        drawing.rectangle(inner, fill=mark.colour)


def _sides(place: Place, line: int) -> Iterator[Place]:
    """The four edges, so thick."""
    left, top, right, bottom = place
    yield left, top, right, min(top + line - 1, bottom)
    yield left, max(bottom - line + 1, top), right, bottom
    yield left, top, min(left + line - 1, right), bottom
    yield max(right - line + 1, left), top, right, bottom


def _dashes(place: Place, line: int) -> Iterator[Place]:
    """Parts of the edges."""
    long, step = 4 * line, 6 * line
    for left, top, right, bottom in _sides(place, line):
        if right - left > bottom - top:
            for x in range(left, right + 1, step):
                yield x, top, min(x + long, right), bottom
        else:
            for y in range(top, bottom + 1, step):
                yield left, y, right, min(y + long, bottom)


def _label(
    drawing: ImageDraw, place: Place, mark: BoxMark, letters: FreeTypeFont, taken: Sequence[Corners]
) -> Corners:
    """The words on the box's colour, inside of the picture and, if there is room, beside the words
    that are there already; where they are, back."""
    picture = drawing.im.size
    pad = round(0.3 * letters.size)
    words = fitting(mark.words, letters, picture[0] - 2 * pad)
    wide, tall = math.ceil(letters.getlength(words)) + 2 * pad, round(1.4 * letters.size)
    ways = [
        (x, y, x + wide, y + tall)
        for x, y in _corners(place, wide, tall, picture)
        if 0 <= y <= max(picture[1] - tall, 0)
    ]
    free = (way for way in ways if not any(_meet(way, other) for other in taken))
    found = next(free, ways[0])
    drawing.rectangle((*found[:2], found[2] - 1, found[3] - 1), fill=mark.colour)
    middle = (found[0] + pad, (found[1] + found[3]) / 2)
    drawing.text(middle, words, ink_on(mark.colour), letters, anchor="lm")
    return found


def _corners(
    place: Place, wide: int, tall: int, picture: tuple[int, int]
) -> Iterator[tuple[int, int]]:
    """Where the words of a box may begin, the best first: on it, in it, below it; from its left or
    to its right; and in a box that is as large as the picture."""
    left, top, right, bottom = place
    last = max(picture[0] - wide, 0)
    for y in (top - tall, top, bottom + 1, bottom + 1 - tall):
        yield min(left, last), y
        yield min(max(right + 1 - wide, 0), last), y
    yield min(left, last), max(min(top, picture[1] - tall), 0)


def _meet(a: Corners, b: Corners) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def write(
    result: Detection,
    image: Tensor,
    folder: Path,
    name: str,
    masks: Masks = None,
    pictures: tuple[str, str] = PICTURES,
    **files: str,
) -> None:
    """The image with its boxes or masks, and what was found; `image` as it is stored. `files` are
    others about it, for the record."""
    file = save(boxed(image, marks_of(result), masks=masks), folder, name, pictures)
    record = result.to_dict() | {"threshold": result.threshold, "picture": file}
    save_data(record | files, folder, name)
