"""Reads every image of a source once, and its ground truth."""

from __future__ import annotations

import hashlib
import os

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from vitreous.data.check.truth_check import Inspected, TruthCheck
from vitreous.data.decode.images import shown
from vitreous.data.formats.files import FileSource
from vitreous.data.preprocess import FULL_SCALE
from vitreous.data.source import Problem, Sample, Source, unread_pages_problem
from vitreous.data.threads import in_threads
from vitreous.errors import DataError

THUMBNAIL = 16


def inspect_all(source: Source, check: TruthCheck, workers: int | None) -> list[Inspected]:
    """Every image in the order of the splits."""
    everything = [(split, s) for split, samples in source.splits.items() for s in samples]

    def look(one: tuple[str, Sample]) -> Inspected:
        return _inspect(source, check, *one)

    return in_threads(look, everything, f"looking at {source.name}", workers)


def _inspect(source: Source, check: TruthCheck, split: str, sample: Sample) -> Inspected:
    size = sum(map(_size, _files(source, sample).values()))
    try:
        image, full, pages = source.decode(sample, count_pages=True)
        truth = check.inspect(source, sample, full)
    except DataError as error:
        return Inspected(split, sample, _problem(source, sample, str(error)), bytes=size)
    channels, height, width = image.shape
    return Inspected(
        split,
        sample,
        shape=(channels, height, width),
        dtype=str(image.dtype).removeprefix("torch."),
        digest=digest_of(image),
        bytes=size,
        remarks=unread_pages_problem(sample.id, pages) + truth.remarks,
        truth=truth,
        thumbnail=_thumbnail(image) if check.thumbnails else None,
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


def digest_of(values: Tensor) -> bytes:
    shape = " ".join(map(str, values.shape))
    digest = hashlib.sha256(f"{shape} {values.dtype}".encode())
    digest.update(values.contiguous().numpy().data)
    return digest.digest()


def _thumbnail(image: Tensor) -> NDArray[np.float32]:
    """Means over the cells of a grid; the first channel is enough to tell images apart."""
    values = image[0].numpy() / np.float32(FULL_SCALE.get(image.dtype, 1.0))
    small = Image.fromarray(values).resize((THUMBNAIL, THUMBNAIL), Image.Resampling.BOX)
    return np.asarray(small)


def _size(file: str) -> int:
    try:
        return os.stat(file).st_size
    except (OSError, ValueError):  # it is reported when it is read
        return 0
