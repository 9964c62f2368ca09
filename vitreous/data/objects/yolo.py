"""YOLO: images, and for each a text file with one line per object.

    data.yaml  images/train/1.jpg  labels/train/1.txt

`data.yaml` gives the folders of the images and the names of the classes. Without it the folders are
found by their names, and the classes are those of `classes.txt`, or the numbers that occur. An
image without a text file has no objects. A line is

    class cx cy width height

or `class x y x y x y …`, a polygon. The class is a number from 0; the box, and each point, is
normalised by the image's width and height. Of a polygon, the box is that around it.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from vitreous.data.decode.images import shown
from vitreous.data.formats.builder import SourceBuilder
from vitreous.data.formats.files import beginning, below, finite, read_text
from vitreous.data.formats.names import numbered_labels, with_names
from vitreous.data.formats.pairing import LabelFiles, Pairing, has_pairs
from vitreous.data.objects.data_yaml import (
    DataYamlImages,
    data_yaml,
    find_data_yaml,
    read_data_yaml,
)
from vitreous.data.objects.source import BACKGROUND, ObjectSource
from vitreous.data.objects.table import UNKNOWN, AnnotatedObject, Annotation, ObjectTable
from vitreous.data.source import IGNORED
from vitreous.errors import DataError, Word, advice
from vitreous.labels import LabelMap
from vitreous.wording import counted

NAMES_FILES = ("classes.txt", "obj.names", "classes.names", "classes.json", "names.json")

TEXTS = LabelFiles("label file", (".txt",), ".txt", needed=False, others=NAMES_FILES)

MAX_BYTES = 10_000_000
_SLACK = 1e-6  # the rounding of six decimals
_LAYOUTS = (
    "data.yaml, images/train + labels/train, train/images + train/labels, images + labels, and "
    "text files beside images"
)


def recognise(folder: str) -> bool:
    return bool(find_data_yaml(folder)) or has_pairs(folder, TEXTS, begins_with_labels)


def read(builder: SourceBuilder) -> ObjectSource:
    """A folder, or its data.yaml."""
    if not os.path.exists(builder.root):
        raise DataError(f"{builder.name}: there is no such file or folder")
    file = data_yaml(builder.root) if os.path.isdir(builder.root) else builder.root
    pairing, declared = Pairing(builder, TEXTS), None
    if file:
        data = read_data_yaml(file)
        declared = data.labels
        DataYamlImages(builder, pairing, file).add(data)
        builder.check_images()
    else:
        pairing.read_folders("", _LAYOUTS)
    without = [sample for sample in builder.samples() if not sample.target]
    if len(without) == len(builder.samples()):
        looked = ", ".join(dict.fromkeys(shown(folder) for folder in pairing.folders))
        raise DataError(f"{builder.name}: no image has a label file: looked in {looked}")
    masks, boxes = (builder.truth_kind == kind for kind in ("mask", "boxes"))
    table = ObjectTable("line {number}", outlines=not boxes)
    found = pairing.read_label_files(table, read_labels, "reading label files")
    labels = _named(builder, pairing, declared, table)
    if count := sum(sample.id not in pairing.unpaired for sample in without):
        builder.notes.append(
            f"without a label file, which means no objects: {counted(count, 'image')}"
        )
    if not boxes and not table.outlined:
        what = "no label file has a polygon (class x y x y x y …) to draw a mask from"
        raise DataError(f"{builder.name}: {what}")
    if boxes and table.outlined:
        builder.notes.append(
            f"of {counted(table.outlined, 'polygon')} the box around it is used; as masks with "
            "--task instance or --task segment"
        )
    if masks and BACKGROUND not in labels.names:  # a class of its own, and the first
        labels = LabelMap(
            (BACKGROUND, *labels.names), (BACKGROUND, *labels.external), labels.ignored
        )
    table.label(labels.by_external())
    if masks:
        _check_polygons(table)
    return builder.build(
        *(ObjectSource, labels),
        table=table,
        annotations=found,
        normalised=True,
        background=labels.names.index(BACKGROUND) if masks else IGNORED,
    ).checked()


def _check_polygons(table: ObjectTable) -> None:
    """For a mask, every object must have a class and a polygon."""
    wrong = (table.labels == UNKNOWN) | (table.outline_kinds() < 0)
    for annotation in table.images:
        for row in (annotation.start + np.flatnonzero(wrong[annotation.rows])).tolist():
            what = "is a box, from which no mask can be drawn"
            if table.labels[row] == UNKNOWN:
                what = f"class {table.category(row)} has no name"
            annotation.errors.append(f"{table.name(row)}: {what}")


# ---- the names of the classes


def _named(
    builder: SourceBuilder, pairing: Pairing, declared: LabelMap | None, table: ObjectTable
) -> LabelMap:
    """declared: the classes of data.yaml."""
    file = _names_file([builder.root, *pairing.folders]) if declared is None else None
    if file:
        builder.notes.append(f"names of the classes: {below(file, builder.root)}")
        declared = numbered_labels(file)
    if declared is not None:
        return with_names(declared, builder.names, partial=True)
    if builder.names is not None:
        return numbered_labels(builder.names)
    numbers = set(map(int, table.categories))
    if not numbers:
        raise DataError(
            f"{shown(builder.root)}: no label file has an object and nothing names the classes"
            f"{advice(': pass ', ' with one name per line', names=Word('FILE'))}"
        )
    labels = LabelMap.of_ids(numbers)
    builder.notes.append(
        f"the classes are all numbers that occur: {', '.join(labels.names)}. A names file (--names "
        "FILE) with one name per line, or classes.txt in the folder, names them"
    )
    return labels


def _names_file(folders: list[str]) -> str | None:
    """A file of names; several must have the same content."""
    places = [os.path.join(folder, name) for folder in folders for name in NAMES_FILES]
    found = [place for place in dict.fromkeys(places) if os.path.isfile(place)]
    for other in found[1:]:
        if Path(other).read_bytes() != Path(found[0]).read_bytes():
            both = f"{shown(found[0])} and {shown(other)}"
            raise DataError(f"{both} name the classes differently: keep one")
    return found[0] if found else None


# ---- one label file


def read_labels(path: str, annotation: Annotation) -> list[AnnotatedObject]:
    """The objects of a file; what is wrong with others is added to the annotation. A file that
    cannot be read, or is no text, is a DataError that begins with the path."""
    objects = []
    for number, line in enumerate(read_text(path, MAX_BYTES).splitlines(), 1):
        if line.strip():
            try:
                objects.append(_object(number, line.split()))
            except DataError as error:
                annotation.errors.append(f"line {number}: {error}")
    return objects


def _object(number: int, words: list[str]) -> AnnotatedObject:
    is_polygon = len(words) >= 7 and len(words) % 2
    if len(words) != 5 and not is_polygon:
        raise DataError(_other_columns(len(words)))
    values = [_number(word) for word in words]
    if values[0] < 0 or values[0] != int(values[0]):
        raise DataError(f"the class is {words[0]}, expected a whole number from 0")
    points = [f"{axis} of point {n}" for n in range(1, len(words) // 2 + 1) for axis in "xy"]
    box = ("centre x", "centre y", "width", "height")
    for what, value in zip(points if is_polygon else box, values[1:], strict=True):
        if not -_SLACK <= value <= 1 + _SLACK:
            pixels = ": are these pixels?" if value > 2 else ""
            raise DataError(f"{what} is {value:g}, expected 0 to 1 (normalised){pixels}")
    if is_polygon:
        polygon = np.array(values[1:], np.float64)
        left, top = polygon.reshape(-1, 2).min(axis=0).tolist()
        right, bottom = polygon.reshape(-1, 2).max(axis=0).tolist()
        corners = (left, top, right, bottom)
        return AnnotatedObject(number, int(values[0]), corners, outline=(polygon,))
    x, y, width, height = values[1:]
    corners = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
    return AnnotatedObject(number, int(values[0]), corners)


def _other_columns(count: int) -> str:
    what = (
        f"has {count} numbers, expected 5: class, centre x, centre y, width, height; or 7 or more, "
        "a class and the x and y of each point of a polygon"
    )
    if count == 6:
        return f"{what}. With a sixth, the score, they are predictions, not labels"
    return what


def _number(word: str) -> float:
    if (value := finite(word)) is None:
        raise DataError(f"{word[:40]!r} is not a number")
    return value


def begins_with_labels(path: str) -> bool:
    """Whether a text looks like labels; captions lie beside images too."""
    words = beginning(path, 1000).partition("\n")[0].split()
    return len(words) >= 5 and all(finite(word) is not None for word in words)
