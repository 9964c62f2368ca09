"""Generated images of coloured shapes, with any kind of ground truth. `shapes:5000` has so many.

Image i of a split is a function of (seed, split, i); nothing is stored. To learn one class per
image, images have one shape each; else they are scenes of one to four shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import NamedTuple, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vitreous.data.formats.builder import SourceBuilder, multi_hot
from vitreous.data.formats.names import with_names
from vitreous.data.formats.scenes import SHAPES, draw_scene
from vitreous.data.source import SPLITS, Sample, Source
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
    """Images of one shape each."""

    seed: int = field(default=0, kw_only=True)
    size: int = field(default=SIZE, kw_only=True)

    def image(self, sample: Sample) -> Tensor:
        image, _ = draw_scene(random_of(self.seed, sample.id), self.size, [SHAPES[sample.target]])
        return torch.from_numpy(image).permute(2, 0, 1).contiguous()


@dataclass
class SceneSource(Source):
    """Scenes of one to four shapes."""

    seed: int = field(default=0, kw_only=True)
    size: int = field(default=SIZE, kw_only=True)

    def image(self, sample: Sample) -> Tensor:
        return torch.from_numpy(self.scene(sample).image).permute(2, 0, 1).contiguous()

    def scene(self, sample: Sample) -> Scene:
        return _scenes_of(self.size)(self.seed, sample.id)


@dataclass
class SceneLabelSource(SceneSource):
    """Which shapes a scene has. The classes are the shapes."""

    def truth(self, sample: Sample) -> Tensor:
        return multi_hot(self.scene(sample).kinds, len(SHAPES))


@dataclass
class SceneMaskSource(SceneSource):
    """The mask of a scene. Class 0 is the background, the others are the shapes in order."""

    def truth(self, sample: Sample) -> Tensor:
        scene = self.scene(sample)
        classes = np.array([0, *(1 + kind for kind in scene.kinds)], np.int16)
        return torch.from_numpy(classes[scene.places])


@dataclass
class SceneBoxSource(SceneSource):
    """The boxes around the visible part of each shape. The classes are the shapes."""

    def truth(self, sample: Sample) -> dict[str, Tensor]:
        scene = self.scene(sample)
        return {
            "boxes": torch.tensor(scene.boxes, dtype=torch.float32).reshape(-1, 4),
            "labels": torch.tensor(scene.kinds, dtype=torch.int64),
            "crowd": torch.zeros(len(scene.kinds), dtype=torch.bool),
        }


class Scene(NamedTuple):
    """A drawn scene as it is kept: four bytes per pixel. It is never written to."""

    image: NDArray[np.uint8]
    """(h, w, 3)"""
    places: NDArray[np.int8]
    """(h, w): 0 for the background, 1 for the first object, 2 for the second …"""
    kinds: tuple[int, ...]
    """Of each object its place in SHAPES."""
    boxes: tuple[tuple[int, int, int, int], ...]
    """left, top, right, bottom"""


@cache
def _scenes_of(size: int) -> Callable[[int, str], Scene]:
    """What draws scenes of one size: a function of (seed, id).

    Drawing is slow, and every epoch needs the same scenes: as many as fit into ROOM are kept.
    """

    @lru_cache(maxsize=max(ROOM // (4 * size * size), 16))
    def scene(seed: int, id: str) -> Scene:
        random = random_of(seed, id)
        wanted = random.integers(len(SHAPES), size=random.integers(1, MOST_SHAPES + 1))
        image, things = draw_scene(random, size, [SHAPES[kind] for kind in wanted])
        places = np.zeros((size, size), np.int8)
        for number, thing in enumerate(things, 1):
            places[thing.mask] = number
        kinds = tuple(SHAPES.index(thing.shape) for thing in things)
        return Scene(image, places, kinds, tuple(thing.box for thing in things))

    return scene


def random_of(seed: int, id: str) -> np.random.Generator:
    """The generator that draws image `split/i`."""
    split, _, number = id.partition("/")
    return np.random.default_rng([seed, SPLITS.index(split), int(number)])


_NUMBERED = tuple(range(len(SHAPES) + 1))
_KINDS: dict[str, tuple[type[ShapesSource] | type[SceneSource], LabelMap]] = {
    "class": (ShapesSource, LabelMap.of_names(SHAPES)),
    "labels": (SceneLabelSource, LabelMap.of_names(SHAPES)),
    "mask": (SceneMaskSource, LabelMap(("background", *SHAPES), _NUMBERED)),
    "boxes": (SceneBoxSource, LabelMap(SHAPES, _NUMBERED[1:])),
}
"""By the kind of ground truth."""


def read(builder: SourceBuilder) -> ShapesSource | SceneSource:
    """The number of images to train on (2000 if not given), and up to 300 for val and 600 for test,
    fewer where there are few to train on."""
    count, seed = builder.path, builder.seed
    if count and not (count.isdecimal() and int(count) > 0):
        raise DataError(f"shapes:{count}: expected the number of training images, as shapes:5000")
    if seed < 0:
        raise DataError(f"shapes: seed = {seed}: expected 0 or more")
    train = int(count or 2000)
    val = min(max(train * 3 // 20, 20), 300)
    source, labels = _KINDS[builder.truth_kind]
    classes = len(SHAPES) if builder.truth_kind == "class" else None
    return source(
        name=f"shapes:{count}" if count else "shapes",
        kind="built-in",
        truth_kind=builder.truth_kind,
        labels=with_names(labels, builder.names),
        splits={
            split: GeneratedSamples(split, length, classes)
            for split, length in (("train", train), ("val", val), ("test", 2 * val))
        },
        notes=[f"generated images of {SIZE}x{SIZE}, seed {seed}"],
        seed=seed,
        size=SIZE,
    )
