"""What the data check learns about the ground truth. Each task gives a `TruthCheck` of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from vitreous.data.decode.pixels import ImageSize
from vitreous.data.preprocess import Preprocess
from vitreous.data.source import Problem, Sample, Source

FEW_IMAGES = 5  # of train, from which a class is learned
FEW_OF = 20  # where train has so many, FEW_IMAGES are few

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
