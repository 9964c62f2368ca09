"""Image files in folders: how folders are walked, and the Source whose images are files."""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from torch import Tensor

from vitreous.data.decode.images import EXTENSIONS, DecodedImage, read_decoded, shown
from vitreous.data.decode.pixels import Enough
from vitreous.data.source import Problem, Sample, Source
from vitreous.errors import DataError

SPLIT_FOLDERS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}
"""The split that each word means, in the names of folders and files and in tables."""

_SPLIT = re.compile(rf"({'|'.join(SPLIT_FOLDERS)})([_-]?set)?([_-]?(19|20)\d\d)?", re.IGNORECASE)


def split_of(folder: str) -> str:
    """The split that a folder is named after, as train, Test_set or val2017; "" if none."""
    match = _SPLIT.fullmatch(os.path.basename(folder))
    return SPLIT_FOLDERS[match[1].lower()] if match else ""


_DEEPEST = 10  # lists and mappings of a YAML file in each other


@dataclass
class FileSource(Source):
    """A sample's id is its path below `root`."""

    root: str = field(default="", kw_only=True)
    odd_names: dict[str, str] = field(default_factory=dict, kw_only=True)
    """The real path of a file whose name is not valid text, by the path as text."""

    def file(self, sample: Sample) -> str:
        return self.path(sample.id)

    def path(self, id: str) -> str:
        """The file of a path below `root`."""
        return os.path.join(self.root, self.odd_names.get(id, id))

    def files(self, sample: Sample) -> dict[str, str]:
        """Every file that a sample is read from, by its path below `root`."""
        return {sample.id: self.file(sample)}

    def where(self, sample: Sample) -> str:
        return shown(self.file(sample))

    def image(self, sample: Sample) -> Tensor:
        return self.decode(sample).pixels

    def decode(
        self, sample: Sample, enough: Enough | None = None, *, count_pages: bool = False
    ) -> DecodedImage:
        limit, path = self.max_pixels, self.file(sample)
        return read_decoded(path, max_pixels=limit, enough=enough, count_pages=count_pages)


@dataclass
class Scan:
    """Walks through folders and keeps account of everything that is not an image."""

    skipped: Counter[str] = field(default_factory=Counter)
    problems: list[Problem] = field(default_factory=list)
    extensions: tuple[str, ...] = EXTENSIONS
    """Of the files that are looked for."""

    def images(self, folder: str, seen: frozenset[tuple[int, int]] = frozenset()) -> list[str]:
        """The paths of all images below a folder; links are followed, loops are not."""
        status = os.stat(folder)
        here = (status.st_dev, status.st_ino)
        if here in seen:
            self.problems.append(Problem(shown(folder), "is a link that leads into a loop", False))
            return []
        found, folders = self.look(folder)
        for inner in folders:
            found += self.images(inner, seen | {here})
        return found

    def look(self, folder: str) -> tuple[list[str], list[str]]:
        """(images, folders) directly in a folder."""
        images, folders = [], []
        try:
            entries = list(os.scandir(folder))
        except OSError as error:
            what = f"the folder cannot be read: {error.strerror}"
            self.problems.append(Problem(shown(folder), what))
            return [], []
        for entry in entries:
            extension = os.path.splitext(entry.name)[1].lower()
            hidden = entry.name.startswith(".") or entry.name == "__MACOSX"
            if _is_folder(entry) and not hidden:
                folders.append(entry.path)
            elif extension in self.extensions and not hidden:
                images.append(entry.path)
            else:
                self.skipped["hidden" if hidden else extension or "without extension"] += 1
        return images, folders

    def notes(self) -> list[str]:
        if not self.skipped:
            return []
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.skipped.items()))
        return [f"skipped, as no images: {kinds}"]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself
        return False


def read_bytes(path: str | Path, max_bytes: int | None = None) -> bytes:
    """A whole file. An error begins with the path."""
    try:
        with open(path, "rb") as file:
            data = file.read() if max_bytes is None else file.read(max_bytes + 1)
    except OSError as error:
        raise DataError(f"{shown(path)}: cannot be read: {error.strerror}") from None
    if max_bytes is not None and len(data) > max_bytes:
        raise DataError(f"{shown(path)}: is larger than {max_bytes:,} bytes")
    return data


def read_text(path: str | Path, max_bytes: int | None = None) -> str:
    """A file of text in UTF-8. An error begins with the path."""
    try:
        return read_bytes(path, max_bytes).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{shown(path)}: is not text in UTF-8 ({error.reason})") from None


def beginning(path: str, count: int) -> str:
    """Of a file that may be large, or something else; "" where it cannot be read."""
    try:
        with open(path, encoding="utf-8-sig", errors="replace") as file:
            return file.read(count)
    except OSError:
        return ""


def finite(text: str) -> float | None:
    """A number that is written as text; None where it is not one."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def read_json(path: str | Path) -> Any:
    text = read_text(path)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{shown(path)}: is not JSON: {error}") from None


def parse_yaml(text: str) -> Any:
    """Mappings, lists and text: every value is read as text, so that a class may be called `no` or
    `1e3`. Aliases and deep nesting are refused: they can make a small file enormous."""
    depth = 0
    try:
        for event in yaml.parse(text, yaml.BaseLoader):
            line = event.start_mark.line + 1
            if isinstance(event, yaml.AliasEvent):
                raise DataError(f"line {line}: has an alias (*{event.anchor}): write the value out")
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEEPEST:
                raise DataError(f"line {line}: has values nested more than {_DEEPEST} deep")
        return _plain(yaml.compose(text, yaml.BaseLoader))
    except yaml.YAMLError as error:
        raise DataError(f"is not YAML: {' '.join(str(error).split())}") from None


def _plain(node: Any) -> Any:
    """The value of a node. A key is text, and occurs once."""
    if isinstance(node, yaml.SequenceNode):
        return [_plain(each) for each in node.value]
    if not isinstance(node, yaml.MappingNode):
        return None if node is None else node.value
    found: dict[str, Any] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise DataError(f"line {line}: expected a name before the colon")
        if key.value in found:
            raise DataError(f"line {line}: {key.value!r} occurs twice")
        found[key.value] = _plain(value)
    return found


def claim(found: dict[str, str], split: str, path: str, root: str) -> None:
    """Remembers the folder or file of a split; a second one is an error."""
    if (first := found.setdefault(split, path)) != path:
        both = f"{below(first, root)} and {below(path, root)}"
        raise DataError(f"{shown(root)}: {both} both mean {split}: keep one")


def is_below(path: str, folder: str) -> bool:
    """Whether a path is that of a folder, or of something in it; by their names alone."""
    return path == folder or path.startswith(os.path.join(folder, ""))


def below(path: str, root: str) -> str:
    """A path seen from `root`, as text."""
    return shown(os.path.relpath(path, root)).replace(os.sep, "/")
