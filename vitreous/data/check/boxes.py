"""The data check of boxes: how many objects there are, how large, and what is odd."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vitreous.data.check.truth_check import (
    Inspected,
    InspectedTruth,
    PlacesReport,
    TruthCheck,
    alike_problems,
    by_split,
    copies,
    digest_of,
    per_class,
    rare_problems,
    series_problems,
)
from vitreous.data.decode.pixels import ImageSize
from vitreous.data.objects.overlap import near_pairs
from vitreous.data.source import Problem, Sample, Source
from vitreous.wording import counted, none_or

QUERIES = 100
"""Objects that a DETR can find in one image, unless it is made for more."""

SMALL, MEDIUM = 32**2, 96**2
"""Pixels of a box below which COCO calls an object small, or medium."""

SLIVER = 2  # pixels: what is thinner is hardly seen
NEARLY = 0.8  # intersection over union of two boxes that are probably one object
MOST_TWINS = 1000  # such pairs of one image that are named, each
OTHER_SIZE = 2.5  # times as large as is usual in the class, or as small …
SPREAD = 6  # … and so many times as far off as is usual …
SIZES_OF = 20  # … where there are so many to tell what is usual
USUAL, USUAL_OF = 0.9, 20  # part of all images that have a class, if there are so many


@dataclass(frozen=True, kw_only=True)
class InspectedBoxes(InspectedTruth):
    boxes: NDArray[np.float32]
    """(n, 4): left, top, right, bottom in pixels."""
    labels: NDArray[np.int64]
    crowd: NDArray[np.bool_]
    names: tuple[str, ...]
    records: tuple[str, ...]
    """What problems call each of them, and the same with its file."""
    cut: int
    """Boxes that reached over the edge of the image."""

    def counts(self, classes: int) -> NDArray[np.int64]:
        """(classes,): objects of each, without crowds."""
        return np.bincount(self.labels[~self.crowd], minlength=classes)

    def areas(self) -> NDArray[np.float32]:
        """Of all but crowds."""
        left, top, right, bottom = self.boxes[~self.crowd].T
        areas: NDArray[np.float32] = (right - left) * (bottom - top)
        return areas


NO_EMPTY = (
    "every image of train has objects, so a model learns that there always are some: on images of "
    "other subjects it will raise false alarms. If it will see such images, add some to train, "
    "without labels (an empty label file, or none in YOLO; in COCO an image without annotations): "
    "a tenth of the images is a good start"
)
"""What it means if no image is empty, and what to do."""


@dataclass(kw_only=True)
class BoxReport(PlacesReport):
    """By split, what was counted. Crowds are counted by themselves."""

    beside = "objects", "its objects"

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

    def lines(self) -> list[tuple[str, str]]:
        found = [("near alike", copies(self.alike))]
        for split, of in self.per_image.items():
            count = sum(self.object_sizes[split].values())
            text = (
                f"{split} {count:,}; in an image {of['median']:g} (median), at most "
                f"{of['largest']:g}; {none_or(self.empty[split], 'image')} without objects"
            )
            found.append(("objects", text))
        if self.empty.get("train") == 0:
            found.append(("no empty", NO_EMPTY))
        for split, sizes in self.object_sizes.items():
            text = f"{split} {by_split(sizes)}   (below 32x32, below 96x96, and above)"
            found.append(("boxes", text))
        if any(self.cut.values()):
            found.append(("cut off", f"boxes at the edge of the image: {by_split(self.cut)}"))
        if any(self.crowd.values()):
            what = "boxes that are neither learned nor counted (crowds, difficult)"
            found.append(("crowd", f"{what}: {by_split(self.crowd)}"))
        return found

    def cell(self, name: str, split: str) -> list[str]:
        return [f"{self.objects[name][split]:,}"]


class BoxCheck(TruthCheck):
    """Objects that are too many, too thin, of an odd size or labelled twice; images alike."""

    thumbnails = True

    def __init__(self, queries: int = QUERIES) -> None:
        self.queries = queries

    def inspect(self, source: Source, sample: Sample, size: ImageSize) -> InspectedBoxes:
        found = source.checked_truth(sample, size)
        truth, names, records = found.truth, found.names, found.records
        if names is None:
            names = tuple(f"object {number + 1}" for number in range(len(truth["labels"])))
            records = tuple(f"{sample.id}, {name}" for name in names)
        return InspectedBoxes(
            digest=b"".join(digest_of(truth[name]) for name in ("boxes", "labels", "crowd")),
            boxes=truth["boxes"].numpy(),
            labels=truth["labels"].numpy(),
            crowd=truth["crowd"].numpy(),
            names=names,
            records=records,
            cut=found.cut,
            remarks=found.remarks,
        )

    def report(self, source: Source, good: Sequence[Inspected]) -> BoxReport:
        name, names, splits = source.name, source.labels.names, list(source.splits)
        seen = {split: [one for one in good if one.split == split] for split in splits}
        images, objects = per_class(names, seen, lambda boxes: boxes.counts(len(names)))
        found = {split: [one.truth for one in of] for split, of in seen.items()}
        report = BoxReport(
            classes=images,
            objects=objects,
            crowd={split: sum(int(b.crowd.sum()) for b in many) for split, many in found.items()},
            empty={split: sum(not len(b.labels) for b in many) for split, many in found.items()},
            object_sizes={split: _sizes(many) for split, many in found.items()},
            per_image={split: _per_image(many) for split, many in found.items()},
            cut={split: sum(boxes.cut for boxes in many) for split, many in found.items()},
            alike=dict.fromkeys((*splits, "across"), 0),
        )
        used = {split: len(of) for split, of in seen.items() if of}
        odd = chain(
            _too_many(good, self.queries),
            _slivers(good),
            _nearly_twice(good, names),
            _other_sizes(good, names),
            _not_everywhere(good, names),
        )
        report.problems = [
            *rare_problems(name, images, used, "objects"),
            *(Problem(record, what, fatal=False) for record, what in odd),
            *series_problems(name, good),
            *alike_problems(name, good, report.alike),
        ]
        return report

    def differs(self, one: Inspected, other: Inspected, names: Sequence[str]) -> str:
        return f"has other boxes than the same picture {other.sample.id}"


def _sizes(many: Sequence[InspectedBoxes]) -> dict[str, int]:
    areas = np.concatenate([np.zeros(0), *(boxes.areas() for boxes in many)])
    small, medium = int((areas < SMALL).sum()), int((areas < MEDIUM).sum())
    return {"small": small, "medium": medium - small, "large": len(areas) - medium}


def _per_image(many: Sequence[InspectedBoxes]) -> dict[str, float]:
    counts = [int((~boxes.crowd).sum()) for boxes in many] or [0]
    return {"median": float(np.median(counts)), "largest": max(counts)}


# ---- what is odd: the image's or the record's name, and why

Oddities = Iterable[tuple[str, str]]


def _too_many(good: Sequence[Inspected], queries: int) -> Oddities:
    for one in good:
        if (count := int((~one.truth.crowd).sum())) > queries:
            what = (
                f"has {counted(count, 'object')}, but a model with {queries} queries finds at most "
                "those"
            )
            yield one.sample.id, what


def _slivers(good: Sequence[Inspected]) -> Oddities:
    for boxes in (one.truth for one in good):
        sides = (boxes.boxes[:, 2:] - boxes.boxes[:, :2]).min(axis=1, initial=np.inf)
        for record, side in zip(boxes.records, sides, strict=True):
            if side < SLIVER:
                yield record, f"its box is only {side:.2g} pixels thin"


def _nearly_twice(good: Sequence[Inspected], names: Sequence[str]) -> Oddities:
    """Two boxes of one class on the same object: a model would be taught to find it twice."""
    for one in good:
        boxes = one.truth
        pairs, overlap, count = _twins(boxes)
        for (first, second), part in zip(pairs.tolist(), overlap.tolist(), strict=True):
            class_ = names[int(boxes.labels[first])]
            what = f"covers nearly what {boxes.names[first]} covers, {part:.0%} of both"
            yield boxes.records[second], f"{what}: is it the same {class_}?"
        if more := count - len(pairs):
            yield one.sample.id, f"has {more:,} more pairs of boxes that cover nearly the same"


def _twins(boxes: InspectedBoxes) -> tuple[Tensor, Tensor, int]:
    """Pairs of objects (m, 2) whose boxes are nearly the same, and their IoU (m,), in the order of
    the second; at most `MOST_TWINS`. And how many there are: of n equal boxes, n² / 2."""
    single = torch.from_numpy(~boxes.crowd).nonzero().flatten()
    each, labels = (torch.from_numpy(column)[single] for column in (boxes.boxes, boxes.labels))
    kept, overlap, count = torch.zeros(0, 2, dtype=torch.int64), torch.zeros(0), 0
    for found in near_pairs(each, labels, NEARLY):
        nearly = found.iou >= NEARLY
        count += int(nearly.sum())
        kept = torch.cat((kept, found.pairs[nearly]))
        overlap = torch.cat((overlap, found.iou[nearly]))
        order = (kept[:, 1] * len(each) + kept[:, 0]).argsort()[:MOST_TWINS]
        kept, overlap = kept[order], overlap[order]
    return single[kept], overlap, count


def _other_sizes(good: Sequence[Inspected], names: Sequence[str]) -> Oddities:
    """Objects far larger or smaller than others of their class, where those are much of one size:
    probably of another class."""
    sizes: dict[int, list[tuple[float, str]]] = defaultdict(list)
    for boxes in (one.truth for one in good):
        records = [r for r, crowd in zip(boxes.records, boxes.crowd, strict=True) if not crowd]
        areas = np.log(boxes.areas()) / 2  # of the side of a square
        for label, size, record in zip(boxes.labels[~boxes.crowd], areas, records, strict=True):
            sizes[int(label)].append((float(size), record))
    for label, members in sorted(sizes.items()):
        if len(members) < SIZES_OF:
            continue
        values = np.array([size for size, _ in members])
        usual = float(np.median(values))
        spread = 1.4826 * float(np.median(np.abs(values - usual)))  # as the standard deviation
        for size, record in members:
            if abs(size - usual) > max(np.log(OTHER_SIZE), SPREAD * spread):
                sides = f"{np.exp(size):.0f} pixels in the mean of its sides"
                yield (
                    record,
                    f"is {sides}, where {np.exp(usual):.0f} are usual for {names[label]!r}",
                )


def _not_everywhere(good: Sequence[Inspected], names: Sequence[str]) -> Oddities:
    """Classes that nearly all images have: those without are perhaps not labelled completely.
    Images without any objects are left out: they are empty on purpose."""
    labelled = [one for one in good if len(one.truth.labels)]
    for number, class_ in enumerate(names if len(labelled) >= USUAL_OF else ()):
        without = [one.sample.id for one in labelled if number not in one.truth.labels]
        part = 1 - len(without) / len(labelled)
        if part >= USUAL:
            what = f"has no {class_!r}, which {part:.0%} of the images have: is it labelled wholly?"
            yield from ((id, what) for id in without)
