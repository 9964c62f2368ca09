"""What the data check says of boxes: how many objects there are, how large, and what is odd."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from vitreous.data.check.common import (
    alike_problems,
    by_class,
    rare_problems,
    series_problems,
    some,
)
from vitreous.data.check.inspect import Inspected, digest_of
from vitreous.data.check.truth import TruthCheck, TruthReport, by_split, copies
from vitreous.data.formats.box_source import BoxSource
from vitreous.data.source import Problem, Sample, Source
from vitreous.tasks.detect.boxes import iou

QUERIES = 100
"""Objects that a DETR can find in one image, unless it is made for more."""

SMALL, MEDIUM = 32**2, 96**2
"""Pixels of a box below which COCO calls an object small, or medium."""

SLIVER = 2  # pixels: what is thinner is hardly seen
NEARLY = 0.8  # intersection over union of two boxes that are probably one object
OTHER_SIZE = 2.5  # times as large as is usual in the class, or as small …
SPREAD = 6  # … and so many times as far off as is usual …
SIZES_OF = 20  # … where there are so many to tell what is usual
USUAL, USUAL_OF = 0.9, 20  # part of all images that have a class, if there are so many
MANY_RECORDS = 50  # of one problem; more of them are counted


@dataclass(frozen=True, slots=True)
class InspectedBoxes:
    """What the boxes of one image have shown."""

    digest: bytes
    boxes: NDArray[np.float32]
    """(n, 4): left, top, right, bottom in pixels."""
    labels: NDArray[np.int64]
    crowd: NDArray[np.bool_]
    names: tuple[str, ...]
    records: tuple[str, ...]
    """What problems call each of them, and the same with its file."""
    cut: int
    """Boxes that reached over the edge of the image."""


@dataclass(kw_only=True)
class BoxReport(TruthReport):
    """By split, what was counted. Crowds are counted by themselves."""

    objects: dict[str, dict[str, int]]
    """For each class, its objects."""
    crowd: dict[str, int]
    """Objects that are neither learned nor counted."""
    empty: dict[str, int]
    """Images without objects."""
    object_sizes: dict[str, dict[str, int]]
    """Objects that are small, medium and large, as COCO calls it."""
    per_image: dict[str, dict[str, float]]
    """The median and the largest number of objects in one image."""
    cut: dict[str, int]
    """Boxes that reached over the edge of their image."""
    alike: dict[str, int]
    """Images that look nearly like the one before, by the order of their names; under `across`
    those that do so in another split."""

    def lines(self) -> list[tuple[str, str]]:
        found = [("near alike", copies(self.alike))]
        for split, of in self.per_image.items():
            count = sum(self.object_sizes[split].values())
            text = (
                f"{split} {count:,}; in an image {of['median']:g} (median), at most "
                f"{of['largest']:g}; {self.empty[split] or 'no'} images without objects"
            )
            found.append(("objects", text))
        for split, sizes in self.object_sizes.items():
            text = f"{split} {by_split(sizes)}   (below 32x32, below 96x96, and above)"
            found.append(("boxes", text))
        if any(self.cut.values()):
            found.append(("cut off", f"{by_split(self.cut)} boxes, at the edge of the image"))
        if any(self.crowd.values()):
            what = "boxes are neither learned nor counted (crowds, difficult)"
            found.append(("crowd", f"{by_split(self.crowd)} {what}"))
        return found

    def table(self, splits: Sequence[str]) -> tuple[list[str], dict[str, list[str]], str]:
        headings = [heading for split in splits for heading in (split, "objects")]
        rows = {
            name: [f"{count:,}" for s in splits for count in (self.classes[name][s], objects[s])]
            for name, objects in self.objects.items()
        }
        return headings, rows, "In each split: images that have some of it, and its objects."


class BoxCheck(TruthCheck):
    """Objects that are too many, too thin, of an odd size or labelled twice; images alike."""

    thumbnails = True

    def __init__(self, queries: int = QUERIES) -> None:
        self.queries = queries

    def inspect(self, source: Source, sample: Sample) -> tuple[InspectedBoxes, tuple[Problem, ...]]:
        problems: tuple[Problem, ...] = ()
        if isinstance(source, BoxSource):
            placed = source.placed(sample)
            truth, cut = placed.truth, sum(far > 0 for far in placed.over)
            names = [box.name for box in source.annotations[sample.id].instances]
            records = [source.record(sample, name) for name in names]
            problems = tuple(source.cut_off(sample, placed))
        else:
            truth, cut = source.truth(sample), 0
            names = [f"object {number + 1}" for number in range(len(truth["labels"]))]
            records = [f"{sample.id}, {name}" for name in names]
        seen = InspectedBoxes(
            digest=b"".join(digest_of(truth[name]) for name in ("boxes", "labels", "crowd")),
            boxes=truth["boxes"].numpy(),
            labels=truth["labels"].numpy(),
            crowd=truth["crowd"].numpy(),
            names=tuple(names),
            records=tuple(records),
            cut=cut,
        )
        return seen, problems

    def report(self, source: Source, good: Sequence[Inspected]) -> BoxReport:
        name, names, splits = source.name, source.labels.names, list(source.splits)
        seen = {split: [one.truth for one in good if one.split == split] for split in splits}
        counts = {
            split: np.array([_counts(boxes, len(names)) for boxes in many]).reshape(-1, len(names))
            for split, many in seen.items()
        }
        report = BoxReport(
            classes=by_class(names, {split: (n > 0).sum(0) for split, n in counts.items()}),
            objects=by_class(names, {split: n.sum(0) for split, n in counts.items()}),
            crowd={split: sum(int(b.crowd.sum()) for b in many) for split, many in seen.items()},
            empty={split: sum(not len(b.labels) for b in many) for split, many in seen.items()},
            object_sizes={split: _sizes(many) for split, many in seen.items()},
            per_image={split: _per_image(n.sum(1)) for split, n in counts.items()},
            cut={split: sum(boxes.cut for boxes in many) for split, many in seen.items()},
            alike={**dict.fromkeys(splits, 0), "across": 0},
        )
        used = {split: len(many) for split, many in seen.items() if many}
        report.problems = [
            *rare_problems(name, report.classes, used, "objects"),
            *_too_many(name, good, self.queries),
            *_slivers(name, good),
            *_nearly_twice(name, good, names),
            *_other_sizes(name, good, names),
            *_not_everywhere(name, good, names),
            *series_problems(name, good),
            *alike_problems(name, good, report.alike),
        ]
        return report

    def differs(self, one: Inspected, other: Inspected, names: Sequence[str]) -> str:
        return f"has other boxes than the same picture {other.sample.id}"


def _counts(boxes: InspectedBoxes, classes: int) -> NDArray[np.int64]:
    return np.bincount(boxes.labels[~boxes.crowd], minlength=classes)


def _areas(boxes: InspectedBoxes) -> NDArray[np.float32]:
    """Of all but crowds."""
    left, top, right, bottom = boxes.boxes[~boxes.crowd].T
    areas: NDArray[np.float32] = (right - left) * (bottom - top)
    return areas


def _sizes(many: Sequence[InspectedBoxes]) -> dict[str, int]:
    areas = np.concatenate([np.zeros(0), *map(_areas, many)])
    small, medium = int((areas < SMALL).sum()), int((areas < MEDIUM).sum())
    return {"small": small, "medium": medium - small, "large": len(areas) - medium}


def _per_image(counts: NDArray[np.int64]) -> dict[str, float]:
    if not len(counts):
        return {"median": 0, "largest": 0}
    return {"median": float(np.median(counts)), "largest": int(counts.max())}


# ---- what is odd


def _too_many(name: str, good: Sequence[Inspected], queries: int) -> Iterable[Problem]:
    found = []
    for one in good:
        boxes = one.truth
        count = int((~boxes.crowd).sum())
        if count > queries:
            what = f"has {count} objects, but a model with {queries} queries finds at most those"
            found.append((one, what))
    yield from some(name, found, f"images have more than {queries} objects, a model's queries")


def _slivers(name: str, good: Sequence[Inspected]) -> Iterable[Problem]:
    found = []
    for boxes in (one.truth for one in good):
        sides = (boxes.boxes[:, 2:] - boxes.boxes[:, :2]).min(axis=1, initial=np.inf)
        for record, side in zip(boxes.records, sides, strict=True):
            if side < SLIVER:
                found.append((record, f"its box is only {side:.2g} pixels thin"))
    yield from _some_records(name, found, f"boxes are thinner than {SLIVER} pixels")


def _nearly_twice(name: str, good: Sequence[Inspected], names: Sequence[str]) -> Iterable[Problem]:
    """Two boxes of one class on the same object: a model would be taught to find it twice."""
    found = []
    for boxes in (one.truth for one in good):
        same = boxes.labels[:, None] == boxes.labels
        single = ~(boxes.crowd[:, None] | boxes.crowd)
        each = torch.from_numpy(boxes.boxes)
        overlap = iou(each[:, None], each).numpy()
        for second, first in np.argwhere(np.tril(same & single & (overlap >= NEARLY), -1)).tolist():
            part, class_ = overlap[second, first], names[int(boxes.labels[first])]
            what = f"covers nearly what {boxes.names[first]} covers, {part:.0%} of both"
            found.append((boxes.records[second], f"{what}: is it the same {class_}?"))
    yield from _some_records(name, found, "boxes cover nearly what another of their class covers")


def _other_sizes(name: str, good: Sequence[Inspected], names: Sequence[str]) -> Iterable[Problem]:
    """Objects far larger or smaller than others of their class, where those are much of one size:
    probably of another class."""
    sizes: dict[int, list[tuple[float, str]]] = defaultdict(list)
    for boxes in (one.truth for one in good):
        records = [r for r, crowd in zip(boxes.records, boxes.crowd, strict=True) if not crowd]
        areas = np.log(_areas(boxes)) / 2  # of the side of a square
        for label, size, record in zip(boxes.labels[~boxes.crowd], areas, records, strict=True):
            sizes[int(label)].append((float(size), record))
    found = []
    for label, members in sorted(sizes.items()):
        if len(members) < SIZES_OF:
            continue
        values = np.array([size for size, _ in members])
        usual = float(np.median(values))
        spread = 1.4826 * float(np.median(np.abs(values - usual)))  # as the standard deviation
        for size, record in members:
            if abs(size - usual) > max(np.log(OTHER_SIZE), SPREAD * spread):
                sides = f"{np.exp(size):.0f} pixels in the mean of its sides"
                what = f"is {sides}, where {np.exp(usual):.0f} are usual for {names[label]!r}"
                found.append((record, what))
    yield from _some_records(name, found, "boxes are of a size that is not usual for their class")


def _not_everywhere(
    name: str, good: Sequence[Inspected], names: Sequence[str]
) -> Iterable[Problem]:
    """Classes that nearly all images have: those without are perhaps not labelled completely.

    Images without any objects are not asked: that is said on purpose.
    """
    all_boxes = [(one, boxes) for one in good if len((boxes := one.truth).labels)]
    if len(all_boxes) < USUAL_OF:
        return
    for number, class_ in enumerate(names):
        without = [one for one, boxes in all_boxes if number not in boxes.labels]
        part = 1 - len(without) / len(all_boxes)
        if part >= USUAL:
            what = f"has no {class_!r}, which {part:.0%} of the images have: is it labelled wholly?"
            found = [(one.sample.id, what) for one in without]
            together = f"images have no {class_!r}, which {part:.0%} of them have"
            yield from _some_records(name, found, together)


def _some_records(name: str, found: list[tuple[str, str]], together: str) -> Iterable[Problem]:
    """Each with its record, or one for all where there are many."""
    if len(found) > MANY_RECORDS:
        yield Problem(name, f"{len(found)} {together}: {found[0][0]} …", False)
    else:
        yield from (Problem(record, what, False) for record, what in found)
