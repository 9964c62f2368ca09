"""Data that needs nothing: scikit-learn's handwritten digits, and generated shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vitreous.data.formats.names import Names, with_names
from vitreous.data.formats.scenes import SHAPES, draw_scene
from vitreous.data.source import SPLITS, Sample, Source
from vitreous.data.split import hold_out
from vitreous.errors import DataError
from vitreous.labels import LabelMap

MOST_SHAPES = 4
"""In one image, where there are several."""

ROOM = 96 * 2**20
"""Bytes of drawn scenes that a process keeps: 6,144 of 64x64."""


@dataclass
class DigitsSource(Source):
    """1,797 real handwritten digits, 8x8 (UCI, Optical Recognition of Handwritten Digits, test).

    The ids are their numbers in scikit-learn. The split never changes: 20 % test, 10 % of the rest
    val.
    """

    _images: Tensor = field(kw_only=True, repr=False)  # (1797, 1, 8, 8)

    def image(self, sample: Sample) -> Tensor:
        return self._images[int(sample.id)].clone()


def _digits() -> NDArray[np.float64]:
    """(1797, 64 + 1): shades and the digit. Scikit-learn's file, without the second and a half that
    importing scikit-learn takes; or else by its own function."""
    package = find_spec("sklearn")
    for place in (package and package.submodule_search_locations) or ():
        file = Path(place, "datasets", "data", "digits.csv.gz")
        if file.is_file():
            return np.loadtxt(file, delimiter=",")
    from sklearn.datasets import load_digits

    digits = load_digits()
    return np.column_stack([digits.data, digits.target])


def open_digits(*, names: Names | None = None) -> DigitsSource:
    rows = _digits()
    # 17 shades, 0 to 16, to the full range of bytes
    shades = np.round(rows[:, :-1].reshape(-1, 1, 8, 8) * (255 / 16)).astype(np.uint8)
    images = torch.from_numpy(shades)
    samples = [Sample(str(i), int(target)) for i, target in enumerate(rows[:, -1])]
    rest, test = hold_out(samples, 0.2, seed=0)
    train, val = hold_out(rest, 0.1, seed=0)
    return DigitsSource(
        name="digits",
        kind="built-in",
        labels=with_names(LabelMap.of_ids(range(10)), names),
        splits={"train": train, "val": val, "test": test},
        notes=["scikit-learn's digits: real handwriting, 8x8; the split is fixed"],
        _images=images,
    )


@dataclass(frozen=True)
class Counted(Sequence[Sample]):
    """Samples made when asked for: any number of them takes no memory."""

    split: str
    length: int
    classes: int | None
    """They come in turn; nothing where an image is not of one class."""

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
    """Generated images of one shape each; image i of a split is a function of (seed, split, i)."""

    seed: int = field(default=0, kw_only=True)
    size: int = field(default=64, kw_only=True)

    def image(self, sample: Sample) -> Tensor:
        image, _ = draw_scene(random_of(self.seed, sample.id), self.size, [SHAPES[sample.target]])
        return torch.from_numpy(image).permute(2, 0, 1).contiguous()


@dataclass
class ScenesSource(Source):
    """Generated images of one to four shapes; a function of (seed, split, i) too."""

    seed: int = field(default=0, kw_only=True)
    size: int = field(default=64, kw_only=True)

    def image(self, sample: Sample) -> Tensor:
        return torch.from_numpy(self.scene(sample).image).permute(2, 0, 1).contiguous()

    def scene(self, sample: Sample) -> Scene:
        return _scenes_of(self.size)(self.seed, sample.id)


@dataclass
class MaskScenesSource(ScenesSource):
    """With the mask of each image. Class 0 is the ground, the others are the shapes in order."""

    def truth(self, sample: Sample) -> Tensor:
        scene = self.scene(sample)
        classes = np.array([0, *(1 + kind for kind in scene.kinds)], np.int16)
        return torch.from_numpy(classes[scene.places])


@dataclass
class BoxScenesSource(ScenesSource):
    """With the box of what is seen of each shape. The classes are the shapes."""

    def truth(self, sample: Sample) -> dict[str, Tensor]:
        scene = self.scene(sample)
        return {
            "boxes": torch.tensor(scene.boxes, dtype=torch.float32).reshape(-1, 4),
            "labels": torch.tensor(scene.kinds, dtype=torch.int64),
            "crowd": torch.zeros(len(scene.kinds), dtype=torch.bool),
        }


class Scene(NamedTuple):
    """A drawn scene as it is kept: four bytes a pixel. Nobody writes into it."""

    image: NDArray[np.uint8]
    """(h, w, 3)"""
    places: NDArray[np.int8]
    """(h, w): 0 for the ground, 1 for the first object, 2 for the second …"""
    kinds: tuple[int, ...]
    """Of each object its place in SHAPES."""
    boxes: tuple[tuple[int, int, int, int], ...]
    """left, top, right, bottom"""


@cache
def _scenes_of(size: int) -> Callable[[int, str], Scene]:
    """What draws scenes of one size: a function of (seed, id).

    Drawing takes far longer than looking, and every epoch asks for the same scenes: as many as fit
    into ROOM are kept.
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
    """What image `split/i` is drawn by."""
    split, _, number = id.partition("/")
    return np.random.default_rng([seed, SPLITS.index(split), int(number)])


def open_shapes(
    count: str = "",
    *,
    truth: str = "class",
    seed: int = 0,
    size: int = 64,
    names: Names | None = None,
) -> ShapesSource | ScenesSource:
    """`count` images to train on (2000 if not given), and for val and test up to 300 and 600, or
    fewer where there are few to train on."""
    if count and not (count.isdecimal() and int(count) > 0):
        raise DataError(f"shapes:{count}: expected the number of training images, as shapes:5000")
    if seed < 0:
        raise DataError(f"shapes: seed = {seed}: expected 0 or more")
    train = int(count or 2000)
    val = min(max(train * 3 // 20, 20), 300)
    counts = {"train": train, "val": val, "test": 2 * val}
    one_each = truth == "class"
    labels = {
        "class": LabelMap.of_names(SHAPES),
        "mask": LabelMap(("background", *SHAPES), tuple(range(len(SHAPES) + 1))),
        "boxes": LabelMap(SHAPES, tuple(range(1, len(SHAPES) + 1))),
    }[truth]
    kinds: dict[str, type[ShapesSource] | type[ScenesSource]] = {
        "class": ShapesSource,
        "mask": MaskScenesSource,
        "boxes": BoxScenesSource,
    }
    return kinds[truth](
        name=f"shapes:{count}" if count else "shapes",
        kind="built-in",
        truth_kind=truth,
        labels=with_names(labels, names),
        splits={
            split: Counted(split, n, len(SHAPES) if one_each else None)
            for split, n in counts.items()
        },
        notes=[f"generated images of {size}x{size}, seed {seed}"],
        seed=seed,
        size=size,
    )
