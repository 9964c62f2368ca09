"""The data check of label sets: how many images each label has, and each image labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vitreous.data.check.inspect import Inspected
from vitreous.data.check.truth_check import InspectedTruth, TruthCheck, TruthReport
from vitreous.data.decode.pixels import ImageSize
from vitreous.data.source import Problem, Sample, Source
from vitreous.wording import counted


@dataclass(kw_only=True)
class LabelsReport(TruthReport):
    labels_per_image: float
    without_label: int

    def lines(self) -> list[tuple[str, str]]:
        none = (
            f"; without any: {counted(self.without_label, 'image')}" if self.without_label else ""
        )
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
        images = {split: sum(one.split == split for one in good) for split in source.splits}
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
