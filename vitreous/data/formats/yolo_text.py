"""YOLO's files: `data.yaml`, and for each image a text with one line per object.

    class cx cy width height

The class is a number from 0; the box is normalised by the image's width and height.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import yaml

from vitreous.data.decode.images import shown
from vitreous.data.formats.box_source import Corners
from vitreous.data.formats.files import SPLIT_FOLDERS, read_text
from vitreous.errors import DataError

MAX_BYTES = 10_000_000
MAX_YAML = 1_000_000
MOST_CLASSES = 100_000
_SLACK = 1e-6  # the rounding of six decimals
_DEEPEST = 10


# ---- labels


@dataclass(frozen=True, slots=True)
class YoloObject:
    name: str
    """What messages call it: `line 3`."""
    number: int
    """Of its class."""
    corners: Corners
    """left, top, right, bottom, normalised."""


@dataclass
class YoloLabels:
    objects: list[YoloObject] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """Lines that cannot be understood."""


def read_labels(path: str) -> YoloLabels:
    """A file that cannot be read, or is no text, is a DataError that begins with the path."""
    labels = YoloLabels()
    for number, line in enumerate(read_text(path, MAX_BYTES).splitlines(), 1):
        if line.strip():
            try:
                labels.objects.append(_object(f"line {number}", line.split()))
            except DataError as error:
                labels.errors.append(f"line {number}: {error}")
    return labels


def _object(name: str, words: list[str]) -> YoloObject:
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
    return YoloObject(name, int(values[0]), corners)


def _other_columns(count: int) -> str:
    what = f"has {count} numbers, expected 5: class, centre x, centre y, width, height"
    if count == 6:
        return f"{what}. With a sixth, the score, they are predictions, not labels"
    if count >= 7 and count % 2:
        return f"{what}. They are polygons (segmentation) or rotated boxes: convert them to boxes"
    return what


def _number(word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise DataError(f"{word[:40]!r} is not a number")
    return value


def begins_with_labels(path: str) -> bool:
    """Whether a text looks like labels; captions lie beside images too."""
    try:
        with open(path, encoding="utf-8-sig", errors="replace") as file:
            words = file.readline(1000).split()
        return len(words) >= 5 and all(math.isfinite(float(word)) for word in words)
    except (OSError, ValueError):
        return False


# ---- data.yaml


@dataclass
class YoloData:
    """What `data.yaml` has."""

    path: str
    """What folders are relative to, or nothing."""
    splits: dict[str, list[str]]
    """Folders of images, or lists of images in text files."""
    names: dict[int, str] | None
    """By the number of the class."""


def read_data_yaml(path: str) -> YoloData:
    """What is in `data.yaml`; a DataError begins with the path.

    Every value is read as text, so that a class may be called `no` or `1e3`. What the file gives to
    download is not downloaded.
    """
    text = read_text(path, MAX_BYTES)
    try:
        if len(text) > MAX_YAML:
            raise DataError(f"is longer than {MAX_YAML:,} characters")
        values = _values(text)
        splits = {
            SPLIT_FOLDERS[key]: [part for part in _list(key, value) if part]
            for key, value in values.items()
            if key in SPLIT_FOLDERS
        }
        if not any(splits.values()):
            raise DataError("has no folder of images for train, val or test")
        root = values.get("path", "")
        if not isinstance(root, str):
            raise DataError("path: expected a folder")
        named = {split: parts for split, parts in splits.items() if parts}
        return YoloData(root, named, _names(values))
    except yaml.YAMLError as error:
        what = " ".join(str(error).split())
        raise DataError(f"{shown(path)}: is not YAML: {what}") from None
    except DataError as error:
        raise DataError(f"{shown(path)}: {error}") from None


def _values(text: str) -> dict[str, Any]:
    """A YAML file of mappings, lists and text."""
    # Aliases of aliases can make a small file enormous, and the time to read nested lists grows
    # with the square of their depth.
    depth = 0
    for event in yaml.parse(text, Loader=yaml.BaseLoader):
        line = event.start_mark.line + 1
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if isinstance(event, yaml.AliasEvent):
            raise DataError(f"line {line}: has an alias (*{event.anchor}): write the value out")
        if depth > _DEEPEST:
            raise DataError(f"line {line}: has values nested more than {_DEEPEST} deep")
    node = yaml.compose(text, Loader=yaml.BaseLoader)
    if not isinstance(node, yaml.MappingNode):
        raise DataError("is not YOLO's data.yaml: expected train, val and names, each with a colon")
    values: dict[str, Any] = _plain(node)
    return values


def _plain(node: yaml.Node) -> Any:
    if isinstance(node, yaml.ScalarNode):
        return node.value
    if isinstance(node, yaml.SequenceNode):
        return [_plain(value) for value in node.value]
    values: dict[str, Any] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise DataError(f"line {line}: expected a name before the colon")
        if key.value in values:
            raise DataError(f"line {line}: {key.value!r} occurs twice")
        values[key.value] = _plain(value)
    return values


def _list(key: str, value: Any) -> list[str]:
    parts = value if isinstance(value, list) else [value]
    if not all(isinstance(part, str) for part in parts):
        raise DataError(f"{key}: expected a folder of images, or a list of folders")
    return parts


def _names(values: dict[str, Any]) -> dict[int, str] | None:
    """The classes: a list for 0, 1, 2 …, or a mapping from numbers; by number if only counted."""
    given, count = values.get("names"), values.get("nc")
    if count is not None and not _is_number(count):
        raise DataError(f"nc: expected the number of classes, not {str(count)[:40]!r}")
    if given is None:
        return None if count is None else {number: str(number) for number in range(int(count))}
    pairs = given.items() if isinstance(given, dict) else enumerate(given)
    if isinstance(given, str):
        raise DataError("names: expected a list of names, or a name for each number")
    names: dict[int, str] = {}
    for key, name in pairs:
        if not _is_number(str(key)) or int(key) in names:
            raise DataError(f"names: {key!r} is not the number of a class, or occurs twice")
        if not isinstance(name, str) or not name:
            raise DataError(f"names: no name for class {key}")
        if name in names.values():
            raise DataError(f"names: two classes have the same name: {name}")
        names[int(key)] = name
    if count is not None and int(count) != len(names):
        raise DataError(f"nc is {count}, but names has {len(names)} classes")
    return names


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
