"""A run that is to end in a given time (`--time`).

How many steps fit into it is planned again and again, by what steps and evaluations have taken so
far: machines become slower and faster, and the first steps say little. Everything counts: start-up,
evaluations, checkpoints, the report, and what a killed run had spent before it was resumed.
"""

from __future__ import annotations

import bisect
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

AIM = 0.95
"""The part of the time that is planned for: what cannot be foreseen makes a run longer."""
AGAIN = 0.04
"""After which part of the time a plan is made again, if no epoch ends before."""
REMEMBERED = 0.1
"""Over which part of the time steps are averaged: long enough for chance, short enough to notice
that the machine has another speed now."""
ROUNDED = 0.02
"""Which part of the time may be left unused, so that a run ends with an epoch."""
REPORT = 5.0
"""Seconds that a report takes besides its evaluations: pictures, charts, baselines."""
FEW_STEPS = 8
"""Before so many a plan is a guess, and not logged,"""
NEWS = 0.2
"""and afterwards, if it has changed by this fraction."""


@dataclass
class TimeBudget:
    """The steps that fit into a time, by the clock."""

    seconds: float
    began: float
    clock: Callable[[], float] = time.perf_counter
    before: float = 0.0
    """Seconds that were spent before this session, by a run that is resumed."""
    report_images: int = 0
    """Predictions that the report needs, of images or of windows,"""
    checked_images: int = 1
    """and those of one evaluation."""
    check: float | None = None
    """Seconds that an evaluation takes."""

    def __post_init__(self) -> None:
        self._first: int | None = None
        """The step that this session began at,"""
        self._last = (0, 0.0)
        """the step and the moment of the last plan, moved by the evaluations since,"""
        self._steps = self._seconds = 0.0
        """and the last steps and their seconds, the recent ones weighted most."""
        self._told = 0
        """Steps of the last plan that was logged."""

    def spent(self) -> float:
        return self.before + self.clock() - self.began

    def start(self, step: int) -> None:
        """The first step of this session follows."""
        self._first, self._last = step, (step, self.clock())

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        """Around one."""
        since = self.clock()
        yield
        self.check = self.clock() - since
        self._last = self._last[0], self._last[1] + self.check

    def due(self, step: int, per_epoch: int) -> bool:
        """Whether it is time for another plan: after 1, 2, 4, 8 … steps, since at first nothing is
        known; after each epoch; and after some time, where epochs are long."""
        assert self._first is not None
        taken = step - self._first
        doubled = taken & (taken - 1) == 0
        late = self.clock() - self._last[1] >= AGAIN * self.seconds
        return doubled or late or step % per_epoch <= 1

    def plan(self, step: int, per_epoch: int) -> int:
        """How many steps the run takes in all; not more than `step` if the time is over."""
        per_step = self._seconds_per_step(step)
        check = self.check or 0.0
        behind = REPORT + check / self.checked_images * self.report_images
        left = AIM * self.seconds - behind - self.spent()

        def needed(last: int) -> float:
            # An evaluation ends each epoch and the run; one that ends here is still to come.
            evaluations = -(-last // per_epoch) - (step - 1) // per_epoch
            return (last - step) * per_step + evaluations * check

        if left < needed(step + 1):
            return step
        most = step + int(left / per_step) + 1
        last = step + bisect.bisect_right(range(step + 1, most + 1), left, key=needed)
        whole = last - last % per_epoch
        unused = (last - whole) * per_step
        return whole if whole > step and unused <= ROUNDED * self.seconds else last

    def _seconds_per_step(self, step: int) -> float:
        """Of the last steps, those since the last plan included."""
        (last, since), now = self._last, self.clock()
        if step > last:
            weight = 1e-3 if last == self._first else 1.0  # the first is slower than all others
            kept = math.exp(-(now - since) / (REMEMBERED * self.seconds))
            self._steps = kept * self._steps + weight * (step - last)
            self._seconds = kept * self._seconds + weight * (now - since)
            self._last = step, now
        return max(self._seconds / self._steps, 1e-9)

    def is_news(self, step: int, steps: int) -> bool:
        """Whether a plan differs from what was logged, once some steps are behind it."""
        assert self._first is not None
        known = step - self._first >= FEW_STEPS or self.spent() >= AGAIN * self.seconds
        if not known or abs(steps - self._told) <= NEWS * self._told:
            return False
        self._told = steps
        return True
