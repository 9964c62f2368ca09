"""Generated images of coloured shapes, with any kind of ground truth. `shapes:5000` has so many.

To learn one class per image, images have one shape each; else they are scenes of one to four
shapes.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from vitreous.data.formats.builder import SourceBuilder
from vitreous.data.formats.generated import (
    KEPT,
    SIZE,
    GeneratedSource,
    Scene,
    generated,
    random_of,
)
from vitreous.data.formats.scenes import SHAPES, draw_scene
from vitreous.data.source import Sample
from vitreous.labels import LabelMap

MOST_SHAPES = 4
"""In one scene."""

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
        image, _ = draw_scene(random, SIZE, [SHAPES[sample.target]])
        return torch.from_numpy(image).permute(2, 0, 1).contiguous()


@lru_cache(maxsize=KEPT)
def scene(seed: int, id: str) -> Scene:
    """One to four shapes."""
    _, random = random_of(seed, id)
    wanted = random.integers(len(SHAPES), size=random.integers(1, MOST_SHAPES + 1))
    image, things = draw_scene(random, SIZE, [SHAPES[kind] for kind in wanted])
    places = np.zeros((SIZE, SIZE), np.int8)
    for number, thing in enumerate(things, 1):
        places[thing.mask] = number
    kinds = tuple(SHAPES.index(thing.shape) for thing in things)
    return Scene(image, places, kinds, tuple(thing.box for thing in things))


def read(builder: SourceBuilder) -> ShapesSource:
    return generated(builder, ShapesSource, _LABELS, f"generated images of {SIZE}x{SIZE}")
