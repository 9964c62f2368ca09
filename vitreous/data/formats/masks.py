"""Images and their masks in two folders: `train/images/1.jpg` and `train/masks/1.png`.

Data sets lay the folders out in several ways, see `pairing.py`. What a value of a mask means is
said by a names file (`names.py`), given or found in the folder. Without one every
mask is looked at for the values it has; nothing is taken for background or for unlabelled.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from vitreous.data.decode.images import EXTENSIONS, shown
from vitreous.data.decode.masks import in_colour, read_classes, read_mask
from vitreous.data.formats.files import FileSource
from vitreous.data.formats.folder import Scan
from vitreous.data.formats.names import Names, mask_labels
from vitreous.data.formats.pairing import Pairing, below, find_pairs, listed
from vitreous.data.source import Sample
from vitreous.data.split import VAL_FRACTION, with_val
from vitreous.data.threads import in_threads
from vitreous.errors import DataError
from vitreous.labels import LabelMap

NAMES_FILES = (
    *("classes.json", "names.json", "labels.json"),
    *("classes.txt", "label_colors.txt", "class_dict.csv"),
)
UNLABELLED = (255, 65535)
"""Values that most data sets use for pixels without a label, and some for a class."""

MOST_CLASSES = 32767
"""So many fit into the 16 bits of a mask in memory."""

_SHOWN = 4  # values in an example
_LISTS = os.path.join("ImageSets", "Segmentation")
_FORMS = (
    "train/images + train/masks, images/train + masks/train, images + masks, train + trainannot, "
    "or JPEGImages + SegmentationClass"
)


@dataclass
class MaskSource(FileSource):
    """A sample's target is the path of its mask below `root`."""

    unmasked: dict[str, str] = field(default_factory=dict, kw_only=True)
    """By id, the images that have no mask or more than one, and what to say of them."""

    def truth(self, sample: Sample) -> Tensor:
        if sample.id in self.unmasked:
            raise DataError(f"{self.where(sample)}: {self.unmasked[sample.id]}")
        return read_classes(
            self.mask_file(sample), self.file(sample), self.labels, max_pixels=self.max_pixels
        )

    def mask_file(self, sample: Sample) -> str:
        return os.path.join(self.root, self.odd_names.get(sample.target, sample.target))

    def files(self, sample: Sample) -> dict[str, str]:
        files = super().files(sample)
        return {**files, sample.target: self.mask_file(sample)} if sample.target else files


def open_masks(
    path: str,
    *,
    seed: int = 0,
    val_fraction: float = VAL_FRACTION,
    names: Names | None = None,
) -> MaskSource:
    root = os.path.normpath(os.path.expanduser(path))
    if not os.path.isdir(root):
        raise DataError(f"{shown(path)}: there is no such folder")
    notes: list[str] = []
    pairs = find_pairs(root, notes)
    if not pairs:
        raise DataError(
            f"{shown(path)}: no images with masks: looked for {_FORMS} (other usual names too)"
        )
    scan, pairing = Scan(), Pairing(root)
    splits: dict[str, list[Sample]] = {}
    for split, (images, masks) in pairs.items():
        both = f"{below(images, root)} with {below(masks, root)}"
        notes.append(f"{split}: {both}" if split else both)
        splits[split or "train"] = pairing.pair(images, masks, scan)
    if not any(splits.values()):
        raise DataError(f"{shown(path)}: no images in its folders ({' '.join(EXTENSIONS)})")
    lists = os.path.join(root, _LISTS)
    if os.path.isdir(lists) and "" in pairs:
        splits = listed(lists, splits["train"], pairing, notes)
    used = [sample for samples in splits.values() for sample in samples]
    files = [pairing.file(sample.target) for sample in used if sample.target]
    unmasked = {s.id: pairing.unmasked[s.id] for s in used if s.id in pairing.unmasked}
    if not files:
        first = min(unmasked)
        raise DataError(f"{shown(path)}: no image has a mask of its own: {first} {unmasked[first]}")
    if unmasked:
        notes.append(f"{len(unmasked)} images have no mask or several: {min(unmasked)} …")
    return MaskSource(
        name=shown(path),
        kind="masks",
        truth_kind="mask",
        labels=_labels(root, files, names, notes),
        splits=with_val(splits, val_fraction, seed, notes, by_class=False),
        notes=notes + pairing.notes() + scan.notes(),
        problems=scan.problems + pairing.problems,
        root=root,
        odd_names=pairing.odd_names,
        unmasked=unmasked,
    )


def _labels(root: str, files: Sequence[str], names: Names | None, notes: list[str]) -> LabelMap:
    if names is None:
        found = [name for name in NAMES_FILES if os.path.isfile(os.path.join(root, name))]
        if found:
            names = Path(root, found[0])
            besides = f"; {', '.join(found[1:])} not used" if found[1:] else ""
            notes.append(f"names of the classes: {found[0]}{besides}")
    labels = mask_labels(names) if names is not None else _values(files, notes)
    if len(labels) > MOST_CLASSES:
        raise DataError(
            f"{shown(root)}: {len(labels)} classes, where at most {MOST_CLASSES} can be told apart"
        )
    return labels


def _values(files: Sequence[str], notes: list[str]) -> LabelMap:
    """Every value that occurs is a class, called by its number."""

    def look(file: str) -> NDArray[np.int64] | DataError:
        try:
            values = read_mask(file).values
        except DataError as error:
            return error
        if values.ndim == 3:
            raise DataError(f"{shown(file)}: {in_colour(values)}")
        return np.flatnonzero(np.bincount(values.ravel()))

    seen = in_threads(look, files, "looking for the values of masks")
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
                f"{shown(where[value])}: has the value {value}, which is a class in some data and "
                "means pixels without a label in other: say what it is in a names file "
                f'(--names FILE), {{"0": "…", "{value}": "…"}}, with null in place of its name if '
                "it is to be ignored"
            )
    labels = LabelMap.of_ids(where)
    notes.append(
        f"the classes are all values that masks have, called by their numbers: "
        f"{', '.join(labels.names)}. A names file (--names FILE) says more: {example}; null in "
        "place of a name ignores the pixels"
    )
    return labels
