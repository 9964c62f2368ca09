"""Generated images of coloured shapes on textured ground, with any kind of ground truth.
`shapes:5000` has so many.

To learn one class per image, images have one shape each; else they are scenes of one to four
shapes. A scene is a function of the random generator alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from torch import Tensor

from vitreous.data.formats.builder import SourceBuilder
from vitreous.data.formats.generated import (
    KEPT,
    SIZE,
    GeneratedSource,
    Scene,
    box_of,
    contrasting,
    generated,
    random_of,
)
from vitreous.data.source import Sample
from vitreous.labels import LabelMap

MOST_SHAPES = 4
"""In one scene."""
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

_NUMBERED = tuple(range(len(SHAPES) + 1))
_LABELS = {
    "class": LabelMap.of_names(SHAPES),
    "labels": LabelMap.of_names(SHAPES),
    "mask": LabelMap(("background", *SHAPES), _NUMBERED),
    "boxes": LabelMap(SHAPES, _NUMBERED[1:]),
    "instances": LabelMap(SHAPES, _NUMBERED[1:]),
}
"""By the kind of ground truth."""


class ShapesSource(GeneratedSource):
    def scene(self, sample: Sample) -> Scene:
        return scene(self.seed, sample.id)

    def image(self, sample: Sample) -> Tensor:
        if self.truth_kind != "class":
            return super().image(sample)
        _, random = random_of(self.seed, sample.id)
        image = draw_scene(random, SIZE, [sample.target]).image
        return torch.from_numpy(image).permute(2, 0, 1).contiguous()


@lru_cache(maxsize=KEPT)
def scene(seed: int, id: str) -> Scene:
    """One to four shapes."""
    _, random = random_of(seed, id)
    wanted = random.integers(len(SHAPES), size=random.integers(1, MOST_SHAPES + 1))
    return draw_scene(random, SIZE, wanted.tolist())


def draw_scene(
    random: np.random.Generator, size: int, wanted: Sequence[int], *, overlap: float = 0.1
) -> Scene:
    """An object of each of these `SHAPES`, drawn in this order. A later object may hide up to the
    part `overlap` of an earlier one; an object for which no place is found is left out."""
    image, places = _ground(random, size), np.zeros((size, size), np.int8)
    kinds: list[int] = []
    # One object fills much of the picture, many share it.
    largest = 0.42 / max(1.0, len(wanted) ** 0.5 * 0.8)
    for kind in wanted:
        seen = [places == number for number in range(1, len(kinds) + 1)]
        for _ in range(_TRIES):
            cover = _cover(random, size, SHAPES[kind], largest)
            mask = cover >= 0.5
            if mask.sum() >= 4 and all((m & mask).sum() <= overlap * m.sum() for m in seen):
                break
        else:
            continue
        colour = contrasting(random, image[mask].mean(axis=0))
        shade = 1 + 0.08 * random.standard_normal((size, size, 1))
        image += cover[:, :, None] * (np.clip(colour * shade, 0, 1) - image)
        kinds.append(kind)
        places[mask] = len(kinds)
    boxes = tuple(box_of(places == number) for number in range(1, len(kinds) + 1))
    pixels = np.round(image.clip(0, 1) * 255).astype(np.uint8)
    return Scene(pixels, places, tuple(kinds), boxes)


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
    return covered(size, shape, random.uniform(radius, size - radius, 2), radius, random)


def covered(
    size: int, shape: str, centre: NDArray[np.float64], radius: float, random: np.random.Generator
) -> NDArray[np.float64]:
    """(size, size) from 0 to 1: how much of each pixel a shape covers that is turned at random."""
    turn = random.uniform(0, 2 * np.pi)
    rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    large = Image.new("L", (size * _FINE, size * _FINE), 0)
    pen = ImageDraw.Draw(large)
    for outline, ink in _OUTLINES[shape]:
        points = (centre + radius * outline @ rotation) * _FINE
        pen.polygon([(float(px), float(py)) for px, py in points], fill=ink)
    fine = np.asarray(large, dtype=np.float64) / 255
    return fine.reshape(size, _FINE, size, _FINE).mean(axis=(1, 3))


def read(builder: SourceBuilder) -> ShapesSource:
    return generated(builder, ShapesSource, _LABELS, f"generated images of {SIZE}x{SIZE}")
