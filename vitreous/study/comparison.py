"""What a comparison of runs has found, as records; `compare.py` makes them, and
`pages/comparison.py` draws them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vitreous.pages.words import Message, english
from vitreous.study.differing import FieldDifference
from vitreous.study.statistics import Difference
from vitreous.tasks.bootstrap import LEVEL, Intervals
from vitreous.tasks.metric import Metric
from vitreous.wording import counted

if TYPE_CHECKING:
    from vitreous.data.source import Sample, Source
    from vitreous.labels import LabelMap

Verdict = Literal["better", "worse", "none", "same", "unknown"]
LISTED = 8
"""Images on which runs disagree, in text."""


@dataclass(frozen=True)
class ComparedRun:
    """One run, and what is known of it by itself."""

    name: str
    path: str
    model: str
    engine: str
    precision: str
    image_size: tuple[int, int]
    parameters: int
    bytes: int
    """Of its file of weights, or of the exported file."""
    flops: int | None
    """Of one image, where they can be counted."""
    seed: int | None = None
    numbers: Mapping[str, float] = field(default_factory=dict)
    """The metrics that are compared, by key."""
    intervals: Intervals = field(default_factory=dict)
    images_seen: int | None = None
    """In training."""
    seconds: float | None = None
    cpu_seconds: float | None = None
    milliseconds: float | None = None
    """For one image, from the prepared image to the answer, in batches; the median of rounds in
    which all runs took turns."""


@dataclass(frozen=True)
class Contrast:
    """One run, or the runs of one recipe, against the baseline, by one metric."""

    run: str
    baseline: str
    metric: Metric
    difference: Difference | None
    """The run's value minus the baseline's; None: not known."""
    p: float | None
    """Corrected for several comparisons (Holm 1979)."""
    over: Literal["images", "seeds"]
    count: int
    """Of those."""

    @property
    def gain(self) -> tuple[float, float, float] | None:
        """By how much the run is better, with the ends of its interval, in the metric's unit."""
        found = self.difference
        if found is None:
            return None
        if self.metric.lower_is_better:
            return -found.mean, -found.high, -found.low
        return found.mean, found.low, found.high

    @property
    def verdict(self) -> Verdict:
        if self.gain is None or self.difference is None or self.p is None:
            return "unknown"
        mean, low, high = self.gain
        if not any((mean, low, high)):
            return "same"
        if not math.isfinite(low):
            return "unknown"
        if not self.difference.beyond_chance or self.p >= 1 - LEVEL:
            return "none"
        return "better" if mean > 0 else "worse"

    @property
    def message(self) -> Message:
        """A key of [compare] in the words of pages, and what is filled in."""
        verdict, names = self.verdict, [self.run, self.baseline]
        if self.gain is None:
            return ["notKnown", *names]
        if verdict == "same":
            return ["same", *names]
        mean, low, high = self.gain
        if verdict == "worse":
            mean, low, high = -mean, -high, -low
        unit = self.metric.difference_unit
        points = unit == "points"
        if verdict == "unknown":
            (text,) = self.metric.difference_texts(mean)
            numbers = [text]
        else:
            numbers = list(self.metric.difference_texts(mean, low, high))
        if verdict in ("none", "unknown") and mean > 0:
            numbers[0] = f"+{numbers[0]}"
        if not points:
            numbers[0] = f"{numbers[0]} {unit}".rstrip()
        return [f"{verdict}Points" if points else verdict, *names, *numbers]

    @property
    def p_text(self) -> str:
        """Empty where it says nothing."""
        if self.p is None or self.verdict not in ("better", "worse", "none"):
            return ""
        return "< 0.001" if self.p < 0.001 else f"= {self.p:.3f}"

    def __str__(self) -> str:
        """accuracy: b is better than a by 2.1 points (0.4 to 3.9), p = 0.012"""
        p = f", p {self.p_text}" if self.p_text else ""
        return f"{self.metric.name}: {english(self.message, 'compare')}{p}"

    def to_dict(self) -> dict[str, Any]:
        found = self.difference
        limits = (None, None) if found is None else (_finite(found.low), _finite(found.high))
        return {
            "run": self.run,
            "baseline": self.baseline,
            "metric": self.metric.key,
            "difference": None if found is None else found.mean,
            "interval": None if None in limits else list(limits),
            "p": self.p,
            "p_uncorrected": None if found is None else found.p,
            "over": self.over,
            "count": self.count,
            "verdict": self.verdict,
            "text": str(self),
        }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


@dataclass(frozen=True)
class Agreement:
    """How far the answers of a run and of the baseline are the same."""

    run: str
    baseline: str
    mean: float
    """From 0 to 1, over all images."""
    differ: int
    """Images whose answers differ."""
    kappa: float | None = None
    """Cohen's, where an image has one class."""
    only_run: int | None = None
    """Images on which the run alone is right, where an answer is right or wrong,"""
    only_baseline: int | None = None
    """and the baseline alone."""
    mcnemar: float | None = None
    """How likely these two numbers would be as different, if both were as often right."""


@dataclass(frozen=True)
class Disagreement:
    """One image to which a run gives another answer than the baseline."""

    image: str
    truth: str
    answers: tuple[str, ...]
    """Of each run."""
    scores: tuple[float | None, ...]
    """How good each answer is by itself, by the task's metric for single images."""
    conflict: float
    """How far answers differ, and how confidently, from 0 to 1."""
    sample: Sample = field(repr=False, compare=False)
    target: Any = field(repr=False, compare=False)
    results: tuple[Any, ...] = field(repr=False, compare=False)

    def to_dict(self, names: Sequence[str]) -> dict[str, Any]:
        return {
            "image": self.image,
            "truth": self.truth,
            "answers": dict(zip(names, self.answers, strict=True)),
            "scores": dict(zip(names, self.scores, strict=True)),
            "conflict": self.conflict,
        }


@dataclass(frozen=True)
class SeedGroup:
    """Runs of one recipe that differ in their seed alone."""

    name: str
    runs: tuple[str, ...]
    seeds: tuple[int, ...]
    values: Mapping[str, tuple[float, ...]]
    """Of each metric, by seed."""

    def mean(self, key: str) -> float:
        return sum(self.values[key]) / len(self.values[key])

    def spread(self, key: str) -> float | None:
        """The standard deviation over seeds."""
        count, mean = len(self.seeds), self.mean(key)
        if count < 2:
            return None
        return math.sqrt(sum((each - mean) ** 2 for each in self.values[key]) / (count - 1))


@dataclass(frozen=True)
class Comparison:
    """Several runs beside each other: what differs, which is better, and whether that is chance.

    The first metric is the one that decides. `str` is a summary, a notebook shows tables, and
    `save` writes a page."""

    task: str
    data: str
    split: str
    images: int
    runs: tuple[ComparedRun, ...]
    baseline: str
    """The name of a run; over seeds, of a group."""
    differences: tuple[FieldDifference, ...]
    metrics: tuple[Metric, ...] = ()
    contrasts: tuple[Contrast, ...] = ()
    """Of each metric, each run against the baseline."""
    curves: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)
    """By the name of the run, what training has measured on val: step, epoch, images, cpu_seconds,
    seconds, and the metric."""
    agreements: tuple[Agreement, ...] = ()
    disagreements: tuple[Disagreement, ...] = ()
    """The most confident first."""
    groups: tuple[SeedGroup, ...] = ()
    notes: tuple[str, ...] = ()
    """What could not be compared, and what to know."""
    source: Source | None = field(default=None, repr=False, compare=False)
    """Of the images on which runs disagree,"""
    labels: LabelMap | None = field(default=None, repr=False, compare=False)
    """and the classes of their ground truth."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(run.name for run in self.runs)

    @property
    def deciding(self) -> list[Contrast]:
        """By the metric that decides."""
        return [each for each in self.contrasts if each.metric == self.metrics[0]]

    @property
    def measured_on(self) -> str:
        images = counted(self.images, "image") if self.images else ""
        return ", ".join(filter(None, (self.data, self.split, images)))

    def __str__(self) -> str:
        lines = [self.measured_on]
        for run in self.runs:
            parts = [f"{run.parameters:,} parameters"]
            for metric in self.metrics[:1]:
                if metric.key in run.numbers:
                    limits = run.intervals.get(metric.key)
                    value = metric.with_interval(run.numbers[metric.key], limits)
                    parts.insert(0, f"{metric.name} {value}")
            lines.append(f"{run.name}: {', '.join(parts)}")
        lines += map(str, self.deciding)
        lines += [f"note: {each}" for each in self.notes]
        return "\n".join(filter(None, lines))

    def _repr_html_(self) -> str:
        from vitreous.pages.comparison import comparison_fragment

        return comparison_fragment(self)

    def save(self, path: str | Path) -> Path:
        """Write the page about it, one file that needs nothing else."""
        from vitreous.atomic_write import making_folder, write_text
        from vitreous.pages.comparison import comparison_page

        file = Path(path)
        with making_folder(file.parent):
            write_text(file, comparison_page(self))
        return file

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        names = self.names
        return {
            "task": self.task,
            "data": self.data,
            "split": self.split,
            "images": self.images,
            "baseline": self.baseline,
            "runs": [_run(run) for run in self.runs],
            "differences": [
                {
                    "part": each.part,
                    "field": each.field,
                    "values": dict(zip(names, each.values, strict=True)),
                }
                for each in self.differences
            ],
            "comparisons": [each.to_dict() for each in self.contrasts],
            "groups": [
                {**asdict(group), "mean": {key: group.mean(key) for key in group.values}}
                for group in self.groups
            ],
            "agreement": [asdict(each) for each in self.agreements],
            "disagreements": [each.to_dict(names) for each in self.disagreements],
            "curves": dict(self.curves),
            "notes": list(self.notes),
        }


def _run(run: ComparedRun) -> dict[str, Any]:
    """Metric names are keys, as in `evaluate`."""
    plain = asdict(run)
    numbers = plain.pop("numbers")
    return plain | numbers
