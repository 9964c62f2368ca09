"""Public data sets through torchvision: `torchvision:CIFAR10`. They are fetched only when asked."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from vitreous.data.decode.images import from_any
from vitreous.data.formats.names import Names, with_names
from vitreous.data.source import Sample, Source
from vitreous.data.split import VAL_FRACTION, with_val
from vitreous.errors import DataError, did_you_mean
from vitreous.labels import LabelMap

_TRAIN_FLAG = {"train": {"train": True}, "test": {"train": False}}
_TRAIN_TEST = {"train": {"split": "train"}, "test": {"split": "test"}}
_ALL_THREE = {"val": {"split": "val"}, **_TRAIN_TEST}

DATASETS: dict[str, dict[str, dict[str, Any]]] = {
    "CIFAR10": _TRAIN_FLAG,
    "CIFAR100": _TRAIN_FLAG,
    "Country211": {"val": {"split": "valid"}, **_TRAIN_TEST},
    "DTD": _ALL_THREE,
    "EuroSAT": {"train": {}},
    "FashionMNIST": _TRAIN_FLAG,
    "FGVCAircraft": _ALL_THREE,
    "Flowers102": _ALL_THREE,
    "Food101": _TRAIN_TEST,
    "GTSRB": _TRAIN_TEST,
    "Imagenette": {"train": {"split": "train"}, "val": {"split": "val"}},
    "KMNIST": _TRAIN_FLAG,
    "MNIST": _TRAIN_FLAG,
    "OxfordIIITPet": {"train": {"split": "trainval"}, "test": {"split": "test"}},
    "RenderedSST2": _ALL_THREE,
    "STL10": _TRAIN_TEST,
    "SUN397": {"train": {}},
    "SVHN": _TRAIN_TEST,
    "USPS": _TRAIN_FLAG,
}
"""What torchvision's class of this name is called with for each split."""


@dataclass
class PublicSource(Source):
    """A sample's id is its split and its place in torchvision's data set: `train/17`."""

    parts: dict[str, Any] = field(default_factory=dict, kw_only=True, repr=False)

    def image(self, sample: Sample) -> Tensor:
        part, _, place = sample.id.partition("/")
        try:
            image, _ = self.parts[part][int(place)]
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise DataError(f"{self.name}, {sample.id}: cannot be read: {error}") from None
        return from_any(image)[0]


def folder_of(name: str) -> Path:
    """Where a data set is kept: below VITREOUS_DATA, or in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    root = os.environ.get("VITREOUS_DATA") or os.path.join(cache, "vitreous", "data")
    return Path(root).expanduser() / name


def open_public(
    name: str,
    *,
    download: bool = False,
    seed: int = 0,
    val_fraction: float = VAL_FRACTION,
    names: Names | None = None,
) -> PublicSource:
    spelled = {known.lower(): known for known in DATASETS}
    if name.lower() not in spelled:
        hint = did_you_mean(name, spelled) or f": there are {', '.join(DATASETS)}"
        raise DataError(f"torchvision:{name} is not known{hint}")
    name = spelled[name.lower()]
    parts = {
        split: _fetched(name, arguments, download) for split, arguments in DATASETS[name].items()
    }
    targets = {split: _targets(part, name) for split, part in parts.items()}
    labels = LabelMap.of_ids(id for ids in targets.values() for id in ids)
    classes = getattr(parts["train"], "classes", None)
    if names is None and classes and len(classes) > max(map(max, targets.values())):
        names = {i: _text(title) for i, title in enumerate(classes)}
        if len(set(names.values())) < len(names):  # some data sets have namesakes
            names = None
    inside = {external: number for number, external in enumerate(labels.external)}
    notes = [f"kept in {folder_of(name)}"]
    splits = {
        split: [Sample(f"{split}/{i}", inside[id]) for i, id in enumerate(ids)]
        for split, ids in targets.items()
    }
    return PublicSource(
        name=f"torchvision:{name}",
        kind="torchvision",
        labels=with_names(labels, names),
        splits=with_val(splits, val_fraction, seed, notes),
        notes=notes,
        parts=parts,
    )


def _fetched(name: str, arguments: dict[str, Any], download: bool) -> Any:
    from torchvision import datasets

    root = folder_of(name)
    make = getattr(datasets, name)
    try:
        return make(root, download=False, **arguments)
    except (RuntimeError, OSError):  # torchvision's way to say that it is not there
        if not download:
            raise DataError(
                f"torchvision:{name} is not in {root}: with --download (download=True) it is "
                "fetched from the internet"
            ) from None
    try:
        root.mkdir(parents=True, exist_ok=True)
        return make(root, download=True, **arguments)
    except (RuntimeError, OSError) as error:
        raise DataError(f"torchvision:{name} could not be fetched into {root}: {error}") from None


def _targets(part: Any, name: str) -> list[int]:
    """The class of every sample, without decoding any; torchvision calls it by several names."""
    for attribute in ("targets", "labels", "_labels"):
        values = getattr(part, attribute, None)
        if values is not None:
            return [int(value) for value in torch.as_tensor(values).tolist()]
    pairs = getattr(part, "samples", None) or getattr(part, "_samples", None)
    if pairs is None:
        raise DataError(f"torchvision:{name}: this version of torchvision keeps no list of labels")
    return [int(target) for _, target in pairs]


def _text(title: Any) -> str:
    """A class's name; Imagenette gives several for each, the first is the usual one."""
    return title if isinstance(title, str) else str(title[0])
