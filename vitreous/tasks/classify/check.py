"""What the data check says of classes: how many images each has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from vitreous.data.check.inspect import Inspected
from vitreous.data.check.truth import TruthCheck, TruthReport
from vitreous.data.source import Problem, Sample, Source


class InspectedClass(NamedTuple):
    digest: int
    """The class."""


class ClassCheck(TruthCheck):
    """Classes that have too few images."""

    def inspect(self, source: Source, sample: Sample) -> tuple[InspectedClass, tuple[Problem, ...]]:
        return InspectedClass(source.truth(sample)), ()

    def report(self, source: Source, good: Sequence[Inspected]) -> TruthReport:
        counts = {
            split: Counter(sample.target for sample in samples)
            for split, samples in source.splits.items()
        }
        report = TruthReport(classes={})
        for number, name in enumerate(source.labels.names):
            by_split = {split: counts[split][number] for split in counts}
            report.classes[name] = by_split
            if sum(by_split.values()) < 2:
                what = f"class {name!r} has only one image"
                report.problems.append(Problem(source.name, what, False))
            report.problems += [
                Problem(source.name, f"class {name!r} has no images in {split}", False)
                for split, count in by_split.items()
                if not count
            ]
        return report

    def differs(self, one: Inspected, other: Inspected, names: Sequence[str]) -> str:
        return (
            f"is {names[one.truth.digest]!r}, but the same picture {other.sample.id} is "
            f"{names[other.truth.digest]!r}"
        )
