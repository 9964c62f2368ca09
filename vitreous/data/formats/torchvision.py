"""Public data sets of torchvision: `torchvision:CIFAR10`. They are downloaded only on request."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from vitreous.data.decode.images import from_any
from vitreous.data.formats.builder import SourceBuilder
from vitreous.data.formats.names import with_names
from vitreous.data.source import Sample, Source
from vitreous.errors import DataError, advice, did_you_mean, naming
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
"""The arguments of torchvision's class of this name, for each split."""


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
        with naming(self.where(sample)):
            return from_any(image, max_pixels=self.max_pixels)[0]


def folder_of(name: str) -> Path:
    """Where a data set is kept: below VITREOUS_DATA, or in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    root = os.environ.get("VITREOUS_DATA") or os.path.join(cache, "vitreous", "data")
    return Path(root).expanduser() / name


def read(builder: SourceBuilder) -> PublicSource:
    spelled = {known.lower(): known for known in DATASETS}
    given = builder.path
    if given.lower() not in spelled:
        hint = did_you_mean(given, spelled) or f": there are {', '.join(DATASETS)}"
        raise DataError(f"torchvision:{given} is not known{hint}")
    name = spelled[given.lower()]
    builder.name = f"torchvision:{name}"
    parts = {
        split: _loaded(name, arguments, builder.download)
        for split, arguments in DATASETS[name].items()
    }
    targets = {split: _targets(part, name) for split, part in parts.items()}
    labels = LabelMap.of_ids(id for ids in targets.values() for id in ids)
    names, classes = builder.names, getattr(parts["train"], "classes", None)
    if names is None and classes and len(classes) > max(map(max, targets.values())):
        # Imagenette gives several for each; the first is the usual one
        names = {i: c if isinstance(c, str) else str(c[0]) for i, c in enumerate(classes)}
        if len(set(names.values())) < len(names):  # in some data sets two classes share a name
            names = None
    builder.notes.append(f"kept in {folder_of(name)}")
    builder.number(targets, labels)
    return builder.build(PublicSource, with_names(labels, names), parts=parts)


def _loaded(name: str, arguments: dict[str, Any], download: bool) -> Any:
    from torchvision import datasets

    root = folder_of(name)
    make = getattr(datasets, name)
    try:
        return make(root, download=False, **arguments)
    except (RuntimeError, OSError):  # how torchvision reports that it is not there
        if not download:
            raise DataError(
                f"torchvision:{name} is not in {root}"
                f"{advice(': pass ', ' to download it', download=True)}"
            ) from None
    try:
        root.mkdir(parents=True, exist_ok=True)
        return make(root, download=True, **arguments)
    except (RuntimeError, OSError) as error:
        raise DataError(
            f"torchvision:{name} could not be downloaded into {root}: {error}"
        ) from None


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
