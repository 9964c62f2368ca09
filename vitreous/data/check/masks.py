"""The data check of masks: how much there is of each class, and what is odd about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vitreous.data.check.truth_check import (
    Inspected,
    InspectedTruth,
    PlacesReport,
    TruthCheck,
    alike_problems,
    copies,
    digest_of,
    per_class,
    rare_problems,
    series_problems,
)
from vitreous.data.decode.pixels import ImageSize
from vitreous.data.source import Problem, Sample, Source

MUCH_IGNORED = 0.2  # of a mask
OTHER_SHARE = 4  # times as much of a class in one split as in another
SMALL_SHARE = 0.001  # a class that has less everywhere is not compared
MANY_LONE = 0.005  # of all pixels


@dataclass(frozen=True, kw_only=True)
class InspectedMask(InspectedTruth):
    pixels: NDArray[np.int64]
    """Of each class."""
    ignored: int
    lone: int
    """Pixels that differ from all four neighbours."""

    @property
    def total(self) -> int:
        return self.ignored + int(self.pixels.sum())


@dataclass(kw_only=True)
class MaskReport(PlacesReport):
    """By split, what was counted."""

    beside = "pixels", "its share of the labelled pixels"

    pixels: dict[str, dict[str, int]]
    """For each class, its pixels."""
    ignored: dict[str, int]
    """Pixels without a class."""
    lone: dict[str, int]
    """Pixels that differ from all four neighbours."""

    def lines(self) -> list[tuple[str, str]]:
        lone = ", ".join(f"{s} {_share(n, self._all(s))}" for s, n in self.lone.items())
        return [
            ("near alike", copies(self.alike)),
            ("lone", f"{lone} of the pixels differ from all four neighbours"),
        ]

    def cell(self, name: str, split: str) -> list[str]:
        return [_share(self.pixels[name][split], self._all(split) - self.ignored[split])]

    def table(self, splits: Sequence[str]) -> tuple[list[str], dict[str, list[str]], str]:
        headings, rows, what = super().table(splits)
        if any(self.ignored.values()):
            shares = [_share(self.ignored[s], self._all(s)) for s in splits]
            rows["(ignored, of all)"] = [cell for share in shares for cell in ("", share)]
        return headings, rows, what

    def _all(self, split: str) -> int:
        return self.ignored[split] + sum(pixels[split] for pixels in self.pixels.values())


class MaskCheck(TruthCheck):
    """Classes that are rare or nowhere, masks with little information, images that look alike."""

    thumbnails = True

    def inspect(self, source: Source, sample: Sample, size: ImageSize) -> InspectedMask:
        found = source.checked_truth(sample, size)
        mask = found.truth
        values = mask.numpy()
        counts = np.bincount(values.ravel() + 1, minlength=len(source.labels) + 1)
        return InspectedMask(
            digest=digest_of(mask),
            remarks=found.remarks,
            pixels=counts[1:],
            ignored=int(counts[0]),
            lone=_lone(values),
        )

    def report(self, source: Source, good: Sequence[Inspected]) -> MaskReport:
        name, names, splits = source.name, source.labels.names, list(source.splits)
        masks = {split: [one for one in good if one.split == split] for split in splits}
        images, pixels = per_class(names, masks, lambda mask: mask.pixels)
        report = MaskReport(
            classes=images,
            pixels=pixels,
            ignored={split: sum(one.truth.ignored for one in of) for split, of in masks.items()},
            lone={split: sum(one.truth.lone for one in of) for split, of in masks.items()},
            alike=dict.fromkeys((*splits, "across"), 0),
        )
        used = {split: len(of) for split, of in masks.items() if of}
        report.problems = [
            *rare_problems(name, images, used, "pixels"),
            *_shares(name, report, used),
            *(problem for split in used for problem in _of_split(name, split, masks[split], names)),
            *series_problems(name, good),
            *alike_problems(name, good, report.alike),
        ]
        return report

    def differs(self, one: Inspected, other: Inspected, names: Sequence[str]) -> str:
        return f"has another mask than the same picture {other.sample.id}"


def _share(count: int, total: int) -> str:
    """Of very little too it must be seen that it is not nothing."""
    if not count or not total:
        return "-"
    return f"{count / total:.2%}" if count / total >= 0.0001 else "<0.01%"


def _lone(mask: NDArray[np.int16]) -> int:
    """How many pixels differ from all four neighbours; what is outside differs."""
    lone = np.ones(mask.shape, bool)
    rows = mask[1:] != mask[:-1]
    columns = mask[:, 1:] != mask[:, :-1]
    lone[1:] &= rows
    lone[:-1] &= rows
    lone[:, 1:] &= columns
    lone[:, :-1] &= columns
    return int(lone.sum())


def _shares(name: str, report: MaskReport, used: dict[str, int]) -> Iterable[Problem]:
    """Classes of which another split has far more, or far less, than train."""
    if "train" not in used:
        return
    labelled = {split: sum(by[split] for by in report.pixels.values()) for split in used}
    for class_, by_split in report.pixels.items():
        shares = {split: by_split[split] / max(labelled[split], 1) for split in used}
        here = shares["train"]
        for split, there in shares.items():
            low, high = sorted((here, there))
            if low and high >= SMALL_SHARE and high >= OTHER_SHARE * low:
                what = f"{there:.2%} of the labelled pixels of {split}, but {here:.2%} of train"
                yield Problem(name, f"class {class_!r} is {what}", False)


def _of_split(
    name: str, split: str, seen: Sequence[Inspected], names: Sequence[str]
) -> Iterable[Problem]:
    """Masks with little information."""
    for id, mask in ((one.sample.id, one.truth) for one in seen):
        if mask.ignored == mask.total:
            yield Problem(id, "its mask has no labelled pixel: all are ignored", False)
        elif mask.ignored > MUCH_IGNORED * mask.total:
            yield Problem(id, f"{mask.ignored / mask.total:.0%} of its mask are ignored", False)
        elif (mask.pixels > 0).sum() == 1:
            class_ = names[int(mask.pixels.argmax())]
            yield Problem(id, f"its mask is {class_!r} as a whole", False)
    lone, total = (sum(getattr(one.truth, of) for one in seen) for of in ("lone", "total"))
    if lone > MANY_LONE * total:
        what = f"{lone / total:.1%} of the pixels of {split} differ from all four neighbours"
        yield Problem(name, f"{what}: were the masks resized or compressed?", False)
