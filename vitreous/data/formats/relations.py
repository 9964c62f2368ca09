"""Generated images of two shapes, whose class is how they relate: as many as are wanted, for
questions about the amount of data. `relations:8000` has so many to train on.

A red shape is left of, right of, above or below a blue one. What the shapes are, where they are
together, how large and on which ground says nothing about it: a model must find both, and compare
where they are.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from vitreous.data.formats.builder import SourceBuilder
from vitreous.data.formats.generated import GeneratedSource, Scene, box_of, generated, random_of
from vitreous.data.formats.shapes import SHAPES, covered
from vitreous.data.source import Sample
from vitreous.labels import LabelMap

SIDE = 32
"""Height and width of an image."""
RADII = (2.5, 5.0)
"""Of the shapes, in pixels, least and most."""
GAP = (1.2, 2.0)
"""Between their centres, in sums of their radii."""
LEAN = np.pi / 5
"""By so much a direction may be off its class: neighbouring classes are 90 degrees apart."""
DIRECTIONS = {"above": -np.pi / 2, "below": np.pi / 2, "left": np.pi, "right": 0.0}
"""Of the red shape, seen from the blue one, in the order of the labels; rows count downwards."""
LABELS = LabelMap.of_names(tuple(DIRECTIONS))
KEPT = 20_000
"""Scenes that a process keeps: 80 MB."""


class RelationsSource(GeneratedSource):
    def scene(self, sample: Sample) -> Scene:
        return scene(self.seed, sample.id, sample.target)


@lru_cache(maxsize=KEPT)
def scene(seed: int, id: str, target: int) -> Scene:
    """A red and a blue shape on a noisy ground."""
    _, random = random_of(seed, id)
    radii = random.uniform(*RADII, 2)
    angle = list(DIRECTIONS.values())[target] + random.uniform(-LEAN, LEAN)
    both = radii.sum()
    apart = both * random.uniform(*GAP) * np.array([np.cos(angle), np.sin(angle)])
    # where the blue one may be, so that both are wholly inside
    least = np.maximum(radii[1], radii[0] - apart)
    most = np.minimum(SIDE - radii[1], SIDE - radii[0] - apart)
    blue = random.uniform(least, most)
    image = random.uniform(0.2, 0.8, 3) + 0.05 * random.standard_normal((SIDE, SIDE, 3))
    places = np.zeros((SIDE, SIDE), np.int8)
    kinds = tuple(random.integers(len(SHAPES), size=2).tolist())
    for number, centre in enumerate((blue + apart, blue)):
        cover = covered(SIDE, SHAPES[kinds[number]], centre, radii[number], random)
        strong, weak = random.uniform(0.7, 1.0), random.uniform(0.0, 0.35, 2)
        colour = np.insert(weak, 2 * number, strong)
        image += cover[:, :, None] * (colour - image)
        places[cover >= 0.5] = number + 1
    pixels = np.round(image.clip(0, 1) * 255).astype(np.uint8)
    return Scene(pixels, places, kinds, (box_of(places == 1), box_of(places == 2)))


def read(builder: SourceBuilder) -> RelationsSource:
    where = "a red shape left of, right of, above or below a blue one"
    note = f"generated images of {SIDE}x{SIDE}: {where}"
    return generated(builder, RelationsSource, {"class": LABELS}, note)
