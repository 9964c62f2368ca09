"""Generated pictures: coloured shapes on textured ground, with the box and mask of each object.

A scene is a function of the random generator alone, so one who knows (seed, number) has the image.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

_FINE = 4  # shapes are drawn this much larger and averaged, for smooth edges
_TRIES = 40


def _around(count: int) -> NDArray[np.float64]:
    angles = 2 * np.pi * np.arange(count) / count
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


_ARM = np.array([[-0.3, -0.95], [0.3, -0.95], [0.3, 0.95], [-0.3, 0.95]])
_OUTLINES = {
    "circle": [(_around(48), 255)],
    "cross": [(_ARM, 255), (_ARM[:, ::-1], 255)],
    "ring": [(_around(48), 255), (0.55 * _around(48), 0)],
    "square": [(_around(4), 255)],
    "star": [(_around(10) * np.where(np.arange(10) % 2, 0.42, 1.0)[:, None], 255)],
    "triangle": [(_around(3), 255)],
}
"""Polygons within the unit circle, to be painted (255) or cut out (0) one after the other."""
SHAPES = tuple(_OUTLINES)


@dataclass(frozen=True)
class Thing:
    """One object of a scene."""

    shape: str
    box: tuple[int, int, int, int]
    """left, top, right, bottom in pixels; right and bottom are just outside."""
    mask: NDArray[np.bool_]
    """(h, w): where it is seen."""


def draw_scene(
    random: np.random.Generator, size: int, shapes: list[str], *, overlap: float = 0.1
) -> tuple[NDArray[np.uint8], list[Thing]]:
    """An image (h, w, 3) with one object for each name in `shapes`, drawn in this order.

    A later object may hide up to the part `overlap` of an earlier one; an object for which no place
    is found is left out.
    """
    image = _ground(random, size)
    masks: list[NDArray[np.bool_]] = []
    drawn: list[str] = []
    # One object fills much of the picture, many share it.
    largest = 0.42 / max(1.0, len(shapes) ** 0.5 * 0.8)
    for shape in shapes:
        for _ in range(_TRIES):
            cover = _cover(random, size, shape, largest)
            mask = cover >= 0.5
            if mask.sum() >= 4 and all((m & mask).sum() <= overlap * m.sum() for m in masks):
                break
        else:
            continue
        colour = contrasting(random, image[mask].mean(axis=0))
        shade = 1 + 0.08 * random.standard_normal((size, size, 1))
        image += cover[:, :, None] * (np.clip(colour * shade, 0, 1) - image)
        masks = [m & ~mask for m in masks] + [mask]
        drawn.append(shape)
    things = [Thing(shape, box_of(m), m) for shape, m in zip(drawn, masks, strict=True)]
    return np.round(image.clip(0, 1) * 255).astype(np.uint8), things


def _ground(random: np.random.Generator, size: int) -> NDArray[np.float64]:
    """Two colours, mixed by stripes and by blotches, under a little noise."""
    first, second = random.uniform(0.1, 0.9, (2, 3))
    y, x = np.mgrid[0:size, 0:size] / size
    angle, waves, phase = random.uniform(0, np.pi), random.uniform(1, 8), random.uniform(0, 7)
    stripes = np.sin(2 * np.pi * waves * (x * np.cos(angle) + y * np.sin(angle)) + phase)
    cells = random.uniform(-1, 1, (5, 5)).astype(np.float32)
    blotches = np.asarray(Image.fromarray(cells).resize((size, size), Image.Resampling.BICUBIC))
    share = random.uniform(0, 1)
    mixed = 0.5 + 0.35 * (share * stripes + (1 - share) * blotches)
    ground = first + mixed[:, :, None] * (second - first)
    return ground + 0.03 * random.standard_normal((size, size, 3))


def _cover(
    random: np.random.Generator, size: int, shape: str, largest: float
) -> NDArray[np.float64]:
    """(h, w) from 0 to 1: how much of each pixel the shape covers, somewhere wholly inside."""
    radius = random.uniform(0.45, 1) * largest * size
    centre = random.uniform(radius, size - radius, 2)
    turn = random.uniform(0, 2 * np.pi)
    large = Image.new("L", (size * _FINE, size * _FINE), 0)
    pen = ImageDraw.Draw(large)
    for outline, ink in _OUTLINES[shape]:
        rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
        points = (centre + radius * outline @ rotation) * _FINE
        pen.polygon([(float(px), float(py)) for px, py in points], fill=ink)
    fine = np.asarray(large, dtype=np.float64) / 255
    return fine.reshape(size, _FINE, size, _FINE).mean(axis=(1, 3))


def contrasting(random: np.random.Generator, under: NDArray[np.float64]) -> NDArray[np.float64]:
    """A colour well apart from what it is painted on."""
    candidates = random.uniform(0, 1, (8, 3))
    apart = np.abs(candidates - under).sum(axis=1)
    good = candidates[apart >= 0.7]
    return good[0] if len(good) else candidates[apart.argmax()]


def box_of(mask: NDArray[np.bool_]) -> tuple[int, int, int, int]:
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1
