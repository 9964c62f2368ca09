"""Images that are drawn when they are asked for, with any kind of ground truth: what `shapes` and
`handwriting` share. Image i of a split is a function of (seed, split, i); nothing is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vitreous.data.decode.pixels import ImageSize
from vitreous.data.formats.builder import SourceBuilder
from vitreous.data.formats.names import with_names
from vitreous.data.instance_masks import InstanceMasks
from vitreous.data.source import SPLITS, Sample, Source, multi_hot
from vitreous.data.split import complete
from vitreous.errors import DataError
from vitreous.labels import LabelMap

SIZE = 64
"""Height and width."""

ROOM = 96 * 2**20
"""Bytes of drawn scenes that a process keeps: 6,144 of 64x64."""
KEPT = ROOM // (4 * SIZE * SIZE)
"""How many these are: drawing is slow, and every epoch needs the same scenes."""


class Scene(NamedTuple):
    """An image with its objects as it is kept: four bytes per pixel. It is never written to."""

    image: NDArray[np.uint8]
    """(h, w, 3)"""
    places: NDArray[np.int8]
    """(h, w): 0 for the background, 1 for the first object, 2 for the second …"""
    kinds: tuple[int, ...]
    """Of each object its class."""
    boxes: tuple[tuple[int, int, int, int], ...]
    """left, top, right, bottom of what is seen of it"""


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
class GeneratedSource(Source):
    """In masks class 0 is the background, and the objects' classes follow; else there are only
    these. Boxes are around the visible part of each object."""

    seed: int = field(default=0, kw_only=True)

    def scene(self, sample: Sample) -> Scene:
        raise NotImplementedError

    def image(self, sample: Sample) -> Tensor:
        return torch.from_numpy(self.scene(sample).image).permute(2, 0, 1).contiguous()

    def truth(self, sample: Sample, size: ImageSize | None = None) -> Any:
        if self.truth_kind == "class":
            return sample.target
        drawn = self.scene(sample)
        if self.truth_kind == "labels":
            return multi_hot(drawn.kinds, len(self.labels))
        if self.truth_kind == "mask":
            classes = np.array([0, *(1 + kind for kind in drawn.kinds)], np.int16)
            return torch.from_numpy(classes[drawn.places])
        if self.truth_kind == "boxes":
            return {
                "boxes": torch.tensor(drawn.boxes, dtype=torch.float32).reshape(-1, 4),
                "labels": torch.tensor(drawn.kinds, dtype=torch.int64),
                "crowd": torch.zeros(len(drawn.kinds), dtype=torch.bool),
            }
        masks = InstanceMasks.of(drawn.places == np.arange(1, len(drawn.kinds) + 1)[:, None, None])
        return masks.truth(drawn.kinds, [False] * len(drawn.kinds))


def random_of(seed: int, id: str) -> tuple[str, np.random.Generator]:
    """The split of image `split/i`, and the generator that draws it."""
    split, _, number = id.partition("/")
    return split, np.random.default_rng([seed, SPLITS.index(split), int(number)])


def contrasting(random: np.random.Generator, under: NDArray[np.float64]) -> NDArray[np.float64]:
    """A colour well apart from what it is painted on."""
    candidates = random.uniform(0, 1, (8, 3))
    apart = np.abs(candidates - under).sum(axis=1)
    good = candidates[apart >= 0.7]
    return good[0] if len(good) else candidates[apart.argmax()]


def box_of(mask: NDArray[np.bool_]) -> tuple[int, int, int, int]:
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


G = TypeVar("G", bound=GeneratedSource)


def generated(
    builder: SourceBuilder,
    source: type[G],
    labels: Mapping[str, LabelMap],
    note: str,
    usual: int = 2000,
) -> G:
    """The number of images to train on (`usual` if not given), and up to 300 for val and 600 for
    test, fewer where there are few to train on. `labels` are by the kind of ground truth."""
    count, seed, name = builder.path, builder.hold_out.seed, builder.kind
    if count and not (count.isdecimal() and int(count) > 0):
        raise DataError(f"{name}:{count}: expected the number of training images, as {name}:5000")
    if seed < 0:
        raise DataError(f"{name}: seed = {seed}: expected 0 or more")
    train = int(count or usual)
    val = min(max(train * 3 // 20, 20), 300)
    known = labels[builder.truth_kind]
    classes = len(known) if builder.truth_kind == "class" else None
    notes = [f"{note}, seed {seed}"]
    splits = {
        split: GeneratedSamples(split, length, classes)
        for split, length in (("train", train), ("val", val), ("test", 2 * val))
    }
    return source(
        name=f"{name}:{count}" if count else name,
        kind="built-in",
        truth_kind=builder.truth_kind,
        labels=with_names(known, builder.names),
        splits=complete(splits, builder.hold_out, notes),
        notes=notes,
        seed=seed,
    )
