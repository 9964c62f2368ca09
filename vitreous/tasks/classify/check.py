"""The data check of classes: how many images each has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from vitreous.data.check.inspect import Inspected
from vitreous.data.check.truth_check import InspectedTruth, TruthCheck, TruthReport
from vitreous.data.decode.pixels import ImageSize
from vitreous.data.source import Problem, Sample, Source


class ClassCheck(TruthCheck):
    """Classes that have too few images."""

    def inspect(self, source: Source, sample: Sample, size: ImageSize) -> InspectedTruth:
        return InspectedTruth(digest=source.truth(sample, size))

    def report(self, source: Source, good: Sequence[Inspected]) -> TruthReport:
        counts = {
            split: Counter(sample.target for sample in samples)
            for split, samples in source.splits.items()
        }
        report = TruthReport(classes={})
        for number, name in enumerate(source.labels.names):
            by_split = {split: counts[split][number] for split in counts}
            report.classes[name] = by_split
            found = ["has only one image"] if sum(by_split.values()) < 2 else []
            found += [f"has no images in {split}" for split, n in by_split.items() if not n]
            report.problems += [Problem(source.name, f"class {name!r} {w}", False) for w in found]
        return report

    def differs(self, one: Inspected, other: Inspected, names: Sequence[str]) -> str:
        first, second = (names[each.truth.digest] for each in (one, other))
        return f"is {first!r}, but the same picture {other.sample.id} is {second!r}"
