"""The data check of classes and of label sets: how many images each has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from vitreous.data.check.truth_check import Inspected, InspectedTruth, TruthCheck, TruthReport
from vitreous.data.decode.pixels import ImageSize
from vitreous.data.source import Problem, Sample, Source
from vitreous.wording import counted


class ImageCheck(TruthCheck):
    """Nothing is known of the images."""

    def inspect(self, source: Source, sample: Sample, size: ImageSize) -> InspectedTruth:
        return InspectedTruth(digest=None)

    def report(self, source: Source, good: Sequence[Inspected]) -> TruthReport:
        return TruthReport(classes={})


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


@dataclass(kw_only=True)
class LabelsReport(TruthReport):
    labels_per_image: float
    without_label: int

    def lines(self) -> list[tuple[str, str]]:
        images = counted(self.without_label, "image")
        none = f"; without any: {images}" if self.without_label else ""
        return [("labels", f"{self.labels_per_image:.2f} per image on average{none}")]


class LabelsCheck(TruthCheck):
    """Labels that nothing can be learned about."""

    def inspect(self, source: Source, sample: Sample, size: ImageSize) -> InspectedTruth:
        """Its digest is the classes of the image."""
        labels = source.truth(sample, size).nonzero().flatten()
        return InspectedTruth(digest=tuple(labels.tolist()))

    def report(self, source: Source, good: Sequence[Inspected]) -> TruthReport:
        names = source.labels.names
        classes = {name: dict.fromkeys(source.splits, 0) for name in names}
        for one in good:
            for number in one.truth.digest:
                classes[names[number]][one.split] += 1
        images = Counter(one.split for one in good)
        problems = []
        for name, counts in classes.items():
            if sum(counts.values()) < 2:
                problems.append(f"label {name!r} has {counted(sum(counts.values()), 'image')}")
            for split, count in counts.items():
                if not count:
                    problems.append(f"label {name!r} has no images in {split}")
                elif count == images[split] and split == "train":
                    problems.append(f"label {name!r} is on every image in {split}: nothing to tell")
        sizes = [len(one.truth.digest) for one in good]
        return LabelsReport(
            classes=classes,
            problems=[Problem(source.name, what, fatal=False) for what in problems],
            labels_per_image=sum(sizes) / max(len(sizes), 1),
            without_label=sizes.count(0),
        )

    def differs(self, one: Inspected, other: Inspected, names: Sequence[str]) -> str:
        first, second = (
            ", ".join(names[number] for number in each.truth.digest) or "no label"
            for each in (one, other)
        )
        return f"has the labels {first}, but the same picture {other.sample.id} has {second}"
