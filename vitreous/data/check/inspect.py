"""Decodes every image of a source once, and looks at its mask or boxes where it has some."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from vitreous.data.decode.images import shown, unread_pages
from vitreous.data.formats.box_source import BoxSource
from vitreous.data.formats.files import FileSource
from vitreous.data.preprocess import FULL_SCALE
from vitreous.data.source import Problem, Sample, Source
from vitreous.data.threads import in_threads
from vitreous.errors import DataError

THUMBNAIL = 16


@dataclass(frozen=True, slots=True)
class SeenMask:
    """What decoding one mask has told."""

    digest: bytes
    pixels: NDArray[np.int64]
    """Of each class."""
    ignored: int
    lone: int
    """Pixels that are unlike all four around them."""


@dataclass(frozen=True, slots=True)
class SeenBoxes:
    """What the boxes of one image have told."""

    digest: bytes
    boxes: NDArray[np.float32]
    """(n, 4): left, top, right, bottom in pixels."""
    labels: NDArray[np.int64]
    crowd: NDArray[np.bool_]
    names: tuple[str, ...]
    records: tuple[str, ...]
    """What problems call each of them, and the same with its file."""
    cut: int
    """Boxes that reached over the edge of the image."""


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
    remarks: tuple[Problem, ...] = ()
    """What does not keep the image from being used."""
    mask: SeenMask | None = None
    boxes: SeenBoxes | None = None
    thumbnail: NDArray[np.float32] | None = None
    """(16, 16) in 0..1: what shows whether two images look alike. Not where classes are told."""


def look_at_all(
    source: Source, workers: int | None, max_pixels: int, statistics: frozenset[str] = frozenset()
) -> list[Seen]:
    """Every image in the order of the splits; of those in `statistics` the moments too."""
    if isinstance(source, FileSource):
        source = dataclasses.replace(source, max_pixels=max_pixels)
    everything = [(split, s) for split, samples in source.splits.items() for s in samples]

    def look(one: tuple[str, Sample]) -> Seen:
        return _look_at(source, *one, one[1].id in statistics)

    return in_threads(look, everything, f"looking at {source.name}", workers)


def _look_at(source: Source, split: str, sample: Sample, statistics: bool) -> Seen:
    size = sum(map(_size, _files(source, sample).values()))
    try:
        image = source.image(sample)
        mask, boxes, remarks = None, None, _remarks(source, sample)
        if source.truth_kind == "mask":
            mask = _seen_mask(source.truth(sample), len(source.labels))
        if source.truth_kind == "boxes":
            boxes, cut_off = _seen_boxes(source, sample)
            remarks += cut_off
    except DataError as error:
        return Seen(split, sample, _problem(source, sample, str(error)), bytes=size)
    channels, height, width = image.shape
    dtype = str(image.dtype).removeprefix("torch.")
    return Seen(
        split,
        sample,
        shape=(channels, height, width),
        dtype=dtype,
        digest=_digest(image),
        bytes=size,
        moments=_moments(image) if statistics else None,
        remarks=remarks,
        mask=mask,
        boxes=boxes,
        thumbnail=None if source.truth_kind == "class" else _thumbnail(image),
    )


def _files(source: Source, sample: Sample) -> dict[str, str]:
    """What a sample is read from, by the name that a problem has."""
    return source.files(sample) if isinstance(source, FileSource) else {}


def _problem(source: Source, sample: Sample, text: str) -> Problem:
    """An error with the name of the file that it begins with, as short as in the data."""
    name = sample.id
    for short, file in _files(source, sample).items():
        if text.startswith(f"{shown(file)}: "):
            name, text = short, text.removeprefix(f"{shown(file)}: ")
        text = text.replace(shown(file), short)
    return Problem(name, text)


def _remarks(source: Source, sample: Sample) -> tuple[Problem, ...]:
    counts = {name: unread_pages(file) for name, file in _files(source, sample).items()}
    return tuple(
        Problem(name, f"has {count} pages; only the first is read", fatal=False)
        for name, count in counts.items()
        if count
    )


def _digest(values: Tensor) -> bytes:
    shape = " ".join(map(str, values.shape))
    digest = hashlib.sha256(f"{shape} {values.dtype}".encode())
    digest.update(values.contiguous().numpy().data)
    return digest.digest()


def _seen_mask(mask: Tensor, classes: int) -> SeenMask:
    values = mask.numpy()
    counts = np.bincount(values.ravel() + 1, minlength=classes + 1)
    return SeenMask(
        digest=_digest(mask),
        pixels=counts[1:],
        ignored=int(counts[0]),
        lone=_lone(values),
    )


def _seen_boxes(source: Source, sample: Sample) -> tuple[SeenBoxes, tuple[Problem, ...]]:
    if isinstance(source, BoxSource):
        placed = source.placed(sample)
        truth, cut = placed.truth, sum(far > 0 for far in placed.over)
        names = [box.name for box in source.objects[sample.id]]
        records = [source.record(sample, name) for name in names]
        problems = tuple(source.cut_off(sample, placed))
    else:
        truth, cut, problems = source.truth(sample), 0, ()
        names = [f"object {number + 1}" for number in range(len(truth["labels"]))]
        records = [f"{sample.id}, {name}" for name in names]
    seen = SeenBoxes(
        digest=b"".join(_digest(truth[name]) for name in ("boxes", "labels", "crowd")),
        boxes=truth["boxes"].numpy(),
        labels=truth["labels"].numpy(),
        crowd=truth["crowd"].numpy(),
        names=tuple(names),
        records=tuple(records),
        cut=cut,
    )
    return seen, problems


def _lone(mask: NDArray[np.int16]) -> int:
    """How many pixels are unlike all four around them; what is outside is unlike."""
    lone = np.ones(mask.shape, bool)
    rows = mask[1:] != mask[:-1]
    columns = mask[:, 1:] != mask[:, :-1]
    lone[1:] &= rows
    lone[:-1] &= rows
    lone[:, 1:] &= columns
    lone[:, :-1] &= columns
    return int(lone.sum())


def _thumbnail(image: Tensor) -> NDArray[np.float32]:
    """Means over the cells of a grid; the first channel is enough to tell images apart."""
    values = image[0].numpy() / np.float32(FULL_SCALE.get(image.dtype, 1.0))
    for axis in (0, 1):
        edges = np.arange(THUMBNAIL) * values.shape[axis] // THUMBNAIL
        cells = np.diff(np.append(edges, values.shape[axis]))
        sums = np.add.reduceat(values, edges, axis=axis)
        values = sums / np.expand_dims(np.maximum(cells, 1), 1 - axis).astype(np.float32)
    return values.astype(np.float32)


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
