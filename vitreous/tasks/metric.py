"""What a metric means: its range, which way is better, and how its values are written; and the
threshold of a score that gives the largest F1."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

LEARNT = 0.97
"""The part of a metric's range from which on a few images are known by heart (`--overfit`)."""
USUAL = 0.5
"""A threshold where nothing is known."""
T = TypeVar("T", bound=Mapping[str, Any])


@dataclass(frozen=True)
class Metric:
    """A number of an evaluation. Unless given otherwise it is a share, of which more is better."""

    key: str
    """In the results of an evaluation."""
    name: str = ""
    """What people call it; the key, if not given."""
    range: tuple[float, float] = (0.0, 1.0)
    """The lowest and the highest value; `math.inf` where there is no end."""
    lower_is_better: bool = False
    unit: str = ""
    """Behind its values, if it is not a share: those are written in percent."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or self.key.replace("_", " "))

    @property
    def perfect(self) -> float:
        """The best value there is."""
        return self.range[0] if self.lower_is_better else self.range[1]

    def rank(self, value: float) -> float:
        """Larger where the value is better."""
        return -value if self.lower_is_better else value

    def better(self, value: float, other: float) -> bool:
        return self.rank(value) > self.rank(other)

    def clearly_better(self, value: Iterable[float], other: Iterable[float]) -> bool:
        """Whether an interval is better than another one, and has nothing in common with it."""
        (low, high), (least, most) = value, other
        return high < least if self.lower_is_better else low > most

    def best_of(self, results: Iterable[T]) -> T | None:
        """Of several results the best, and of equal ones the first."""
        known = (each for each in results if each.get(self.key) is not None)
        return max(known, key=lambda each: self.rank(each[self.key]), default=None)

    def is_perfect(self, value: float) -> bool:
        return abs(value - self.perfect) < 1e-9

    def is_learnt(self, value: float) -> bool | None:
        """Whether a few images are known by heart; None where the range does not tell."""
        return None if self.learnt is None else not self.better(self.learnt, value)

    @property
    def learnt(self) -> float | None:
        low, high = self.range
        part = 1 - LEARNT if self.lower_is_better else LEARNT
        return low + part * (high - low) if math.isfinite(high - low) else None

    def points(self, lost: Any, before: float) -> Any:
        """How much worse, in hundredths of the range; without an end to that, of the value before.
        `lost` is before minus after: a number, or a tensor of several."""
        low, high = self.range
        whole = high - low if math.isfinite(high - low) else abs(before) or 1.0
        return (-100 if self.lower_is_better else 100) * lost / whole

    def text(self, value: float) -> str:
        """12.3 %, and with another digit where there is little, 0.04 %; or 3.14 with the unit."""
        return f"{self._number(value)} {self._sign}".rstrip()

    def with_interval(self, value: float, limits: Iterable[float] | None) -> str:
        """98.3 % (95 % interval 96.9 to 99.4)"""
        if limits is None:
            return self.text(value)
        low, high = map(self._number, limits)
        return f"{self.text(value)} (95 % interval {low} to {high})"

    def difference_texts(self, *values: float) -> tuple[str, ...]:
        """Differences of values without their unit, all with as many digits: of shares in points,
        2.1, 0.4, 3.9."""
        if self._sign != "%":
            return tuple(f"{value:.3g}" for value in values)
        digits = 1 if all(abs(value) >= 1e-3 or not value for value in values) else 2
        return tuple(f"{round(100 * value, digits) + 0.0:.{digits}f}" for value in values)

    @property
    def difference_unit(self) -> str:
        """Behind those."""
        return "points" if self._sign == "%" else self.unit

    @property
    def _sign(self) -> str:
        return "%" if self.range == (0.0, 1.0) and not self.unit else self.unit

    def _number(self, value: float) -> str:
        if self._sign != "%":
            return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
        return f"{100 * value:.{1 if value >= 0.01 or not value else 2}f}"


def percent(value: float) -> str:
    """12.3 %, or 0.04 %"""
    return Metric("").text(value)


def best_threshold(scores: Tensor, right: Tensor, positives: int | None = None) -> float:
    """For predictions with scores (n,), of which some are `right` (n,); half-way to the next lower
    score. `positives`: how many there are to find, if not all of them are among the predictions.
    """
    positives = int(right.sum()) if positives is None else positives
    if not positives or not right.any():
        return USUAL
    order = scores.argsort(descending=True)
    ranked, true = scores[order].double(), right[order].double().cumsum(dim=0)
    predicted = torch.arange(1, len(ranked) + 1)
    f1 = 2 * true / (predicted + positives)
    below = torch.cat((ranked[1:], ranked.new_zeros(1)))
    f1[ranked == below] = -1.0  # equal scores are above a threshold together
    last = int(f1.argmax())
    return round(((ranked[last] + below[last]) / 2).item(), 4)
