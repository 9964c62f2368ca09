"""What is embedded: images with their names, and with labels and splits where the data has them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from vitreous.data.check.truth_check import digest_of
from vitreous.data.decode.images import read_image, shown
from vitreous.data.decode.pixels import MAX_PIXELS
from vitreous.data.formats.files import FileSource
from vitreous.data.source import Sample, Source

SEPARATOR = "; "
"""Between the labels of an image that has several."""
Stamp = tuple[int, int]
"""Tells whether an image is the one that was computed: size and time of change of a file, or two
numbers made from the pixels of what is no file."""


class Entry(NamedTuple):
    """One image."""

    name: str
    """Its path, or where it is none, such as digits/17."""
    label: str = ""
    """Its class; all of them, where it has several; empty where nothing is known."""
    split: str = ""
    file: str = ""
    """The real path."""
    sample: Sample | None = None
    """Where a source reads it."""


@dataclass
class Images:
    """Each of them once."""

    entries: Sequence[Entry]
    source: Source | None = None
    max_pixels: int = MAX_PIXELS
    stamps: dict[str, Stamp] = field(default_factory=dict, repr=False)
    """By name, of the images that were read."""

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def truth_kind(self) -> str:
        """class, labels …, or empty where nothing is known."""
        return "" if self.source is None else self.source.truth_kind

    def read(self, entry: Entry) -> tuple[Tensor, str]:
        """The image as it is stored, (c, h, w), and its name."""
        if entry.file:  # before it is read: a file that changes meanwhile has changed
            self.stamps[entry.name] = self.stamp(entry)
        if self.source is None or entry.sample is None:
            return read_image(entry.file, max_pixels=self.max_pixels), entry.name
        image = self.source.image(entry.sample)
        if not entry.file:
            digest = digest_of(image)
            self.stamps[entry.name] = (_number(digest[:8]), _number(digest[8:16]))
        return image, entry.name

    def stamp(self, entry: Entry) -> Stamp:
        """As it is now."""
        if not entry.file:
            self.read(entry)
            return self.stamps.pop(entry.name)
        try:
            found = os.stat(entry.file)
        except (OSError, ValueError):  # it is reported when it is read
            return (-1, -1)
        return (found.st_size, found.st_mtime_ns)

    def digest(self, entry: Entry) -> bytes:
        """Of the file's bytes, or of the pixels where there is no file."""
        if not entry.file:
            return digest_of(self.read(entry)[0])
        with open(entry.file, "rb") as file:
            return hashlib.file_digest(file, "sha256").digest()


def _number(part: bytes) -> int:
    return int.from_bytes(part, signed=True)


def of_paths(paths: Iterable[str | os.PathLike[str]], max_pixels: int = MAX_PIXELS) -> Images:
    files = dict.fromkeys(os.fspath(path) for path in paths)
    return Images([Entry(shown(file), file=file) for file in files], max_pixels=max_pixels)


def of_source(source: Source, splits: Sequence[str]) -> Images:
    """All images of these splits."""
    found = {entry.name: entry for split in splits for entry in _entries(source, split)}
    return Images(list(found.values()), source, source.max_pixels)


def _entries(source: Source, split: str) -> Iterator[Entry]:
    names = source.labels.names
    for sample in source.splits[split]:
        label = ""
        if source.truth_kind == "class":
            label = names[sample.target]
        elif source.truth_kind == "labels":
            label = SEPARATOR.join(names[number] for number in sample.target)
        if isinstance(source, FileSource):
            file = source.file(sample)
            yield Entry(shown(file), label, split, file, sample)
        else:
            yield Entry(f"{source.name}/{sample.id}", label, split, "", sample)
