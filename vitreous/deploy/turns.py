"""Timing several pieces of work beside each other."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

K = TypeVar("K")


def take_turns(
    works: Mapping[K, Callable[[], Any]], rounds: int, *, pause: float = 0.0
) -> dict[K, list[float]]:
    """Seconds of each work in each round, without a first one that warms up. All take turns, so
    that other work on the machine slows all of them; `pause` lies before each."""
    taken: dict[K, list[float]] = {name: [] for name in works}
    for _ in range(rounds + 1):
        for name, work in works.items():
            time.sleep(pause)
            began = time.perf_counter()
            work()
            taken[name].append(time.perf_counter() - began)
    return {name: each[1:] for name, each in taken.items()}
