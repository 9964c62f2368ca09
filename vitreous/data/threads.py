"""Reads many files in threads: image decoders release Python's lock."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

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
            for part in _progress(pool.map(work, chunks), len(chunks), what):
                results += part
        finally:  # on Ctrl-C, drop what has not started
            pool.shutdown(cancel_futures=True)
    return results


def _progress(parts: Iterable[list[R]], total: int, what: str) -> Iterable[list[R]]:
    """A progress bar on stderr, if it is a terminal."""
    if not sys.stderr.isatty():
        return parts
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import track

    console = Console(stderr=True)
    return track(
        parts, escape(printable(what, one_line=True)), total=total, console=console, transient=True
    )
