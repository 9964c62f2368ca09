"""Reads many files in threads: image decoders release Python's lock."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from vitreous.progress import CountProgress
from vitreous.terminal import printable

T = TypeVar("T")
R = TypeVar("R")

_CHUNK = 64


def in_threads(
    function: Callable[[T], R], items: Sequence[T], what: str, workers: int | None = None
) -> list[R]:
    """`function(item)` for each item, in their order; `what` is shown beside the progress bar."""
    chunks = [items[i : i + _CHUNK] for i in range(0, len(items), _CHUNK)]

    def work(chunk: Sequence[T]) -> list[R]:
        return [function(item) for item in chunk]

    results: list[R] = []
    pool = ThreadPoolExecutor(workers or min(8, os.cpu_count() or 1))
    with warnings.catch_warnings():
        # Pillow's warnings name no file; the data check reports what matters in them.
        warnings.filterwarnings("ignore", module=r"PIL\.")
        try:
            title = printable(what, one_line=True)
            with CountProgress(len(items), title=title, visible=True) as progress:
                for part in pool.map(work, chunks):
                    results += part
                    progress.add(len(part))
        finally:  # on Ctrl-C, drop what has not started
            pool.shutdown(cancel_futures=True)
    return results
