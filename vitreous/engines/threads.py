"""How many threads torch computes with, for one engine and nobody else."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

R = TypeVar("R")


class TorchThreads:
    """Calls functions that compute with `count` threads, or without one as everybody else.

    torch counts its threads for each thread that calls it, and gives new ones what was set last. So
    the functions run in a thread of their own, and the number of all others stays what it is. Calls
    from several threads take turns.
    """

    def __init__(self, count: int | None = None) -> None:
        self._pool = None
        if count is None:
            return
        before = torch.get_num_threads()
        self._pool = ThreadPoolExecutor(1, "vitreous-torch")
        self._pool.submit(torch.get_num_threads).result()  # a thread begins with what is usual
        self._pool.submit(torch.set_num_threads, count).result()
        torch.set_num_threads(before)  # what new threads take

    def __call__(self, function: Callable[..., R], *given: object) -> R:
        if self._pool is None:
            return function(*given)
        return self._pool.submit(function, *given).result()
