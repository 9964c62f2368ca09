"""Is a difference more than chance? For runs over several seeds, and for two models on the same
images.

Every difference is a minus b, in the unit of the metric, with its 95 % interval and a two-sided
p-value.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from vitreous.tasks.bootstrap import LEVEL, differences, interval
from vitreous.tasks.task import TaskMetrics


@dataclass(frozen=True)
class Difference:
    """a minus b. Without an interval (`low` and `high` infinite) nothing is known beyond chance."""

    mean: float
    low: float
    high: float
    p: float = 1.0
    """How likely a difference as large would be, if there were none."""

    @property
    def beyond_chance(self) -> bool:
        return self.low > 0 or self.high < 0


def difference(a: ArrayLike, b: ArrayLike) -> Difference:
    """Of values in pairs, such as a metric by seed: Student's t interval of the mean difference.

    One pair says nothing about chance: its interval has no ends.
    """
    first, second = (np.asarray(values, dtype=np.float64) for values in (a, b))
    if first.ndim != 1 or first.shape != second.shape or not len(first):
        raise ValueError(f"expected two lists of equal length, not {first.shape}, {second.shape}")
    apart = first - second
    mean, count = float(apart.mean()), len(apart)
    if count == 1:
        return Difference(mean, -math.inf, math.inf)
    from scipy.stats import t

    error = float(apart.std(ddof=1)) / math.sqrt(count)
    if not error:  # all pairs differ by the same
        return Difference(mean, mean, mean, 0.0 if mean else 1.0)
    half = float(t.ppf((1 + LEVEL) / 2, count - 1)) * error
    p = 2 * float(t.sf(abs(mean) / error, count - 1))
    return Difference(mean, mean - half, mean + half, p)


def paired_bootstrap(a: TaskMetrics, b: TaskMetrics, metric: str) -> Difference | None:
    """Of two models on the same images, which their metrics have seen in the same order: in each
    draw of images both metrics are computed anew, and the middle 95 % of their differences are the
    interval. None where the metrics keep too little of single images for that, or are not known."""
    values = [each.compute(each.counts())[metric] for each in (a, b)]
    if None in values:
        return None
    return of_draws(values[0] - values[1], differences(a.resampled(), b.resampled(), metric))


def of_draws(apart: float, draws: Tensor) -> Difference | None:
    """The same of a difference, and of what it is in each draw of images; those in which the metric
    is not defined do not count."""
    drawn = draws.numpy()
    drawn = drawn[np.isfinite(drawn)]
    limits = interval(drawn)
    if limits is None:
        return None
    fewer = min(int((drawn <= 0).sum()), int((drawn >= 0).sum()))
    # the data as it is counts as one draw, so that p is never 0 (Davison and Hinkley 1997, 4.2)
    p = min(2 * (fewer + 1) / (len(drawn) + 1), 1.0)
    return Difference(apart, *limits, p)


def mcnemar(only_a: int, only_b: int) -> float:
    """The exact test of McNemar (1947): images on which only a, and only b, is right -> p."""
    from scipy.stats import binom

    total = only_a + only_b
    return min(2 * float(binom.cdf(min(only_a, only_b), total, 0.5)), 1.0) if total else 1.0


def holm(p: Sequence[float]) -> list[float]:
    """The p-values of several comparisons, each corrected for there being several (Holm 1979)."""
    order = sorted(range(len(p)), key=lambda i: p[i])
    corrected, largest = [1.0] * len(p), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min((len(p) - rank) * p[i], 1.0))
        corrected[i] = largest
    return corrected


def kappa(a: Sequence[Hashable], b: Sequence[Hashable]) -> float | None:
    """Cohen's (1960): how far two models agree on the class of images, beyond the agreement that
    their frequencies of classes alone would give. None where those alone give all of it."""
    if len(a) != len(b) or not a:
        raise ValueError(f"expected two lists of equal length, not {len(a)} and {len(b)}")
    same = sum(one == other for one, other in zip(a, b, strict=True)) / len(a)
    ours, theirs = Counter(a), Counter(b)
    chance = sum(count * theirs[name] for name, count in ours.items()) / len(a) ** 2
    return None if chance == 1 else (same - chance) / (1 - chance)
