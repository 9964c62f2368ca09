"""The table of formats. Adding a format is a row here and a module under `data/`.

A format's module has two functions; it is imported when it is needed.

    recognise(folder) -> bool    whether a folder is laid out in this way; if the format has folders
    read(builder) -> Source      fills the `SourceBuilder` and calls its `build`
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple


class Columns(NamedTuple):
    """What a table calls its columns, if not as we do."""

    path: str | None = None
    label: str | None = None
    split: str | None = None


OUR_COLUMNS = Columns()


class DataFormat(NamedTuple):
    module: str
    """Below `vitreous.data`."""
    truths: tuple[str, ...]
    """The kinds of ground truth that it can have, the usual one first."""
    on_disk: bool = True
    folder: bool = True
    """On disk it is a folder, or may be one."""
    extensions: tuple[str, ...] = ()
    """Of files that are read as this."""
    has_columns: bool = False
    """It is a table, whose columns `Columns` may name."""


_OBJECTS = ("boxes", "mask", "instances")
_EVERY = ("class", "labels", "mask", "boxes", "instances")

FORMATS = {
    "idx": DataFormat("formats.idx", ("class",)),
    "coco": DataFormat("objects.coco", _OBJECTS, extensions=(".json",)),
    "yolo": DataFormat("objects.yolo", _OBJECTS, extensions=(".yaml", ".yml")),
    "voc": DataFormat("objects.voc", ("boxes",)),
    "masks": DataFormat("formats.mask_folders", ("mask",)),
    "instances": DataFormat("objects.instance_pictures", ("instances",)),
    "folder": DataFormat("formats.class_folders", ("class",)),
    "csv": DataFormat(
        "formats.csv_table",
        ("class", "labels"),
        folder=False,
        extensions=(".csv", ".tsv"),
        has_columns=True,
    ),
    "images": DataFormat("formats.image_folder", ("none",)),
    "digits": DataFormat("formats.digits", ("class",), on_disk=False),
    "shapes": DataFormat("formats.shapes", _EVERY, on_disk=False),
    "handwriting": DataFormat("formats.handwriting", _EVERY, on_disk=False),
    "relations": DataFormat("formats.relations", ("class",), on_disk=False),
    "torchvision": DataFormat("formats.torchvision", ("class",), on_disk=False),
}
"""By the name that may stand before a path, as in `folder:PATH`. A folder that looks like several
formats is read as the first of them; class folders are only what looks like nothing else, and a
folder of images without labels is only read as such where none are needed."""

TRUTHS = {
    "class": "a folder for each class, or a table of paths and labels",
    "labels": "a table of paths with several labels for each",
    "mask": "folders of images and of masks, as train/images and train/masks",
    "boxes": "COCO's .json, or a folder as Pascal VOC's or YOLO's",
    "instances": "COCO's .json or YOLO's folder with outlines, or folders as train/images and "
    "train/instances",
    "none": "any folder of images",
}
"""The kinds of ground truth, and what is read as each."""

BUILT_IN = ("digits", "handwriting", "relations", "shapes")
ON_DISK = tuple(name for name, format in FORMATS.items() if format.on_disk)


def module_of(name: str) -> Any:
    return import_module(f"vitreous.data.{FORMATS[name].module}")
