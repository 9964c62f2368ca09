"""Generated images of coloured shapes, with any kind of ground truth. `shapes:5000` has so many.

Image i of a split is a function of (seed, split, i); nothing is stored. To learn one class per
image, images have one shape each; else they are scenes of one to four shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vitreous.data.formats.builder import SourceBuilder
from vitreous.data.formats.names import with_names
from vitreous.data.formats.scenes import SHAPES, draw_scene
from vitreous.data.instance_masks import InstanceMasks
from vitreous.data.source import SPLITS, Sample, Source, multi_hot
from vitreous.errors import DataError
from vitreous.labels import LabelMap

SIZE = 64
"""Height and width."""

MOST_SHAPES = 4
"""In one scene."""

ROOM = 96 * 2**20
"""Bytes of drawn scenes that a process keeps: 6,144 of 64x64."""


@dataclass(frozen=True)
class GeneratedSamples(Sequence[Sample]):
    """Samples made on access: any number of them takes no memory."""

    split: str
    length: int
    classes: int | None
    """They take turns; None where an image is not of one class."""

    def __len__(self) -> int:
        return self.length

    @overload
    def __getitem__(self, place: int) -> Sample: ...
    @overload
    def __getitem__(self, place: slice) -> list[Sample]: ...
    def __getitem__(self, place: int | slice) -> Sample | list[Sample]:
        numbers = range(self.length)[place]
        if isinstance(numbers, range):
            return [self[number] for number in numbers]
        target = None if self.classes is None else numbers % self.classes
        return Sample(f"{self.split}/{numbers}", target)


@dataclass
class ShapesSource(Source):
    """In masks class 0 is the background, and the shapes follow; else the classes are the shapes.
    Boxes are around the visible part of each shape."""

    seed: int = field(default=0, kw_only=True)

    def image(self, sample: Sample) -> Tensor:
        if self.truth_kind == "class":
            image, _ = draw_scene(_random(self.seed, sample.id), SIZE, [SHAPES[sample.target]])
        else:
            image = scene(self.seed, sample.id).image
        return torch.from_numpy(image).permute(2, 0, 1).contiguous()

    def truth(self, sample: Sample) -> Any:
        if self.truth_kind == "class":
            return sample.target
        drawn = scene(self.seed, sample.id)
        if self.truth_kind == "labels":
            return multi_hot(drawn.kinds, len(SHAPES))
        if self.truth_kind == "mask":
            classes = np.array([0, *(1 + kind for kind in drawn.kinds)], np.int16)
            return torch.from_numpy(classes[drawn.places])
        truth = {
            "boxes": torch.tensor(drawn.boxes, dtype=torch.float32).reshape(-1, 4),
            "labels": torch.tensor(drawn.kinds, dtype=torch.int64),
            "crowd": torch.zeros(len(drawn.kinds), dtype=torch.bool),
        }
        if self.truth_kind == "boxes":
            return truth
        masks = InstanceMasks.of(drawn.places == np.arange(1, len(drawn.kinds) + 1)[:, None, None])
        return {**truth, "area": masks.areas(), "masks": masks}


class Scene(NamedTuple):
    """One to four shapes as they are kept: four bytes per pixel. It is never written to."""

    image: NDArray[np.uint8]
    """(h, w, 3)"""
    places: NDArray[np.int8]
    """(h, w): 0 for the background, 1 for the first object, 2 for the second …"""
    kinds: tuple[int, ...]
    """Of each object its place in SHAPES."""
    boxes: tuple[tuple[int, int, int, int], ...]
    """left, top, right, bottom"""


@lru_cache(maxsize=ROOM // (4 * SIZE * SIZE))
def scene(seed: int, id: str) -> Scene:
    """Drawing is slow, and every epoch needs the same scenes: as many as fit into ROOM are kept."""
    random = _random(seed, id)
    wanted = random.integers(len(SHAPES), size=random.integers(1, MOST_SHAPES + 1))
    image, things = draw_scene(random, SIZE, [SHAPES[kind] for kind in wanted])
    places = np.zeros((SIZE, SIZE), np.int8)
    for number, thing in enumerate(things, 1):
        places[thing.mask] = number
    kinds = tuple(SHAPES.index(thing.shape) for thing in things)
    return Scene(image, places, kinds, tuple(thing.box for thing in things))


def _random(seed: int, id: str) -> np.random.Generator:
    """The generator that draws image `split/i`."""
    split, _, number = id.partition("/")
    return np.random.default_rng([seed, SPLITS.index(split), int(number)])


_NUMBERED = tuple(range(len(SHAPES) + 1))
_LABELS = {
    "class": LabelMap.of_names(SHAPES),
    "labels": LabelMap.of_names(SHAPES),
    "mask": LabelMap(("background", *SHAPES), _NUMBERED),
    "boxes": LabelMap(SHAPES, _NUMBERED[1:]),
    "instances": LabelMap(SHAPES, _NUMBERED[1:]),
}
"""By the kind of ground truth."""


def read(builder: SourceBuilder) -> ShapesSource:
    """The number of images to train on (2000 if not given), and up to 300 for val and 600 for test,
    fewer where there are few to train on."""
    count, seed = builder.path, builder.seed
    if count and not (count.isdecimal() and int(count) > 0):
        raise DataError(f"shapes:{count}: expected the number of training images, as shapes:5000")
    if seed < 0:
        raise DataError(f"shapes: seed = {seed}: expected 0 or more")
    train = int(count or 2000)
    val = min(max(train * 3 // 20, 20), 300)
    classes = len(SHAPES) if builder.truth_kind == "class" else None
    return ShapesSource(
        name=f"shapes:{count}" if count else "shapes",
        kind="built-in",
        truth_kind=builder.truth_kind,
        labels=with_names(_LABELS[builder.truth_kind], builder.names),
        splits={
            split: GeneratedSamples(split, length, classes)
            for split, length in (("train", train), ("val", val), ("test", 2 * val))
        },
        notes=[f"generated images of {SIZE}x{SIZE}, seed {seed}"],
        seed=seed,
    )
