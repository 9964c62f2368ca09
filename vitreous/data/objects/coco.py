"""COCO: a JSON file of objects for each split, `instances_train2017.json`, and its images.

The classes are all categories of the file, in the order of their ids, also those without an object.
In masks, pixels of no object are the class `background`, unless the names file has
`{"background": null}`. Crowds are regions in which COCO did not separate the objects.
"""

from __future__ import annotations

import os
import re
from collections import Counter

import numpy as np

from vitreous.data.decode.images import shown
from vitreous.data.formats.builder import SourceBuilder
from vitreous.data.formats.files import SPLIT_FOLDERS, beginning, below, claim, is_below
from vitreous.data.formats.names import with_names
from vitreous.data.objects.coco_json import NAMES, Coco
from vitreous.data.objects.source import BACKGROUND, ObjectSource
from vitreous.data.objects.table import ObjectTable
from vitreous.data.source import IGNORED, Sample
from vitreous.errors import DataError
from vitreous.labels import External, LabelMap
from vitreous.wording import counted

_SPLIT = "|".join(sorted(SPLIT_FOLDERS, key=len, reverse=True))
_FILES = {
    "annotations": re.compile(rf"(?:instances_)?({_SPLIT})[\d_-]*\.json", re.IGNORECASE),
    ".": re.compile(rf"instances_({_SPLIT})[\d_-]*\.json", re.IGNORECASE),
}
"""In these folders, JSON files of these names are COCO's, one for each split."""
_BEGINNING = re.compile(r'\s*\{\s*"(info|licenses|images|annotations|categories|type)"\s*:')
_BESIDE = "_annotations.coco.json"
"""Roboflow's name for the file that lies among the images of each split."""

_PLACES = (
    *(".", "images", "{0}", "images/{0}", "data"),
    *("..", "../images", "../{0}", "../images/{0}", "../data"),
)
"""Where images may be, seen from their JSON file; {0} is the end of its name, as train2017."""


def recognise(folder: str) -> bool:
    return bool(_find(folder))


def _find(folder: str) -> dict[str, str]:
    """The JSON file of each split in a folder laid out as COCO's, or as Roboflow's."""
    found: dict[str, str] = {}
    for inner, pattern in _FILES.items():
        place = os.path.normpath(os.path.join(folder, inner))
        for name in sorted(os.listdir(place)) if os.path.isdir(place) else ():
            match = pattern.fullmatch(name)
            path = os.path.join(place, name)  # perhaps large, and perhaps another train.json
            if match and _BEGINNING.match(beginning(path, 200)):
                claim(found, SPLIT_FOLDERS[match[1].lower()], path, folder)
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name, _BESIDE)
        if name.lower() in SPLIT_FOLDERS and os.path.isfile(path):
            claim(found, SPLIT_FOLDERS[name.lower()], path, folder)
    return found


def read(builder: SourceBuilder) -> ObjectSource:
    """A JSON file, all of whose images are to train on, or a folder with one for each split."""
    is_folder = os.path.isdir(builder.root)
    files = _find(builder.root) if is_folder else {"train": builder.root}
    if not files:
        raise DataError(
            f"{builder.name}: no COCO files: looked for annotations/instances_train.json (…val, "
            f"…test; digits behind them), instances_train.json and train/{_BESIDE}"
        )
    masks, outlines = builder.truth_kind == "mask", builder.truth_kind != "boxes"
    table = ObjectTable(NAMES, outlines=outlines)
    parts = {split: Coco(file, table) for split, file in files.items()}
    folders = {split: _image_folder(part) for split, part in parts.items()}
    for split, part in parts.items():
        _check_inside(part, folders[split], builder.root if is_folder else None)
    first = next(iter(parts.values()))
    _check_objects(first, table.close(), outlines)
    ids = _category_ids(first, masks)
    labels = with_names(LabelMap(tuple(ids), tuple(ids.values())), builder.names, partial=True)
    by_id = labels.by_external()
    classes: dict[External, int] = {name: by_id[id] for name, id in ids.items()}
    builder.root = builder.root if is_folder else folders["train"]
    annotations, image_ids = {}, {}
    for split, part in parts.items():
        builder.notes.append(f"{split}: images in {shown(folders[split])}")
        builder.problems += part.problems
        _check_categories(part, ids, split, builder.notes)
        file = below(part.path, builder.root)
        builder.splits[split] = []
        for number, annotation in part.images.items():
            id = builder.id(os.path.join(folders[split], annotation.file))
            builder.splits[split].append(Sample(id, f"{file}#{number}"))
            annotations[id], image_ids[id] = annotation, number
    table.label(classes)
    return builder.build(
        *(ObjectSource, labels),
        table=table,
        annotations=annotations,
        image_ids=image_ids,
        background=classes[BACKGROUND] if masks else IGNORED,
    ).checked()


def _check_inside(part: Coco, folder: str, root: str | None) -> None:
    """A file name that leads out of the data's folder is refused: a data set of others must not
    choose which files of this machine are read."""
    if root is None:  # of a single JSON file, what it and its images have in common
        beside = os.path.dirname(os.path.abspath(part.path))
        listed = os.path.basename(beside).lower() in _FILES
        beside = os.path.dirname(beside) if listed else beside
        root = os.path.commonpath([beside, os.path.abspath(folder)])
    root = os.path.abspath(root)
    outside = [
        (number, image.file)
        for number, image in part.images.items()
        if (os.path.isabs(image.file) or ".." in image.file)
        and not is_below(os.path.abspath(os.path.join(folder, image.file)), root)
    ]
    if outside:
        number, file = outside[0]
        raise DataError(
            f"{shown(part.path)}: the file_name of {counted(len(outside), 'image')} leads out of "
            f"the data's folder {shown(root)}, first that of image {number}: {file!r}. Move or "
            "link the images into that folder, and write file_name relative to where they are"
        )


def _check_objects(part: Coco, table: ObjectTable, outlines: bool) -> None:
    """part: the first file, whose objects are the first of the table."""
    what, count = "", max(image.stop for image in part.images.values())
    if outlines and not (table.outline_kinds()[:count] == 1).any():
        what = "none of its objects has an outline (segmentation) to draw a mask from"
    if not outlines and count and np.isnan(table.boxes[:count]).all():
        what = "none of its objects has a box (bbox); masks can be drawn from their outlines"
    if what:
        raise DataError(f"{shown(part.path)}: {what}")


def _category_ids(part: Coco, masks: bool) -> dict[str, External]:
    """The id of each category, by name; in masks, of the background too."""
    counts = Counter(part.categories.values())
    if twice := [name for name, count in counts.items() if count > 1]:
        raise DataError(f"{shown(part.path)}: two categories are called {', '.join(twice)}")
    ids: dict[str, External] = {name: id for id, name in sorted(part.categories.items())}
    return {BACKGROUND: BACKGROUND, **ids} if masks and BACKGROUND not in ids else ids


def _check_categories(part: Coco, ids: dict[str, External], split: str, notes: list[str]) -> None:
    """Categories of all files are the same by name."""
    unknown = [name for name in part.categories.values() if name not in ids]
    if unknown:
        what = f"has categories that are not in the file of train: {', '.join(unknown)}"
        raise DataError(f"{shown(part.path)}: {what}")
    if any(ids[name] != id for id, name in part.categories.items()):
        what = "its categories have the same names as those of train, but other ids"
        notes.append(f"{split}: {what}; the ids of train are used")


def _image_folder(part: Coco) -> str:
    """Where the images of a file are: of the usual folders, the one that has most of them. Only
    some of the images are looked for; one that is missing is an error when it is read."""
    beside = os.path.dirname(part.path)
    word = os.path.splitext(os.path.basename(part.path))[0].removeprefix("instances_")
    tries = [os.path.normpath(os.path.join(beside, place.format(word))) for place in _PLACES]
    files = [image.file for image in part.images.values()]
    some = files[:: max(len(files) // 20, 1)]

    def count(folder: str) -> int:
        return sum(os.path.exists(os.path.join(folder, file)) for file in some)

    best = max(tries, key=count)
    if not count(best):
        looked = ", ".join(dict.fromkeys(map(shown, tries)))
        raise DataError(f"{shown(part.path)}: its images ({files[0]} …) are not in any of {looked}")
    return best
