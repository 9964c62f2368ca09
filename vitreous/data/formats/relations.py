"""Generated images of two shapes, whose class is how they relate: as many as are wanted, for
questions about the amount of data. `relations:8000` has so many to train on.

Both shapes are of one kind, or not; colours, sizes, places and turns say nothing about it. A model
must compare two distant parts of the image: one that knows each shape by itself, and does not
compare, is right for half of the images.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from vitreous.data.formats.builder import SourceBuilder
from vitreous.data.formats.generated import (
    GeneratedSource,
    Scene,
    box_of,
    contrasting,
    generated,
    random_of,
)
from vitreous.data.formats.shapes import SHAPES, covered
from vitreous.data.source import Sample
from vitreous.labels import LabelMap

HALF = 16
"""Height and width of a quarter of the image, in which a shape lies."""
DIFFERENT, SAME = range(2)
LABELS = LabelMap.of_names(("different", "same"))
KEPT = 20_000
"""Scenes that a process keeps: 80 MB."""


class RelationsSource(GeneratedSource):
    def scene(self, sample: Sample) -> Scene:
        return scene(self.seed, sample.id, sample.target)


@lru_cache(maxsize=KEPT)
def scene(seed: int, id: str, target: int) -> Scene:
    """A shape in each of two quarters of a noisy ground."""
    _, random = random_of(seed, id)
    first = int(random.integers(len(SHAPES)))
    other = (first + int(random.integers(1, len(SHAPES)))) % len(SHAPES)
    kinds = (first, first if target == SAME else other)
    image = random.uniform(0.1, 0.9, 3) + 0.05 * random.standard_normal((2 * HALF, 2 * HALF, 3))
    places = np.zeros((2 * HALF, 2 * HALF), np.int8)
    for number, quarter in enumerate(random.permutation(4)[:2].tolist()):
        radius = random.uniform(0.6, 1) * (HALF - 2) / 2
        centre = random.uniform(radius, HALF - radius, 2)
        cover = covered(HALF, SHAPES[kinds[number]], centre, radius, random)
        top, left = HALF * (quarter // 2), HALF * (quarter % 2)
        part = image[top : top + HALF, left : left + HALF]
        colour = contrasting(random, part[cover >= 0.5].mean(axis=0))
        part += cover[:, :, None] * (colour - part)
        places[top : top + HALF, left : left + HALF][cover >= 0.5] = number + 1
    pixels = np.round(image.clip(0, 1) * 255).astype(np.uint8)
    return Scene(pixels, places, kinds, (box_of(places == 1), box_of(places == 2)))


def read(builder: SourceBuilder) -> RelationsSource:
    note = f"generated images of {2 * HALF}x{2 * HALF}: two shapes of one kind, or of two"
    return generated(builder, RelationsSource, {"class": LABELS}, note)
