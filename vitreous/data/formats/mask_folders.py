"""Images and their masks in two folders, `train/images/1.jpg` and `train/masks/1.png`, or in one,
`1.jpg` and `1_mask.png`.

Data sets lay the folders out in several ways, see `pairing.py`. A names file (`names.py`), given or
found in the folder, defines what a value of a mask means. Without one, every mask is read to
collect its values; none of them is taken for background or for unlabelled.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from vitreous.data.decode.images import displayed_size, shown
from vitreous.data.decode.masks import Mask, in_colour, read_mask, to_classes
from vitreous.data.decode.pixels import ImageSize
from vitreous.data.formats.builder import SourceBuilder
from vitreous.data.formats.files import FileSource
from vitreous.data.formats.names import Names, mask_labels
from vitreous.data.formats.pairing import MASKS, Pairing, find_pairs
from vitreous.data.source import CheckedTruth, Sample, unread_pages_problem
from vitreous.data.threads import in_threads
from vitreous.errors import DataError, Word, advice
from vitreous.labels import LabelMap
from vitreous.wording import counted

NAMES_FILES = (
    *("classes.json", "names.json", "labels.json"),
    *("classes.txt", "label_colors.txt", "class_dict.csv"),
)
UNLABELLED = (255, 65535)
"""Values that most data sets use for unlabelled pixels, and some for a class."""

MOST_CLASSES = 32767
"""That fit into the 16 bits of a mask in memory."""

_SHOWN = 4  # values in an example
_LISTS = os.path.join("ImageSets", "Segmentation")
_LAYOUTS = (
    "train/images + train/masks, images/train + masks/train, images + masks, train + trainannot, "
    "JPEGImages + SegmentationClass (other usual names too), or 1.jpg + 1_mask.png in one folder"
)


@dataclass
class LabelPictureSource(FileSource):
    """A sample's target is the path below `root` of a picture with the labels of its pixels."""

    unpaired: dict[str, str] = field(default_factory=dict, kw_only=True)
    """By id, what is wrong with images that have no such picture or more than one."""

    def truth(self, sample: Sample, size: ImageSize | None = None) -> Any:
        return self.from_values(*self._read(sample, size))

    def checked_truth(self, sample: Sample, size: ImageSize | None = None) -> CheckedTruth:
        mask, path = self._read(sample, size, count_pages=True)
        pages = unread_pages_problem(sample.target, mask.unread_pages)
        return CheckedTruth(self.from_values(mask, path), pages)

    def _read(
        self, sample: Sample, size: ImageSize | None, *, count_pages: bool = False
    ) -> tuple[Mask, str]:
        if sample.id in self.unpaired:
            raise DataError(f"{self.where(sample)}: {self.unpaired[sample.id]}")
        path, image = self.path(sample.target), self.file(sample)
        mask = read_mask(path, max_pixels=self.max_pixels, count_pages=count_pages)
        size = size or displayed_size(image, max_pixels=self.max_pixels)
        mask.check_size(path, image, size)
        return mask, path

    def from_values(self, mask: Mask, path: str) -> Any:
        """The ground truth that a picture means."""
        raise NotImplementedError

    def files(self, sample: Sample) -> dict[str, str]:
        files = super().files(sample)
        return files | {sample.target: self.path(sample.target)} if sample.target else files


class MaskSource(LabelPictureSource):
    def from_values(self, mask: Mask, path: str) -> Tensor:
        return to_classes(mask.values, self.labels, shown(path))


def recognise(folder: str) -> bool:
    return bool(find_pairs(folder, MASKS, []))


def read(builder: SourceBuilder) -> MaskSource:
    pairing = Pairing(builder, MASKS)
    pairing.read_folders(_LISTS, _LAYOUTS)
    unpaired = note_unpaired(builder, pairing, "a mask")
    files = [builder.file(sample.target) for sample in builder.samples() if sample.target]
    if others := sorted(map(builder.id, pairing.others)):
        builder.notes.append(
            f"beside the masks, and not used: {counted(len(others), 'file')} with something else: "
            f"{others[0]}{' …' if len(others) > 1 else ''}"
        )
    return builder.build(MaskSource, _labels(builder, files), unpaired=unpaired)


def note_unpaired(builder: SourceBuilder, pairing: Pairing, what: str) -> dict[str, str]:
    """By id, what is wrong with images that have no picture of labels, `what`, or several. That all
    are such is an error."""
    samples = builder.samples()
    unpaired = {s.id: pairing.unpaired[s.id] for s in samples if s.id in pairing.unpaired}
    if unpaired:
        first = min(unpaired)
        if len(unpaired) == len(samples):
            own = f"no image has {what} of its own: {first} {unpaired[first]}"
            raise DataError(f"{builder.name}: {own}")
        count = counted(len(unpaired), "image")
        builder.notes.append(f"without {what}, or with several: {count}, like {first}")
    return unpaired


def _labels(builder: SourceBuilder, files: Sequence[str]) -> LabelMap:
    names = find_names(builder)
    labels = mask_labels(names) if names is not None else _values(files, builder.notes)
    if len(labels) > MOST_CLASSES:
        raise DataError(
            f"{builder.name}: {counted(len(labels), 'class')}, but masks can have at most "
            f"{MOST_CLASSES}"
        )
    return labels


def find_names(builder: SourceBuilder) -> Names | None:
    """The names that are given, or a file of the folder."""
    found = [name for name in NAMES_FILES if os.path.isfile(os.path.join(builder.root, name))]
    if builder.names is not None or not found:
        return builder.names
    besides = f"; {', '.join(found[1:])} not used" if found[1:] else ""
    builder.notes.append(f"names of the classes: {found[0]}{besides}")
    return Path(builder.root, found[0])


def _values(files: Sequence[str], notes: list[str]) -> LabelMap:
    """Every value that occurs is a class, named by its number."""

    def look(file: str) -> NDArray[np.int64] | DataError:
        try:
            values = read_mask(file).values
        except DataError as error:
            return error
        if values.ndim == 3:
            raise DataError(f"{shown(file)}: {in_colour(values)}")
        return np.flatnonzero(np.bincount(values.ravel()))

    seen = in_threads(look, files, "collecting the values of masks")
    where: dict[int, str] = {}
    for file, values in zip(files, seen, strict=True):
        if not isinstance(values, DataError):
            for value in values.tolist():
                where.setdefault(value, file)
    if not where:
        raise next(error for error in seen if isinstance(error, DataError))
    some = [f'"{value}": "…"' for value in sorted(where)]
    example = f"{{{', '.join(some[:_SHOWN])}{', …' if len(some) > _SHOWN else ''}}}"
    for value in UNLABELLED:
        if value in where:
            raise DataError(
                f"{shown(where[value])}: has the value {value}, which is a class in some data sets "
                "and unlabelled in others: define it in a names file "
                f'({{"0": "…", "{value}": "…"}}, with null instead of a name to ignore it)'
                f"{advice('; pass ', names=Word('FILE'))}"
            )
    labels = LabelMap.of_ids(where)
    notes.append(
        f"the classes are all values that occur in masks, named by their numbers: "
        f"{', '.join(labels.names)}. A names file (--names FILE) names them: {example}; null "
        "instead of a name ignores the pixels"
    )
    return labels
