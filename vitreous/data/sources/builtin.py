"""Data that needs nothing: scikit-learn's handwritten digits, and generated shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import overload

import numpy as np
import torch
from torch import Tensor

from vitreous.data.names import Names, with_names
from vitreous.data.scenes import SHAPES, draw_scene
from vitreous.data.source import SPLITS, Sample, Source
from vitreous.data.split import hold_out
from vitreous.errors import DataError
from vitreous.labels import LabelMap


@dataclass
class DigitsSource(Source):
    """1,797 real handwritten digits, 8x8 (UCI, Optical Recognition of Handwritten Digits, test).

    The ids are their numbers in scikit-learn. The split never changes: 20 % test, 10 % of the rest
    val.
    """

    _images: Tensor = field(kw_only=True, repr=False)  # (1797, 1, 8, 8)

    def image(self, sample: Sample) -> Tensor:
        return self._images[int(sample.id)].clone()


def open_digits(*, names: Names | None = None) -> DigitsSource:
    from sklearn.datasets import load_digits

    digits = load_digits()
    # 17 shades, 0 to 16, to the full range of bytes
    images = torch.from_numpy(np.round(digits.images * (255 / 16)).astype(np.uint8))[:, None]
    samples = [Sample(str(i), int(target)) for i, target in enumerate(digits.target)]
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
    classes: int

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
        return Sample(f"{self.split}/{numbers}", numbers % self.classes)


@dataclass
class ShapesSource(Source):
    """Generated images of one shape each; image i of a split is a function of (seed, split, i)."""

    seed: int = field(default=0, kw_only=True)
    size: int = field(default=64, kw_only=True)

    def image(self, sample: Sample) -> Tensor:
        image, _ = draw_scene(self.random(sample), self.size, [SHAPES[sample.target]])
        return torch.from_numpy(image).permute(2, 0, 1).contiguous()

    def random(self, sample: Sample) -> np.random.Generator:
        split, _, number = sample.id.partition("/")
        return np.random.default_rng([self.seed, SPLITS.index(split), int(number)])


def open_shapes(
    count: str = "", *, seed: int = 0, size: int = 64, names: Names | None = None
) -> ShapesSource:
    """`count` images to train on (2000 if not given), 300 for val and 600 for test."""
    if count and not (count.isdecimal() and int(count) > 0):
        raise DataError(f"shapes:{count}: expected the number of training images, as shapes:5000")
    if seed < 0:
        raise DataError(f"shapes: seed = {seed}: expected 0 or more")
    counts = {"train": int(count or 2000), "val": 300, "test": 600}
    return ShapesSource(
        name=f"shapes:{count}" if count else "shapes",
        kind="built-in",
        labels=with_names(LabelMap.of_names(SHAPES), names),
        splits={split: Counted(split, n, len(SHAPES)) for split, n in counts.items()},
        notes=[f"generated images of {size}x{size}, seed {seed}"],
        seed=seed,
        size=size,
    )
