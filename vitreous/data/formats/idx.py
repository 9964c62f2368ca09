"""IDX files, as MNIST and Fashion-MNIST have: a folder with four well-known names, .gz or not.

Classes are named by their numbers, unless a names file is given. The images stay in memory; a copy
of the source in another process reads them again.
"""

from __future__ import annotations

import gzip
import math
import os
import re
import struct
import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vitreous.data.decode.images import shown
from vitreous.data.formats.builder import SourceBuilder
from vitreous.data.formats.names import with_names
from vitreous.data.source import Sample, Source
from vitreous.errors import DataError
from vitreous.labels import LabelMap
from vitreous.wording import counted

_FILE = re.compile(r"(train|t10k)-(images|labels)[-.]idx([13])-ubyte(\.gz)?", re.IGNORECASE)
_SPLITS = {"train": "train", "t10k": "test"}


@dataclass
class IdxSource(Source):
    """A sample's id is its file and its place there: `train/17`."""

    files: dict[str, str] = field(default_factory=dict, kw_only=True)
    _images: dict[str, NDArray[np.uint8]] = field(default_factory=dict, kw_only=True, repr=False)

    def image(self, sample: Sample) -> Tensor:
        split, _, place = sample.id.partition("/")
        if split not in self._images:
            self._images[split] = read_idx(self.files[split], dimensions=3)
        return torch.from_numpy(self._images[split][int(place)].copy())[None]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_images": {}}


def recognise(folder: str) -> bool:
    return bool(_find(folder))


def _find(folder: str) -> dict[tuple[str, str], str]:
    """(train or test, images or labels) -> file."""
    found: dict[tuple[str, str], str] = {}
    for name in sorted(os.listdir(folder), reverse=True):  # an unpacked one comes last and wins
        match = _FILE.fullmatch(name)
        if match and os.path.isfile(path := os.path.join(folder, name)):
            found[_SPLITS[match[1].lower()], match[2].lower()] = path
    return found


def read(builder: SourceBuilder) -> IdxSource:
    builder.check_folder()
    found = _find(builder.root)
    if not found:
        raise DataError(
            f"{builder.name}: no IDX files: looked for train-images-idx3-ubyte, "
            "train-labels-idx1-ubyte, t10k-… , each also with .gz"
        )
    images, targets = {}, {}
    for split in sorted({split for split, _ in found}):
        for what in ("images", "labels"):
            if (split, what) not in found:
                raise DataError(f"{builder.name}: the {what} of {split} are missing")
        images[split] = read_idx(found[split, "images"], dimensions=3)
        targets[split] = read_idx(found[split, "labels"], dimensions=1)
        if len(images[split]) != len(targets[split]):
            raise DataError(
                f"{shown(found[split, 'labels'])}: {counted(len(targets[split]), 'label')} for "
                f"{counted(len(images[split]), 'image')}"
            )
    labels = LabelMap.of_ids(id for ids in targets.values() for id in np.unique(ids).tolist())
    builder.number({split: ids.tolist() for split, ids in targets.items()}, labels)
    files = {split: found[split, "images"] for split in images}
    return builder.build(IdxSource, with_names(labels, builder.names), files=files, _images=images)


def read_idx(path: str, *, dimensions: int) -> NDArray[np.uint8]:
    """An IDX file: two zeros, the type (8: bytes), how many dimensions, their sizes, the values."""
    opener = gzip.open if path.lower().endswith(".gz") else open
    try:
        with opener(path, "rb") as file:
            head = file.read(4)
            if head != bytes((0, 0, 8, dimensions)):
                raise DataError(
                    f"{shown(path)}: is not an IDX file of bytes in {dimensions} dimensions "
                    f"(it begins with {head.hex(' ') or 'nothing'})"
                )
            shape = struct.unpack(f">{dimensions}I", file.read(4 * dimensions))
            size = math.prod(shape)
            values = file.read(size + 1)
    except (OSError, EOFError, struct.error, zlib.error) as error:
        raise DataError(f"{shown(path)}: cannot be read: {error}") from None
    if len(values) != size or not size:
        have = "more" if len(values) > size else f"{len(values):,}"
        sizes = "x".join(map(str, shape))
        raise DataError(f"{shown(path)}: its header says {sizes}, {size:,} bytes; it has {have}")
    return np.frombuffer(values, np.uint8).reshape(shape)
