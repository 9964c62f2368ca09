"""Confidence intervals by the bootstrap: how far a number moves when other images are drawn.

Images are drawn with replacement, as many as there are, and the metric is computed of each draw;
the middle 95 % of what it gives is the interval (Efron 1979, percentile). The draws are the same
every time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

RESAMPLES = 1000
LEVEL = 0.95
AT_ONCE = 1 << 22
"""Numbers of one block of draws."""
Interval = tuple[float, float]
"""Low, high."""
Intervals = dict[str, Interval]
"""By the name of the metric."""


def generator() -> np.random.Generator:
    return np.random.default_rng(0)


def draws(images: int, count: int = RESAMPLES) -> Iterator[np.ndarray]:
    """`count` times the images (images,), by number, that are drawn."""
    random = generator()
    for _ in range(count):
        yield random.integers(images, size=images)


def resampled(images: int, count: int = RESAMPLES) -> Iterator[Tensor]:
    """Blocks (draws, images): how often each image is in a draw. `count` draws in all."""
    block: list[np.ndarray] = []
    for left, drawn in zip(range(count - 1, -1, -1), draws(images, count), strict=True):
        block.append(np.bincount(drawn, minlength=images))
        if not left or (len(block) + 1) * images > AT_ONCE:
            yield torch.from_numpy(np.stack(block)).double()
            block = []


def differences(
    first: Iterable[dict[str, Tensor]], second: Iterable[dict[str, Tensor]], metric: str
) -> Tensor:
    """(draws,): a metric of one model minus that of another, on the same images in each draw; both
    as `TaskMetrics.resampled` gives them."""
    drawn = []
    for blocks in (first, second):
        found = [block[metric] for block in blocks if metric in block]
        drawn.append(torch.cat(found).double() if found else torch.zeros(0, dtype=torch.float64))
    count = min(map(len, drawn))  # the one with more boxes has fewer draws
    return drawn[0][:count] - drawn[1][:count]


def interval(values: Iterable[float] | Tensor) -> Interval | None:
    """The middle 95 % of what the draws gave; draws in which a metric is not defined (NaN) do not
    count. None if it never is."""
    given = np.asarray(values if isinstance(values, Tensor) else list(values), dtype=np.float64)
    known = given[np.isfinite(given)]
    if not len(known):
        return None
    low, high = np.quantile(known, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def intervals(blocks: Iterable[dict[str, Tensor]]) -> Intervals:
    """Of metrics by name, (draws,) in each block."""
    found: dict[str, list[Tensor]] = {}
    for block in blocks:
        for name, values in block.items():
            found.setdefault(name, []).append(values)
    limits = {name: interval(torch.cat(parts)) for name, parts in found.items()}
    return {name: each for name, each in limits.items() if each is not None}
