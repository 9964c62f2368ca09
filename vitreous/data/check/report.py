"""Looks at every image, mask and box before training does: what there is, and what is wrong."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vitreous.data.check.inspect import Seen, look_at_all
from vitreous.data.decode.images import MAX_PIXELS, can_be, other_channels
from vitreous.data.formats.files import FileSource
from vitreous.data.source import Problem, Source
from vitreous.data.split import draw
from vitreous.labels import External
from vitreous.tasks.detect.check import QUERIES, check_boxes
from vitreous.tasks.segment.check import check_masks

STATISTICS_OF = 1000


@dataclass
class CheckReport:
    """What was understood, and every problem."""

    name: str
    kind: str
    truth: str
    """Its kind of ground truth."""
    splits: dict[str, int]
    """Images in each."""
    classes: dict[str, dict[str, int]]
    """For each class, in the model's order, its images in each split; with masks or boxes, those
    that have some of it."""
    sizes: dict[str, Any] = field(default_factory=dict)
    """smallest, median and largest (by area) and most_common, as [height, width]."""
    channels: dict[int, int] = field(default_factory=dict)
    """How many images have 1, 3 … channels."""
    dtypes: dict[str, int] = field(default_factory=dict)
    bytes: int | None = None
    """Of all files; nothing where images are not files."""
    mean: list[float] = field(default_factory=list)
    """Per channel of the training images, in 0..1, each image counting the same; from a sample of
    at most 1000."""
    std: list[float] = field(default_factory=list)
    duplicates: dict[str, int] = field(default_factory=dict)
    """Superfluous copies within each split, and under `across` pictures in several splits."""
    pixels: dict[str, dict[str, int]] = field(default_factory=dict)
    """Of masks: for each class its pixels in each split."""
    ignored: dict[str, int] = field(default_factory=dict)
    """Of masks: the pixels in each split that are no class."""
    lone: dict[str, int] = field(default_factory=dict)
    """Of masks: the pixels in each split that are unlike all four around them."""
    alike: dict[str, int] = field(default_factory=dict)
    """With masks or boxes: images of each split that look nearly like the one before, by name, and
    under `across` those that look like one of another split."""
    objects: dict[str, dict[str, int]] = field(default_factory=dict)
    """Of boxes: for each class its objects in each split, without crowds."""
    crowd: dict[str, int] = field(default_factory=dict)
    """Of boxes: those in each split that are neither learned nor counted."""
    empty: dict[str, int] = field(default_factory=dict)
    """Of boxes: the images in each split that have none."""
    object_sizes: dict[str, dict[str, int]] = field(default_factory=dict)
    """Of boxes: for each split how many are small, medium and large, as COCO calls it."""
    per_image: dict[str, dict[str, float]] = field(default_factory=dict)
    """Of boxes: for each split the median and the largest number in one image."""
    cut: dict[str, int] = field(default_factory=dict)
    """Of boxes: those in each split that reached over the edge of their image."""
    ids: dict[str, External] = field(default_factory=dict)
    """What the data itself calls each class: a number, a colour, or its name."""
    notes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    @property
    def fatal(self) -> list[Problem]:
        return [problem for problem in self.problems if problem.fatal]

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def check(
    source: Source,
    *,
    workers: int | None = None,
    max_pixels: int = MAX_PIXELS,
    queries: int = QUERIES,
) -> CheckReport:
    """Decodes every image and every mask once.

    queries: images with more objects than a model with so many can find are told.
    """
    report = CheckReport(
        name=source.name,
        kind=source.kind,
        truth=source.truth_kind,
        splits={split: len(samples) for split, samples in source.splits.items()},
        classes={},
        ids=dict(zip(source.labels.names, source.labels.external, strict=True)),
        notes=list(source.notes),
        problems=list(source.problems),
    )
    seen = look_at_all(source, workers, max_pixels, _for_statistics(source))
    good = [one for one in seen if one.problem is None]
    report.problems += [one.problem for one in seen if one.problem is not None]
    report.problems += _other_channels(seen, None).values()
    report.problems += [remark for one in seen for remark in one.remarks]
    if source.truth_kind == "mask":
        _masks(report, good, source.labels.names)
    elif source.truth_kind == "boxes":
        _boxes(report, good, source.labels.names, queries)
    else:
        _classes(report, source)
    if not report.splits.get("train"):
        what = "there are no images to train on"
        report.problems.append(Problem(report.name, what, False))
    if len(report.classes) == 1 and source.truth_kind != "boxes":
        what = "there is only one class: nothing to tell apart"
        report.problems.append(Problem(report.name, what))
    if good:
        _describe(report, good)
        _statistics(report, [one for one in good if one.moments is not None])
        _duplicates(report, good, source.labels.names)
    if isinstance(source, FileSource):
        report.bytes = sum(one.bytes for one in seen)
    return report


def bad_samples(
    source: Source,
    *,
    workers: int | None = None,
    max_pixels: int = MAX_PIXELS,
    channels: int | None = None,
) -> dict[str, Problem]:
    """By id, the samples whose images, masks or boxes cannot be used.

    channels: what the model takes; what most images can be turned into unless given.
    """
    seen = look_at_all(source, workers, max_pixels)
    unread = {one.sample.id: one.problem for one in seen if one.problem is not None}
    return unread | _other_channels(seen, channels)


def _other_channels(seen: Sequence[Seen], channels: int | None) -> dict[str, Problem]:
    """By id, the images that cannot be turned into `channels`, or into what most images can."""
    good = [one for one in seen if one.problem is None]
    if not good:
        return {}
    wanted = channels or _most_channels(Counter(one.shape[0] for one in good))
    return {
        one.sample.id: Problem(one.sample.id, other_channels(one.shape[0], wanted))
        for one in good
        if not can_be(one.shape[0], wanted)
    }


def _most_channels(counts: Counter[int]) -> int:
    """The number of channels that most images can be turned into; of several, the commonest."""

    def reach(channels: int) -> tuple[int, int]:
        return sum(n for have, n in counts.items() if can_be(have, channels)), counts[channels]

    return max(sorted(counts), key=reach)


def _for_statistics(source: Source) -> frozenset[str]:
    ids = (sample.id for sample in source.splits.get("train", ()))
    return frozenset(sorted(ids, key=lambda id: draw(0, id))[:STATISTICS_OF])


def _classes(report: CheckReport, source: Source) -> None:
    """Images of one class each: how many of which."""
    counts = {split: Counter(s.target for s in samples) for split, samples in source.splits.items()}
    for number, name in enumerate(source.labels.names):
        by_split = {split: counts[split][number] for split in counts}
        report.classes[name] = by_split
        if sum(by_split.values()) < 2:
            what = f"class {name!r} has only one image"
            report.problems.append(Problem(report.name, what, False))
        report.problems += [
            Problem(report.name, f"class {name!r} has no images in {split}", False)
            for split, count in by_split.items()
            if not count
        ]


def _masks(report: CheckReport, good: Sequence[Seen], names: Sequence[str]) -> None:
    masks = check_masks(report.name, list(report.splits), names, good)
    report.classes, report.pixels = masks.images, masks.pixels
    report.ignored, report.lone, report.alike = masks.ignored, masks.lone, masks.alike
    report.problems += masks.problems


def _boxes(report: CheckReport, good: Sequence[Seen], names: Sequence[str], queries: int) -> None:
    boxes = check_boxes(report.name, list(report.splits), names, good, queries)
    report.classes, report.objects, report.crowd = boxes.images, boxes.objects, boxes.crowd
    report.empty, report.object_sizes, report.per_image = boxes.empty, boxes.sizes, boxes.per_image
    report.cut, report.alike = boxes.cut, boxes.alike
    report.problems += boxes.problems


def _describe(report: CheckReport, good: Sequence[Seen]) -> None:
    by_area = sorted((one.shape[1:] for one in good), key=lambda size: (size[0] * size[1], size))
    common, count = Counter(by_area).most_common(1)[0]
    report.sizes = {
        "smallest": list(by_area[0]),
        "median": list(by_area[len(by_area) // 2]),
        "largest": list(by_area[-1]),
        "most_common": list(common),
        "most_common_count": count,
        "different": len(set(by_area)),
    }
    report.channels = dict(sorted(Counter(one.shape[0] for one in good).items()))
    report.dtypes = dict(sorted(Counter(one.dtype for one in good).items()))
    if len(report.channels) > 1 or len(report.dtypes) > 1:
        report.notes.append("images differ in channels or depth: see above whether that is meant")


def _statistics(report: CheckReport, sampled: Sequence[Seen]) -> None:
    """Gray images among coloured ones count as coloured, as they do for a model."""
    counts = Counter(one.shape[0] for one in sampled)
    if not counts:
        return
    channels = 3 if set(counts) == {1, 3} else _most_channels(counts)
    rows = []
    for one in sampled:
        assert one.moments is not None
        if one.shape[0] == channels or (one.shape[0] == 1 and channels == 3):
            rows.append([moment * (channels // one.shape[0]) for moment in one.moments])
    mean, square = np.array(rows).mean(axis=0)
    report.mean = mean.round(6).tolist()
    report.std = np.sqrt(np.maximum(square - mean**2, 0)).round(6).tolist()


def _duplicates(report: CheckReport, good: Sequence[Seen], names: Sequence[str]) -> None:
    """Pictures that are equal in every pixel."""
    groups: dict[bytes, list[Seen]] = defaultdict(list)
    for one in good:
        groups[one.digest].append(one)
    report.duplicates = {**dict.fromkeys(report.splits, 0), "across": 0}
    for group in groups.values():
        if len(group) == 1:
            continue
        per_split = Counter(one.split for one in group)
        for split, count in per_split.items():
            report.duplicates[split] += count - 1
        report.duplicates["across"] += len(per_split) > 1
        first = group[0]
        other = next((one for one in group if _shows(one) != _shows(first)), None)
        if other is not None and first.mask is not None:
            what = f"has another mask than the same picture {other.sample.id}"
        elif other is not None and first.boxes is not None:
            what = f"has other boxes than the same picture {other.sample.id}"
        elif other is not None:
            what = f"is {names[first.sample.target]!r}, but the same picture {other.sample.id} is "
            what += repr(names[other.sample.target])
        else:
            other = next((one for one in group if one.split != first.split), None)
            if other is None:
                continue
            what = (
                f"is in {first.split}, and the same picture {other.sample.id} is in {other.split}"
            )
        if len(group) > 2:
            what += f" ({len(group)} copies in all)"
        report.problems.append(Problem(first.sample.id, what, fatal=False))


def _shows(one: Seen) -> Any:
    """What must be the same for the same picture."""
    if one.boxes is not None:
        return one.boxes.digest
    return one.sample.target if one.mask is None else one.mask.digest
