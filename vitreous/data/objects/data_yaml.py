"""YOLO's `data.yaml`: the folders or lists of the images, and the names of the classes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitreous.data.decode.images import shown
from vitreous.data.formats.builder import SourceBuilder
from vitreous.data.formats.files import SPLIT_FOLDERS, below, parse_yaml, read_text
from vitreous.data.formats.pairing import Pairing
from vitreous.data.source import Sample
from vitreous.errors import DataError, naming
from vitreous.labels import LabelMap
from vitreous.wording import counted

MAX_BYTES = 1_000_000
MOST_CLASSES = 100_000
_USUAL = ("data.yaml", "data.yml", "dataset.yaml", "dataset.yml")


@dataclass
class YoloData:
    """What `data.yaml` has."""

    path: str
    """What folders are relative to, or nothing."""
    splits: dict[str, list[str]]
    """Folders of images, or lists of images in text files."""
    labels: LabelMap | None
    """Of the classes, by their numbers."""


def read_data_yaml(path: str) -> YoloData:
    """What is in `data.yaml`; a DataError begins with the path. What the file gives to download is
    not downloaded."""
    text = read_text(path, MAX_BYTES)
    with naming(shown(path)):
        values = parse_yaml(text)
        if not isinstance(values, dict):
            what = "expected train, val and names, each with a colon"
            raise DataError(f"is not YOLO's data.yaml: {what}")
        splits = {
            SPLIT_FOLDERS[key]: parts
            for key, value in values.items()
            if key in SPLIT_FOLDERS and (parts := _folders(key, value))
        }
        if not splits:
            raise DataError("has no folder of images for train, val or test")
        root = values.get("path", "")
        if not isinstance(root, str):
            raise DataError("path: expected a folder")
        return YoloData(root, splits, _labels(values))


def _folders(key: str, value: Any) -> list[str]:
    parts = value if isinstance(value, list) else [value]
    if not all(isinstance(part, str) for part in parts):
        raise DataError(f"{key}: expected a folder of images, or a list of folders")
    return [part for part in parts if part]


def _labels(values: dict[str, Any]) -> LabelMap | None:
    """The classes: a list for 0, 1, 2 …, or a mapping from numbers; by number if only counted."""
    given, count = values.get("names"), values.get("nc")
    if count is not None and not _is_number(count):
        raise DataError(f"nc: expected the number of classes, not {str(count)[:40]!r}")
    if given is None:
        return None if count is None else LabelMap.of_ids(range(int(count)))
    if isinstance(given, str):
        raise DataError("names: expected a list of names, or a name for each number")
    names: dict[int, str] = {}
    for key, name in given.items() if isinstance(given, dict) else enumerate(given):
        if not _is_number(str(key)) or int(key) in names:
            raise DataError(f"names: {key!r} is not the number of a class, or occurs twice")
        if not isinstance(name, str) or not name:
            raise DataError(f"names: no name for class {key}")
        names[int(key)] = name
    if count is not None and int(count) != len(names):
        raise DataError(f"nc is {count}, but names has {counted(len(names), 'class')}")
    with naming("names"):
        return LabelMap.of_ids(names, names)


def _is_number(text: Any) -> bool:
    plain = isinstance(text, str) and text.isdecimal() and len(text) < 10
    return plain and int(text) <= MOST_CLASSES


def data_yaml(folder: str) -> str | None:
    """The data.yaml of a folder; one that does not look like YOLO's is read too, for its error."""
    usual = [os.path.join(folder, name) for name in _USUAL[:2]]
    return find_data_yaml(folder) or next(filter(os.path.isfile, usual), None)


def find_data_yaml(folder: str) -> str | None:
    """A YAML file that looks like YOLO's."""
    names = sorted(name for name in os.listdir(folder) if name.lower().endswith((".yaml", ".yml")))
    found = [name for name in names if _looks_right(os.path.join(folder, name))]
    usual = [name for name in _USUAL if name in found]
    if len(found) > 1 and not usual:
        raise DataError(f"{shown(folder)}: has {' and '.join(found)}: give the path of one of them")
    return os.path.join(folder, (usual or found)[0]) if found else None


def _looks_right(path: str) -> bool:
    """By its keys."""
    try:
        lines = read_text(path, MAX_BYTES).splitlines()
    except DataError:
        return False
    keys = {line.partition(":")[0].strip().lower() for line in lines if ":" in line}
    return bool(keys & {"names", "nc"}) and bool(keys & SPLIT_FOLDERS.keys())


# ---- the images that it means


@dataclass
class DataYamlImages:
    """Adds the images that a data.yaml means to the builder."""

    builder: SourceBuilder
    pairing: Pairing
    file: str

    def add(self, data: YoloData) -> None:
        beside = os.path.dirname(self.file)
        # Folders are relative to the file's `path`, or to the file itself.
        path = os.path.normpath(os.path.join(beside, os.path.expanduser(data.path)))
        self.roots = list(dict.fromkeys((path, beside)))
        builder, name = self.builder, shown(os.path.basename(self.file))
        builder.root = path if os.path.isdir(path) else beside
        builder.notes.append(f"folders and names of the classes: {name}")
        if builder.root != path:
            builder.notes.append(f"{name}: path: there is no {shown(path)}; looked beside the file")
        elif self._is_copy(data):
            builder.notes.append(
                f"{name}: path: the images are read from {shown(path)}, although there are some "
                "beside the file: if this is a copy, change path"
            )
        places = {
            split: [self._place(part, split) for part in parts]
            for split, parts in data.splits.items()
        }
        for split, parts in places.items():
            for part in parts:
                inner = [os.path.join(part, name) for name in ("images", "labels")]
                if all(map(os.path.isdir, inner)):
                    self.pairing.pair(split, *inner)
                elif os.path.isdir(part):
                    self.pairing.pair(split, part, _texts_of(part))
                else:
                    self._add_listed(split, part)
            # folders may lie in each other
            builder.splits[split] = list(dict.fromkeys(builder.splits[split]))

    def _is_copy(self, data: YoloData) -> bool:
        """Whether all that is read elsewhere is beside the file too."""
        path, beside = self.roots[0], os.path.dirname(self.file) or "."
        parts = [part for each in data.splits.values() for part in each]
        found = all(os.path.exists(os.path.join(beside, part)) for part in parts)
        return found and not os.path.samefile(path, beside)

    def _place(self, part: str, split: str) -> str:
        """A folder or list of images. Roboflow writes ../train/images for train/images."""
        tries = [os.path.join(root, part) for root in self.roots]
        tries += [os.path.join(root, part[3:]) for root in self.roots if part.startswith("../")]
        tries = [os.path.normpath(each) for each in tries]
        for each in tries:
            if os.path.exists(each):
                return each
        looked = " or ".join(map(shown, tries))
        raise DataError(f"{shown(self.file)}: {split}: there is no {looked}")

    def _add_listed(self, split: str, file: str) -> None:
        """The images that a text file lists, one path per line."""
        builder = self.builder
        listed = dict.fromkeys(_listed(file, [os.path.dirname(file), *self.roots]))
        samples: dict[str, Sample] = {}
        for folder in dict.fromkeys(map(os.path.dirname, listed)):
            if os.path.isdir(folder):
                paired = self.pairing.samples(folder, _texts_of(folder))
                samples |= {sample.id: sample for sample in paired}
        ids = [builder.id(path) for path in listed]
        what = f"{counted(len(ids), 'image')} listed in {below(file, builder.root)}"
        builder.notes.append(f"{split}: {what}")
        builder.splits.setdefault(split, []).extend(samples.get(id) or Sample(id, "") for id in ids)


def _texts_of(folder: str) -> str:
    """Where the text files of a folder of images are: under `labels` instead of `images`, or beside
    them. Of several folders called images the last counts, as for other readers of YOLO's files."""
    parts = Path(folder).parts
    places = [place for place, part in enumerate(parts) if part == "images"]
    if not places:
        return folder
    texts = os.path.join(*parts[: places[-1]], "labels", *parts[places[-1] + 1 :])
    return texts if os.path.isdir(texts) else folder


def _listed(file: str, roots: list[str]) -> Iterator[str]:
    for line in filter(None, map(str.strip, read_text(file).splitlines())):
        tries = [os.path.normpath(os.path.join(root, line)) for root in roots]
        yield next((path for path in tries if os.path.exists(path)), tries[0])
