"""YOLO's files: `data.yaml`, and for each image a text with one line per object.

    class cx cy width height

The class is a number from 0; the box is normalised by the image's width and height.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

from vitreous.data.decode.images import shown
from vitreous.data.formats.files import SPLIT_FOLDERS, read_text
from vitreous.data.formats.instances import Annotation, Instance, finite
from vitreous.errors import DataError, naming
from vitreous.labels import LabelMap

MAX_BYTES = 10_000_000
MAX_YAML = 1_000_000
MOST_CLASSES = 100_000
_SLACK = 1e-6  # the rounding of six decimals
_DEEPEST = 10


# ---- labels


def read_labels(path: str) -> Annotation:
    """A file that cannot be read, or is no text, is a DataError that begins with the path."""
    labels = Annotation()
    for number, line in enumerate(read_text(path, MAX_BYTES).splitlines(), 1):
        if line.strip():
            try:
                labels.instances.append(_object(f"line {number}", line.split()))
            except DataError as error:
                labels.errors.append(f"line {number}: {error}")
    return labels


def _object(name: str, words: list[str]) -> Instance:
    if len(words) != 5:
        raise DataError(_other_columns(len(words)))
    values = [_number(word) for word in words]
    if values[0] < 0 or values[0] != int(values[0]):
        raise DataError(f"the class is {words[0]}, expected a whole number from 0")
    for what, value in zip(("centre x", "centre y", "width", "height"), values[1:], strict=True):
        if not -_SLACK <= value <= 1 + _SLACK:
            pixels = ": are these pixels?" if value > 2 else ""
            raise DataError(f"{what} is {value:g}, expected 0 to 1 (normalised){pixels}")
    x, y, width, height = values[1:]
    corners = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
    return Instance(name, int(values[0]), corners)


def _other_columns(count: int) -> str:
    what = f"has {count} numbers, expected 5: class, centre x, centre y, width, height"
    if count == 6:
        return f"{what}. With a sixth, the score, they are predictions, not labels"
    if count >= 7 and count % 2:
        return f"{what}. They are polygons (segmentation) or rotated boxes: convert them to boxes"
    return what


def _number(word: str) -> float:
    if (value := finite(word)) is None:
        raise DataError(f"{word[:40]!r} is not a number")
    return value


def begins_with_labels(path: str) -> bool:
    """Whether a text looks like labels; captions lie beside images too."""
    try:
        with open(path, encoding="utf-8-sig", errors="replace") as file:
            words = file.readline(1000).split()
    except OSError:
        return False
    return len(words) >= 5 and all(finite(word) is not None for word in words)


# ---- data.yaml


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
    """What is in `data.yaml`; a DataError begins with the path.

    Every value is read as text, so that a class may be called `no` or `1e3`. What the file gives to
    download is not downloaded.
    """
    text = read_text(path, MAX_BYTES)
    with naming(shown(path)):
        if len(text) > MAX_YAML:
            raise DataError(f"is longer than {MAX_YAML:,} characters")
        try:
            values = yaml.load(text, Loader=_PlainLoader)
        except yaml.YAMLError as error:
            raise DataError(f"is not YAML: {' '.join(str(error).split())}") from None
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


class _PlainLoader(yaml.BaseLoader):
    """Reads mappings, lists and text, as far as they are written out and not deeply nested: aliases
    of aliases can make a small file enormous."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            raise DataError(f"line {line}: has an alias (*{event.anchor}): write the value out")
        if self.depth > _DEEPEST:
            raise DataError(f"line {line}: has values nested more than {_DEEPEST} deep")
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[str, Any]:
        seen = set()
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise DataError(f"line {line}: expected a name before the colon")
            if key.value in seen:
                raise DataError(f"line {line}: {key.value!r} occurs twice")
            seen.add(key.value)
        values: dict[str, Any] = super().construct_mapping(node, deep)
        return values


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
        raise DataError(f"nc is {count}, but names has {len(names)} classes")
    with naming("names"):
        return LabelMap.of_ids(names, names)


def _is_number(text: Any) -> bool:
    plain = isinstance(text, str) and text.isdecimal() and len(text) < 10
    return plain and int(text) <= MOST_CLASSES


def is_data_yaml(path: str) -> bool:
    """Whether a YAML file looks like YOLO's, by its keys."""
    try:
        lines = read_text(path, MAX_BYTES).splitlines()
    except DataError:
        return False
    keys = {line.partition(":")[0].strip().lower() for line in lines if ":" in line}
    return bool(keys & {"names", "nc"}) and bool(keys & SPLIT_FOLDERS.keys())
