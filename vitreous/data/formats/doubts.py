"""Folders that could be read as class folders, but probably are something else.

Nearly every folder has folders with some image in them. What is no data, or has its classes
elsewhere, is an error that lists what was seen; `folder:PATH` reads it as class folders anyway.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass

from vitreous.data.decode.images import EXTENSIONS, shown
from vitreous.data.formats.files import Scan, below, split_of
from vitreous.data.formats.pairing import meaning
from vitreous.errors import DataError
from vitreous.wording import counted

CODE = (
    *(".py", ".pyc", ".pyi", ".pyd", ".so", ".dll", ".exe", ".js", ".ts", ".css", ".c", ".h"),
    *(".cc", ".cpp", ".hpp", ".java", ".go", ".rs", ".rb", ".m", ".sh", ".bat", ".ipynb"),
)
"""Files that are no part of image data."""
PROGRAMS = ("pyvenv.cfg", "setup.py", "pyproject.toml", "package.json", "Cargo.toml", "go.mod")
"""Files at the root of a program; what has one and code in its folders is no data."""
MUCH_CODE = 0.25
"""Files of code for each image, from which a folder is a program."""

NEVER_CLASSES = (
    *("images", "image", "imgs", "img", "jpegimages", "leftimg8bit"),
    *("annotations", "annotation", "annots", "annot", "segmentationclass", "gtfine", "groundtruth"),
)
"""Of the usual names of folders of images and labels, those that are never a class: `photos` and
`masks` may be."""

DATA_FOLDERS = ("data", "dataset", "datasets")
"""What a folder of data is called in a repository."""

READINGS = {
    "folder": "each folder is a class",
    "masks": "each image has a mask, as images/1.jpg and masks/1.png, or 1.jpg and 1_mask.png",
    "instances": "each pixel has the number of its object, as images/1.jpg and instances/1.png",
    "yolo": "each image has a text file, as images/1.jpg and labels/1.txt",
    "voc": "each image has an XML file, as JPEGImages/1.jpg and Annotations/1.xml",
    "coco": "a JSON file has all objects, as annotations/instances_train.json",
}
"""What a folder with images may be, and how it is recognised."""
_SHOWN = 8


@dataclass
class Seen:
    """What a folder has below it."""

    path: str
    images: int
    others: Counter[str]

    def __str__(self) -> str:
        kinds = [f"{counted(self.images, 'image')}"] if self.images else []
        kinds += [f"{count:,} {kind}" for kind, count in self.others.most_common(3)]
        return f"{shown(os.path.basename(self.path))} ({', '.join(kinds) or 'empty'})"


def look_into(folder: str) -> list[Seen]:
    """The folders inside a folder, or inside its splits."""
    found = []
    for inner in sorted(Scan().look(folder)[1]):
        scan = Scan()
        found.append(Seen(inner, len(scan.images(inner)), scan.skipped))
    return found


def check_class_folders(folder: str, name: str) -> None:
    """A folder that is probably no folder of classes is an error."""
    root = look_into(folder)
    _check_data(folder, name, root)
    splits = [seen for seen in root if split_of(seen.path) and seen.images]
    others = [seen for seen in root if not split_of(seen.path) and seen.images]
    classes = others or [seen for split in splits for seen in look_into(split.path)]
    classes = [seen for seen in classes if seen.images]
    words = [os.path.basename(seen.path).lower() for seen in classes]
    odd = [word for word in words if word in NEVER_CLASSES]
    if words and (odd or all(meaning(word)[1] for word in words)):
        which = ", ".join(dict.fromkeys(odd or words))
        readings = "; ".join(f"{format}:PATH if {what}" for format, what in READINGS.items())
        raise DataError(
            f"{name}: has folders that are called as those of images and labels are, not as "
            f"classes: {which}. Seen: {_listed(root, folder)}. Write {readings}"
        )


def _check_data(folder: str, name: str, root: list[Seen]) -> None:
    images = sum(seen.images for seen in root)
    if not images:
        raise DataError(
            f"{name}: no images in its folders ({' '.join(EXTENSIONS)}). Seen: "
            f"{_listed(root, folder)}"
        )
    code = sum(count for seen in root for kind, count in seen.others.items() if kind in CODE)
    program = [file for file in PROGRAMS if os.path.isfile(os.path.join(folder, file))]
    if code >= MUCH_CODE * images or (code and program):
        what = f" ({', '.join(program)})" if program else ""
        raise DataError(
            f"{name}: looks like a program{what}, not like image data. Seen: "
            f"{_listed(root, folder)}. Give the folder of the images; folder:{name} reads each of "
            "these folders as a class"
        )


def _listed(root: list[Seen], folder: str) -> str:
    more = f" and {len(root) - _SHOWN} more" if len(root) > _SHOWN else ""
    inside = {
        seen.path: [each for each in look_into(seen.path) if split_of(seen.path)] for seen in root
    }
    parts = [
        f"{below(seen.path, folder)}/{{{', '.join(map(str, inside[seen.path]))}}}"
        if inside[seen.path]
        else str(seen)
        for seen in root[:_SHOWN]
    ]
    return ", ".join(parts) + more if parts else "nothing"


def only_folder(folder: str) -> str:
    """The folder inside that has everything, through several levels; "" if there is none."""
    found = ""
    while True:
        images, folders = Scan().look(found or folder)
        folders = [inner for inner in folders if Scan().images(inner)]
        if images or len(folders) != 1 or split_of(folders[0]):
            return found
        found = folders[0]
