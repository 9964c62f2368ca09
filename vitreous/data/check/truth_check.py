"""What the data check learns about the ground truth. Each task gives a `TruthCheck` of its own."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from vitreous.data.decode.pixels import ImageSize
from vitreous.data.preprocess import Preprocess
from vitreous.data.source import SPLITS, Problem, Sample, Source
from vitreous.labels import natural

FEW_IMAGES = 5  # of train, from which a class is learned
FEW_OF = 20  # where train has so many, FEW_IMAGES are few
ALIKE = 0.02, 0.98  # mean difference of thumbnails, in 0..1, and their correlation
LISTED = 10  # series in one problem
MANY_ALIKE = 0.25  # of the images of a split

Counts = dict[str, dict[str, int]]
"""By the name of a class and the split."""


@dataclass(frozen=True, kw_only=True)
class InspectedTruth:
    """What reading the ground truth of one image has shown; a task keeps more of it."""

    digest: Any
    """Equal where the ground truth is."""
    remarks: tuple[Problem, ...] = ()
    """What is odd but usable."""


@dataclass(frozen=True, slots=True)
class Inspected:
    """What reading one image has shown."""

    split: str
    sample: Sample
    problem: Problem | None = None
    shape: tuple[int, int, int] = (0, 0, 0)
    dtype: str = ""
    digest: bytes = b""
    bytes: int = 0
    remarks: tuple[Problem, ...] = ()
    """What does not keep the image from being used."""
    truth: Any = None
    """An `InspectedTruth`; tasks have more."""
    thumbnail: NDArray[np.float32] | None = None
    """(16, 16) in 0..1, to find images that look alike."""


@dataclass(kw_only=True)
class TruthReport:
    """What is counted of a kind of ground truth; a task counts more."""

    classes: Counts
    """For each class, in the model's order, the images in each split that have it."""
    problems: list[Problem] = field(default_factory=list)

    def lines(self) -> list[tuple[str, str]]:
        """What is printed of it, besides the table: a word and a sentence each."""
        return []

    def table(self, splits: Sequence[str]) -> tuple[list[str], dict[str, list[str]], str]:
        """Headings, the cells of each class by its name, and what they are."""
        beside, what = self.beside
        headings = [heading for s in splits for heading in ((s, beside) if beside else (s,))]
        rows = {
            name: [cell for s in splits for cell in (f"{counts[s]:,}", *self.cell(name, s))]
            for name, counts in self.classes.items()
        }
        what = f"In each split: images that have some of it, and {what}." if what else ""
        return headings, rows, what

    beside: ClassVar[tuple[str, str]] = ("", "")
    """The heading of a second column in each split, and what is in it."""

    def cell(self, name: str, split: str) -> list[str]:
        """Of that column, for one class."""
        return []


@dataclass(kw_only=True)
class PlacesReport(TruthReport):
    """Of ground truth that has places in an image: pixels or objects."""

    alike: dict[str, int]
    """Images that look nearly like the one before, by the order of their names; under `across`
    those that do so in another split."""


def by_split(counts: Mapping[str, int]) -> str:
    """`train 1,234, val 56`"""
    return ", ".join(f"{split} {count:,}" for split, count in counts.items())


def copies(counts: Mapping[str, int]) -> str:
    """How many images have a copy, or one that looks like it, within a split and across splits."""
    within = [f"{n:,} within {split}" for split, n in counts.items() if n and split != "across"]
    across = counts.get("across")
    return ", ".join(within + ([f"{across:,} in several splits"] if across else [])) or "none"


class TruthCheck:
    """How one kind of ground truth is read and judged."""

    thumbnails = False
    """Whether images that look nearly alike are searched for."""

    def inspect(self, source: Source, sample: Sample, size: ImageSize) -> InspectedTruth:
        """What one image's ground truth shows."""
        raise NotImplementedError

    def report(self, source: Source, good: Sequence[Inspected]) -> TruthReport:
        """Of all images that can be used."""
        raise NotImplementedError

    def differs(self, one: Inspected, other: Inspected, names: Sequence[str]) -> str:
        """What is said of two equal pictures with different ground truth."""
        raise NotImplementedError


@dataclass(frozen=True)
class TaskChecks:
    """What a task gives to the data check."""

    truth: TruthCheck
    check_trainable: Callable[[Source], None]
    """Raises what training would refuse."""
    choose_preprocess: Callable[[Source], Preprocess]
    """What the model would see of the images that can be used."""


# ---- what checks share


def per_class(
    names: Sequence[str],
    seen: dict[str, list[Inspected]],
    count: Callable[[Any], NDArray[np.int64]],
) -> tuple[Counts, Counts]:
    """Of each class, in each split: the images that have it, and how much they have together.
    count: (classes,) of the ground truth of one image."""
    none = [np.zeros(len(names), np.int64)]  # a split may be empty
    counts = {
        split: np.array(none + [count(one.truth) for one in of]) for split, of in seen.items()
    }

    def by_name(totals: dict[str, NDArray[np.int64]]) -> Counts:
        return {
            name: {split: int(values[number]) for split, values in totals.items()}
            for number, name in enumerate(names)
        }

    images = by_name({split: (values > 0).sum(0) for split, values in counts.items()})
    return images, by_name({split: values.sum(0) for split, values in counts.items()})


def rare_problems(name: str, images: Counts, used: dict[str, int], of: str) -> Iterable[Problem]:
    """Classes that are missing, or hardly there. images: of each class, in each split, those with
    pixels or objects (`of`) of it; used: all of each split."""
    for class_, counts in images.items():
        if not any(counts.values()):
            yield Problem(name, f"class {class_!r} has no {of} at all", False)
            continue
        for split in used:
            if not counts[split]:
                learned = ": it cannot be learned" if split == "train" else ""
                yield Problem(name, f"class {class_!r} has no {of} in {split}{learned}", False)
        few = counts.get("train", 0)
        if 0 < few < FEW_IMAGES and used["train"] >= FEW_OF:
            part = f"{few} of the {used['train']} images"
            yield Problem(name, f"class {class_!r} is in only {part} of train", False)


def digest_of(values: Tensor) -> bytes:
    shape = " ".join(map(str, values.shape))
    digest = hashlib.sha256(f"{shape} {values.dtype}".encode())
    digest.update(values.contiguous().numpy().data)
    return digest.digest()


# ---- images that are nearly the same: frames of one film, and pictures that look alike


def series_of(id: str) -> str:
    """The name without the number at its end: what the frames of a film have in common."""
    return re.sub(r"\d+$", "", os.path.splitext(os.path.basename(id))[0])


def series_problems(name: str, good: Sequence[Inspected]) -> Iterable[Problem]:
    """Frames of one film in several splits: what is tested is nearly what was learned. Names that
    all begin alike, or all differently, say nothing."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for one in good:
        counts[series_of(one.sample.id)][one.split] += 1
    if len(counts) < 2 or 2 * len(counts) > len(good):
        return
    both = {series: by for series, by in counts.items() if series and len(by) > 1}
    told = [
        f"{series}… ({', '.join(f'{split} {count}' for split, count in by.items())})"
        for series, by in sorted(both.items(), key=lambda item: natural(item[0]))
    ]
    if told:
        more = f" and {len(told) - LISTED} more" if len(told) > LISTED else ""
        yield Problem(
            name,
            f"images of the same series are in several splits: {', '.join(told[:LISTED])}{more}: "
            "if they are frames of one film, the splits are not independent",
            False,
        )
    within = {split: [series for series, by in counts.items() if by[split]] for split in SPLITS}
    if len(within["train"]) < 2:
        return
    for split, all_series in within.items():
        if len(all_series) == 1 and (count := counts[all_series[0]][split]) > 1:
            what = f"all {count} images of {split} are of one series, {all_series[0]}…"
            yield Problem(name, f"{what}: it shows little of what there is", False)


def alike_problems(
    name: str, good: Sequence[Inspected], counts: dict[str, int]
) -> Iterable[Problem]:
    """Images that look nearly like their neighbour by name; equal ones are told elsewhere. counts:
    of each split, and `across` them; filled here."""
    ordered = sorted(
        (one for one in good if one.thumbnail is not None),
        key=lambda one: natural(os.path.basename(one.sample.id)),
    )
    for one, other in pairwise(ordered):
        assert one.thumbnail is not None
        assert other.thumbnail is not None
        if one.digest == other.digest or not _look_alike(one.thumbnail, other.thumbnail):
            continue
        if one.split == other.split:
            counts[one.split] += 1
        else:
            counts["across"] += 1
            what = f"of {one.split} looks nearly like {other.sample.id} of {other.split}"
            yield Problem(one.sample.id, what, False)
    for split, images in Counter(one.split for one in ordered).items():
        count = counts[split]
        if count > MANY_ALIKE * images:
            what = f"{count} of the {images} images of {split} look nearly like the one before"
            yield Problem(name, f"{what}: they are worth fewer", False)


def _look_alike(one: NDArray[np.float32], other: NDArray[np.float32]) -> bool:
    difference, correlation = ALIKE
    if np.abs(one - other).mean() > difference:
        return False
    a, b = one - one.mean(), other - other.mean()
    return bool((a * b).sum() >= correlation * np.sqrt((a * a).sum() * (b * b).sum()) > 0)
