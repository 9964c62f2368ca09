"""The report of the data check: what there is, and every problem."""

from __future__ import annotations

import dataclasses
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from vitreous.data.check.truth_check import (
    Inspected,
    TaskChecks,
    TruthCheck,
    TruthReport,
    digest_of,
)
from vitreous.data.decode.images import shown
from vitreous.data.decode.pixels import MAX_PIXELS, can_be, other_channels
from vitreous.data.formats.files import FileSource
from vitreous.data.preprocess import FULL_SCALE, Preprocess
from vitreous.data.source import Problem, Sample, Source, unread_pages_problem
from vitreous.data.statistics import measure_statistics
from vitreous.data.threads import in_threads
from vitreous.errors import DataError
from vitreous.labels import External

THUMBNAIL = 16
SHOWN = {"leak": 20, "fatal": 20, "note": 3}
"""How many problems that are alike are shown, of each level, the gravest first."""

_PARTICULAR = re.compile(r"'[^']*'|\"[^\"]*\"|\S*[/\\\d]\S*|\S+\.\w+")


@dataclass
class CheckReport:
    """What was understood, and every problem."""

    name: str
    kind: str
    truth_kind: str
    splits: dict[str, int]
    """Images in each."""
    truth: TruthReport
    """What was counted of the ground truth, by its kind."""
    sizes: dict[str, Any] = field(default_factory=dict)
    """smallest, median and largest (by area) and most_common, as [height, width]."""
    channels: dict[int, int] = field(default_factory=dict)
    """How many images have 1, 3 … channels."""
    dtypes: dict[str, int] = field(default_factory=dict)
    bytes: int | None = None
    """Of all files; nothing where images are not files."""
    mean: list[float] = field(default_factory=list)
    """Per channel of the training images, in 0..1, as training measures it."""
    std: list[float] = field(default_factory=list)
    duplicates: dict[str, int] = field(default_factory=dict)
    """Superfluous copies within each split, and under `across` pictures in several splits."""
    ids: dict[str, External] = field(default_factory=dict)
    """What the data itself calls each class: a number, a colour, or its name."""
    notes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    @property
    def fatal(self) -> list[Problem]:
        """What training would stop at."""
        return [problem for problem in self.problems if problem.fatal]

    @property
    def unusable(self) -> list[Problem]:
        """Of the fatal problems, those of single images: without these images it would go on."""
        return [problem for problem in self.fatal if problem.file != self.name]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; what was counted of the ground truth stands among the rest."""
        values = dataclasses.asdict(self)
        truth = values.pop("truth")
        return {**values, **truth, "problems": values["problems"]}


def check(
    source: Source, task: TaskChecks, *, workers: int | None = None, max_pixels: int = MAX_PIXELS
) -> CheckReport:
    """Reads every image and its ground truth once; some training images again, to measure the mean
    and std that a model which is trained from scratch would see."""
    source, truth = dataclasses.replace(source, max_pixels=max_pixels), task.truth
    seen = inspect_all(source, truth, workers)
    good = [one for one in seen if one.problem is None]
    found = truth.report(source, good)
    report = CheckReport(
        name=source.name,
        kind=source.kind,
        truth_kind=source.truth_kind,
        splits={split: len(samples) for split, samples in source.splits.items()},
        truth=found,
        ids=dict(zip(source.labels.names, source.labels.external, strict=True)),
        notes=list(source.notes),
        problems=list(source.problems),
    )
    report.problems += [one.problem for one in seen if one.problem is not None]
    other_channels = _other_channels(seen, None)
    report.problems += other_channels.values()
    report.problems += [remark for one in seen for remark in one.remarks]
    report.problems += found.problems
    if good:
        _describe(report, good)
        _duplicates(report, good, truth, source.labels.names)
        usable = {one.sample.id for one in good} - other_channels.keys()
        left = _only(source, usable)
        try:
            task.check_trainable(left)
        except DataError as error:
            what = str(error).removeprefix(f"{source.name}: ").removeprefix(f"{source.name} ")
            report.problems.append(Problem(source.name, what))
        if left.splits.get("train"):
            preprocess = task.choose_preprocess(left)
            enlarged = _enlarged(good, preprocess, max_pixels)
            report.problems += enlarged.values()
            left = _only(left, usable - enlarged.keys())
            if train := left.splits["train"]:
                mean, std = measure_statistics(left, train, preprocess)
                report.mean, report.std = list(mean), list(std)
    if isinstance(source, FileSource):
        report.bytes = sum(one.bytes for one in seen)
    return report


def bad_samples(
    source: Source,
    task: TaskChecks,
    *,
    workers: int | None = None,
    max_pixels: int = MAX_PIXELS,
    channels: int | None = None,
) -> dict[str, Problem]:
    """By id, the samples whose image or ground truth cannot be used. channels: what the model
    takes; what most images can be turned into unless given."""
    source = dataclasses.replace(source, max_pixels=max_pixels)
    seen = inspect_all(source, task.truth, workers)
    bad = {one.sample.id: one.problem for one in seen if one.problem is not None}
    bad |= _other_channels(seen, channels)
    good = [one for one in seen if one.sample.id not in bad]
    left = _only(source, {one.sample.id for one in good})
    if left.splits.get("train"):
        bad |= _enlarged(good, task.choose_preprocess(left), max_pixels)
    return bad


def _only(source: Source, ids: set[str]) -> Source:
    """The source without any other images."""
    splits: dict[str, Sequence[Sample]] = {
        split: [sample for sample in samples if sample.id in ids]
        for split, samples in source.splits.items()
    }
    return dataclasses.replace(source, splits=splits)


def _other_channels(seen: Sequence[Inspected], channels: int | None) -> dict[str, Problem]:
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


def _enlarged(
    good: Sequence[Inspected], preprocess: Preprocess, max_pixels: int
) -> dict[str, Problem]:
    """By id, the images that the model would be given with too many pixels."""
    found = {}
    for one in good:
        try:
            preprocess.check_size(*one.shape[1:], max_pixels)
        except DataError as error:
            found[one.sample.id] = Problem(one.sample.id, str(error))
    return found


def _most_channels(counts: Counter[int]) -> int:
    """The number of channels that most images can be turned into; of several, the commonest."""

    def reach(channels: int) -> tuple[int, int]:
        return sum(n for have, n in counts.items() if can_be(have, channels)), counts[channels]

    return max(sorted(counts), key=reach)


def _describe(report: CheckReport, good: Sequence[Inspected]) -> None:
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


def _duplicates(
    report: CheckReport, good: Sequence[Inspected], truth: TruthCheck, names: Sequence[str]
) -> None:
    """Pictures that are equal in every pixel."""
    groups: dict[bytes, list[Inspected]] = defaultdict(list)
    for one in good:
        groups[one.digest].append(one)
    report.duplicates = {**dict.fromkeys(report.splits, 0), "across": 0}
    report.problems += _leaks(report, groups.values())
    for group in groups.values():
        if len(group) == 1:
            continue
        per_split = Counter(one.split for one in group)
        for split, count in per_split.items():
            report.duplicates[split] += count - 1
        report.duplicates["across"] += len(per_split) > 1
        first = group[0]
        other = next((one for one in group if one.truth.digest != first.truth.digest), None)
        if other is not None:
            what = truth.differs(first, other, names)
        else:
            others = (one for one in group if one.sample.id != first.sample.id)
            other = next((one for one in others if one.split != first.split), None)
            if other is None:
                continue
            what = (
                f"is in {first.split}, and the same picture {other.sample.id} is in {other.split}"
            )
        if len(group) > 2:
            what += f" ({len(group)} copies in all)"
        report.problems.append(Problem(first.sample.id, what, fatal=False))


def _leaks(report: CheckReport, groups: Iterable[Sequence[Inspected]]) -> Iterable[Problem]:
    """Splits that have pictures of another: what is measured on one was seen in the other."""
    found: dict[tuple[str, str], list[tuple[Inspected, Inspected]]] = defaultdict(list)
    for group in groups:
        first = {one.split: one for one in reversed(group)}
        for here, there in combinations([split for split in report.splits if split in first], 2):
            known = {one.sample.id for one in group if one.split == here}  # by their names
            found[here, there] += [
                (one, first[here])
                for one in group
                if one.split == there and one.sample.id not in known
            ]
    for (here, there), pairs in found.items():
        if not pairs:
            continue
        one, other = pairs[0]
        are = "is" if len(pairs) == 1 else "are"
        yield Problem(
            report.name,
            f"{len(pairs)} of the {report.splits[there]} images of {there} {are} in {here} too, as "
            f"{one.sample.id}, which is {other.sample.id}: what is measured on {there} is better "
            "than it will be on new images. Keep each picture in one split",
            fatal=False,
            leak=True,
        )


def listing(problems: Iterable[Problem]) -> Iterator[tuple[str, str]]:
    """The level and the text of each line. Problems are alike if they differ only in names and
    numbers."""
    groups: dict[str, dict[str, list[Problem]]] = {level: defaultdict(list) for level in SHOWN}
    for problem in problems:
        level = "leak" if problem.leak else "fatal" if problem.fatal else "note"
        groups[level][_PARTICULAR.sub("…", problem.what)].append(problem)
    for level, most in SHOWN.items():
        for alike in groups[level].values():
            shown = alike if len(alike) <= most + 1 else alike[:most]
            for problem in shown:
                yield level, f"{problem.file}: {problem.what}"
            if more := len(alike) - len(shown):
                yield level, f"… and {more:,} more like that"


# ---- every image is read once


def inspect_all(source: Source, check: TruthCheck, workers: int | None) -> list[Inspected]:
    """Every image in the order of the splits."""
    everything = [(split, s) for split, samples in source.splits.items() for s in samples]

    def look(one: tuple[str, Sample]) -> Inspected:
        return _inspect(source, check, *one)

    return in_threads(look, everything, f"looking at {source.name}", workers)


def _inspect(source: Source, check: TruthCheck, split: str, sample: Sample) -> Inspected:
    size = sum(map(_size, _files(source, sample).values()))
    try:
        image, full, pages = source.decode(sample, count_pages=True)
        truth = check.inspect(source, sample, full)
    except DataError as error:
        return Inspected(split, sample, _problem(source, sample, str(error)), bytes=size)
    channels, height, width = image.shape
    return Inspected(
        split,
        sample,
        shape=(channels, height, width),
        dtype=str(image.dtype).removeprefix("torch."),
        digest=digest_of(image),
        bytes=size,
        remarks=unread_pages_problem(sample.id, pages) + truth.remarks,
        truth=truth,
        thumbnail=_thumbnail(image) if check.thumbnails else None,
    )


def _files(source: Source, sample: Sample) -> dict[str, str]:
    """What a sample is read from, by the name that a problem has."""
    return source.files(sample) if isinstance(source, FileSource) else {}


def _problem(source: Source, sample: Sample, text: str) -> Problem:
    """An error with the name of the file that it begins with, as short as in the data."""
    name = sample.id
    for short, file in _files(source, sample).items():
        if text.startswith(f"{shown(file)}: "):
            name, text = short, text.removeprefix(f"{shown(file)}: ")
        text = text.replace(shown(file), short)
    return Problem(name, text)


def _thumbnail(image: Tensor) -> NDArray[np.float32]:
    """Means over the cells of a grid; the first channel is enough to tell images apart."""
    values = image[0].numpy() / np.float32(FULL_SCALE.get(image.dtype, 1.0))
    small = Image.fromarray(values).resize((THUMBNAIL, THUMBNAIL), Image.Resampling.BOX)
    return np.asarray(small)


def _size(file: str) -> int:
    try:
        return os.stat(file).st_size
    except (OSError, ValueError):  # it is reported when it is read
        return 0
