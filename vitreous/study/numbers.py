"""What the runs of a study gave, by variant, value of the axis and seed; and how two differ.

Differences are in the unit in which people read a number: points (hundredths) of a share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import torch

from vitreous.study.spec import BEYOND, ENDS, Axis, Study, text_of
from vitreous.study.statistics import Difference, difference, of_draws
from vitreous.tasks.bootstrap import interval
from vitreous.tasks.metric import Metric

COSTS = {
    "parameters": Metric("parameters", range=(0, math.inf), lower_is_better=True),
    "flops": Metric("flops", "GFLOP per image", (0, math.inf), True, "GFLOP"),
    "training_cpu_seconds": Metric("training_cpu_seconds", "CPU s", (0, math.inf), True, "s"),
}
"""Numbers of every run besides its metrics."""
EXACT = ("parameters", "flops")
"""They are the same whatever the seed."""
INSIDE = {
    "attention-distance": Metric("attention-distance", range=(0, math.inf), unit="pixels"),
    "high-norm": Metric("high-norm", "high-norm patches", lower_is_better=True),
    "ap": Metric("ap", "AP"),
    "ap-nms": Metric("ap-nms", "AP with NMS"),
    "nms-gain": Metric("nms-gain", "AP that NMS brings"),
    "deletion": Metric("deletion", "deletion score", lower_is_better=True),
    "insertion": Metric("insertion", "insertion score"),
}
"""Numbers of `measures.py`."""
Series = Sequence[tuple[float | str, float]]


@dataclass
class Point:
    """One variant at one value of the axis."""

    variant: str
    value: Any = None
    lr: float | None = None
    tried: dict[float, float | None] = field(default_factory=dict)
    """Learning rates, and the best value on validation images that each gave; None: it failed."""
    numbers: dict[str, dict[int, float]] = field(default_factory=dict)
    """By name, by seed."""
    series: dict[str, dict[int, Series]] = field(default_factory=dict)
    """Numbers with an axis of their own."""
    draws: dict[str, dict[int, list[float]]] = field(default_factory=dict)
    """Main numbers of other draws of the test images, by name, by seed."""
    runs: dict[int, str] = field(default_factory=dict)
    """Their folders."""
    on: str = ""
    """The number of which this point is one place of a series."""

    @property
    def at(self) -> str:
        """The value of the axis in words."""
        return "" if self.value is None else text_of(self.value)

    def of(self, name: str) -> dict[int, float]:
        return self.numbers.get(name, {})

    def mean(self, name: str) -> float | None:
        values = list(self.of(name).values())
        return sum(values) / len(values) if values else None

    def interval(
        self, name: str, within: tuple[float, float] = (-math.inf, math.inf)
    ) -> tuple[float, float] | None:
        """95 %: over seeds, or with one seed over the test images; within the range that the number
        may have. None where nothing tells."""
        values = self.of(name)
        if name in EXACT or not values:
            return None
        if len(values) > 1:
            found = difference(list(values.values()), [0.0] * len(values))
            least, most = within
            return max(found.low, least), min(found.high, most)
        (seed,) = values
        return interval(self.draws.get(name, {}).get(seed, []))


class Numbers:
    """All points of a study."""

    def __init__(self, study: Study, metric: Metric, others: Sequence[Metric], points: list[Point]):
        self.study, self.metric, self.points = study, metric, points
        self.known = {**COSTS, **INSIDE, **{each.key: each for each in (*others, metric)}}

    @property
    def axis(self) -> Axis | None:
        return self.study.axis

    def metric_of(self, on: str) -> Metric:
        """How a number is read; one that nobody knows is a number without an end."""
        name = on or self.study.metric or self.metric.key
        return self.known.get(name, Metric(name, range=(-math.inf, math.inf)))

    def at(self, written: str, at: Any = None, on: str = "") -> Point | None:
        """`vit@0.1`: the point of a variant at a value of the axis, the last one unless given. Of a
        number with an axis of its own, a place of that."""
        name, _, value = written.partition(BEYOND)
        wanted = value or (None if at is None else text_of(at))
        points = [each for each in self.points if each.variant == name]
        if on and any(on in each.series for each in points):
            points = [place for each in points[-1:] for place in _places(each, on)]
        if wanted is not None and wanted not in ENDS:
            points = [each for each in points if text_of(each.value) == wanted]
        return (points[0] if wanted == ENDS[0] else points[-1]) if points else None

    def along(self, name: str, on: str = "") -> list[Point]:
        """The points of a variant, from the first value of the axis to the last."""
        points = [each for each in self.points if each.variant == name]
        if on and any(on in each.series for each in points):
            return [place for each in points[-1:] for place in _places(each, on)]
        return points

    def difference(self, a: Point | None, b: Point | None, on: str = "") -> Difference | None:
        """a minus b, in the unit in which the number is read; None where one of them has none."""
        name = self.metric_of(on).key
        if a is None or b is None:
            return None
        first, second = a.of(name), b.of(name)
        seeds = sorted(first.keys() & second.keys())
        if not seeds:
            return None
        if name in EXACT:
            apart = first[seeds[0]] - second[seeds[0]]
            found = Difference(apart, apart, apart, 0.0 if apart else 1.0)
        elif len(seeds) > 1:
            found = difference([first[s] for s in seeds], [second[s] for s in seeds])
        else:
            found = self._by_images(a, b, seeds[0], name)
        return scaled(found, self.scale(name))

    def scale(self, on: str) -> float:
        """From a share to points."""
        return 100.0 if self.unit(on) == "points" else 1.0

    def unit(self, on: str) -> str:
        """Of a difference."""
        return self.metric_of(on).difference_unit

    def _by_images(self, a: Point, b: Point, seed: int, name: str) -> Difference:
        """Of one run each: how far chance in the choice of the test images goes."""
        mean = a.of(name)[seed] - b.of(name)[seed]
        first, second = (torch.tensor(p.draws.get(name, {}).get(seed, [])) for p in (a, b))
        count = min(len(first), len(second))
        found = of_draws(mean, (first[:count] - second[:count]).double())
        return found or Difference(mean, -math.inf, math.inf)


def _places(point: Point, on: str) -> list[Point]:
    """Each place of a series as a point."""
    found: dict[float | str, Point] = {}
    for seed, series in point.series.get(on, {}).items():
        for x, y in series:
            place = found.setdefault(x, Point(point.variant, x, runs=point.runs, on=on))
            place.numbers.setdefault(on, {})[seed] = y
    return list(found.values())


def scaled(found: Difference, factor: float) -> Difference:
    low, high = sorted((found.low * factor, found.high * factor))
    return Difference(found.mean * factor, low, high, found.p)


def flipped(found: Difference) -> Difference:
    return scaled(found, -1.0)


def as_mapping(point: Point) -> Mapping[str, Any]:
    """For study.json."""
    return {
        "variant": point.variant,
        "value": list(point.value) if isinstance(point.value, tuple) else point.value,
        "lr": point.lr,
        "tried": [{"lr": lr, "val": value} for lr, value in point.tried.items()],
        "numbers": {
            name: {
                "mean": point.mean(name),
                "interval": None if (i := point.interval(name)) is None else list(i),
                "by_seed": {str(seed): value for seed, value in values.items()},
            }
            for name, values in point.numbers.items()
        },
        "series": {
            name: {str(seed): [list(pair) for pair in values] for seed, values in found.items()}
            for name, found in point.series.items()
        },
        "runs": {str(seed): f"runs/{name}" for seed, name in point.runs.items()},
    }


def from_mapping(found: Mapping[str, Any]) -> Point:
    """And back; the draws of single runs are not in study.json."""
    value = found["value"]
    return Point(
        found["variant"],
        tuple(value) if isinstance(value, list) else value,
        found["lr"],
        {each["lr"]: each["val"] for each in found["tried"]},
        {
            name: {int(seed): number for seed, number in about["by_seed"].items()}
            for name, about in found["numbers"].items()
        },
        {
            name: {int(seed): [(x, y) for x, y in pairs] for seed, pairs in by_seed.items()}
            for name, by_seed in found["series"].items()
        },
        runs={int(seed): PurePosixPath(folder).name for seed, folder in found["runs"].items()},
    )
