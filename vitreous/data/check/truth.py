"""What the data check learns about the ground truth. Each task gives a `TruthCheck` of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from vitreous.data.source import Problem, Sample, Source

if TYPE_CHECKING:
    from vitreous.data.check.inspect import Inspected


class InspectedTruth(Protocol):
    """What reading the ground truth of one image has shown; a task keeps more of it."""

    @property
    def digest(self) -> Any:
        """Equal where the ground truth is."""


@dataclass(kw_only=True)
class TruthReport:
    """What is counted of a kind of ground truth; a task counts more."""

    classes: dict[str, dict[str, int]]
    """For each class, in the model's order, the images in each split that have it."""
    problems: list[Problem] = field(default_factory=list)

    def lines(self) -> list[tuple[str, str]]:
        """What is printed of it, besides the table: a word and a sentence each."""
        return []

    def table(self, splits: Sequence[str]) -> tuple[list[str], dict[str, list[str]], str]:
        """Headings, the cells of each class by its name, and what they are."""
        rows = {
            name: [f"{counts[split]:,}" for split in splits]
            for name, counts in self.classes.items()
        }
        return list(splits), rows, ""


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

    def inspect(self, source: Source, sample: Sample) -> tuple[InspectedTruth, tuple[Problem, ...]]:
        """What one image's ground truth shows, and what is odd but usable about it."""
        raise NotImplementedError

    def report(self, source: Source, good: Sequence[Inspected]) -> TruthReport:
        """Of all images that can be used."""
        raise NotImplementedError

    def differs(self, one: Inspected, other: Inspected, names: Sequence[str]) -> str:
        """What is said of two equal pictures with different ground truth."""
        raise NotImplementedError
