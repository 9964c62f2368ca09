"""Decodes every image of a source once, in threads: decoders leave Python's lock."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import sys
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from vitreous.data.images import shown, unread_pages
from vitreous.data.preprocess import FULL_SCALE
from vitreous.data.source import Problem, Sample, Source
from vitreous.data.sources.files import FileSource
from vitreous.errors import DataError

_CHUNK = 64


@dataclass(frozen=True, slots=True)
class Seen:
    """What decoding one image has told."""

    split: str
    sample: Sample
    problem: Problem | None = None
    shape: tuple[int, int, int] = (0, 0, 0)
    dtype: str = ""
    digest: bytes = b""
    bytes: int = 0
    moments: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    """Per channel the mean and the mean of squares, in 0..1."""
    remark: Problem | None = None
    """Something that does not keep the image from being used."""


def look_at_all(
    source: Source, workers: int | None, max_pixels: int, statistics: frozenset[str] = frozenset()
) -> list[Seen]:
    """Every image in the order of the splits; of those in `statistics` the moments too."""
    if isinstance(source, FileSource):
        source = dataclasses.replace(source, max_pixels=max_pixels)
    everything = [(split, s) for split, samples in source.splits.items() for s in samples]
    chunks = [everything[i : i + _CHUNK] for i in range(0, len(everything), _CHUNK)]

    def look(chunk: Sequence[tuple[str, Sample]]) -> list[Seen]:
        return [_look_at(source, split, s, s.id in statistics) for split, s in chunk]

    seen: list[Seen] = []
    pool = ThreadPoolExecutor(workers or min(8, os.cpu_count() or 1))
    with warnings.catch_warnings():
        # Pillow's remarks name no file; what matters in them is found and said here.
        warnings.filterwarnings("ignore", module=r"PIL\.")
        try:
            for part in _progress(pool.map(look, chunks), len(everything), source.name):
                seen += part
        finally:  # Ctrl-C does not wait for all that has not begun
            pool.shutdown(cancel_futures=True)
    return seen


def _look_at(source: Source, split: str, sample: Sample, statistics: bool) -> Seen:
    file = source.file(sample) if isinstance(source, FileSource) else None
    size = _size(file) if file is not None else 0
    try:
        image = source.image(sample)
    except DataError as error:
        what = str(error).removeprefix(f"{shown(file)}: ") if file is not None else str(error)
        return Seen(split, sample, Problem(sample.id, what), bytes=size)
    channels, height, width = image.shape
    dtype = str(image.dtype).removeprefix("torch.")
    digest = hashlib.sha256(f"{channels} {height} {width} {dtype}".encode())
    digest.update(image.contiguous().numpy().data)
    moments = _moments(image) if statistics else None
    shape = (channels, height, width)
    remark = _remark(file, sample) if file is not None else None
    return Seen(split, sample, None, shape, dtype, digest.digest(), size, moments, remark)


def _remark(file: str, sample: Sample) -> Problem | None:
    pages = unread_pages(file)
    what = f"has {pages} pages; only the first is read"
    return Problem(sample.id, what, fatal=False) if pages else None


def _moments(image: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    # in numpy: torch would start threads of its own inside each of ours
    values = image.flatten(1).numpy() / np.float64(FULL_SCALE.get(image.dtype, 1.0))
    square = np.einsum("cn,cn->c", values, values) / values.shape[1]
    return tuple(values.mean(axis=1).tolist()), tuple(square.tolist())


def _size(file: str) -> int:
    try:
        return os.stat(file).st_size
    except OSError:
        return 0


def _progress(parts: Iterable[list[Seen]], total: int, name: str) -> Iterable[list[Seen]]:
    """A bar on stderr, where somebody can see it."""
    if not sys.stderr.isatty():
        yield from parts
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"looking at {escape(name)}", total=total)
        for part in parts:
            bar.advance(task, len(part))
            yield part
