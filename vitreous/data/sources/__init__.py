"""Where images come from: one file for each kind of storage, found by `open_source`."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from vitreous.config import choice
from vitreous.data.images import EXTENSIONS, shown
from vitreous.data.names import Names
from vitreous.data.source import Source
from vitreous.data.sources.builtin import open_digits, open_shapes
from vitreous.data.sources.coco import find_coco, open_coco
from vitreous.data.sources.csv_table import open_csv
from vitreous.data.sources.folder import Scan, open_folder
from vitreous.data.sources.idx import find_idx, open_idx
from vitreous.data.sources.masks import open_masks
from vitreous.data.sources.pairing import find_pairs
from vitreous.errors import DataError, did_you_mean

BUILT_IN = ("digits", "shapes")
ON_DISK = ("folder", "csv", "idx", "masks", "coco")
"""What may stand before a path, as in `folder:PATH`."""
PREFIXES = (*ON_DISK, "torchvision", "shapes")

TASKS: dict[str, tuple[str, ...]] = {
    "digits": ("classify",),
    "shapes": ("classify", "segment", "detect"),
    "folder": ("classify",),
    "csv": ("classify",),
    "idx": ("classify",),
    "torchvision": ("classify",),
    "masks": ("segment",),
    "coco": ("segment",),
}
"""What each kind of data can be used for, its usual task first."""

_WANTED = {
    "classify": "that takes a folder for each class, or a table of paths and labels",
    "segment": "that takes folders of images and of masks, as train/images and train/masks",
    "detect": "that takes boxes: COCO's .json, or a folder as Pascal VOC's or YOLO's",
}


def open_source(
    name: str | Path,
    *,
    task: str | None = None,
    download: bool = False,
    seed: int = 0,
    val_fraction: float = 0.1,
    names: Names | None = None,
) -> Source:
    """The images that `name` means.

    A path is recognised by looking: a folder with IDX files, folders of images and masks, a folder
    of class folders, a .csv or .tsv table, COCO's .json or its folder. `folder:PATH`, `masks:PATH`,
    `csv:PATH`, `coco:PATH` and `idx:PATH` say it. `digits` and `shapes` are built in (`shapes:5000`
    for that many to train on); `torchvision:CIFAR10` is a public data set, which is fetched only
    with `download`.

    task: classify or segment; what the data is for unless given. Data for another is an error.
    seed, val_fraction: where the data has no val, this part of each class of train becomes one.
    names: what the classes are called, see `vitreous.data.names`.
    """
    text = os.fspath(name)
    kind, _, rest = text.partition(":")
    if isinstance(name, Path) or kind not in PREFIXES or not rest:
        built_in = text in BUILT_IN and not isinstance(name, Path)
        kind, rest = (text, "") if built_in else (_recognise(text), text)
    task = _task(kind, task, shown(text))
    if kind == "digits":
        return open_digits(names=names)
    if kind == "shapes":
        return open_shapes(rest, task=task, seed=seed, names=names)
    if kind == "torchvision":
        from vitreous.data.sources.public import open_public

        return open_public(
            rest, download=download, seed=seed, val_fraction=val_fraction, names=names
        )
    openers = {
        "folder": open_folder,
        "csv": open_csv,
        "idx": open_idx,
        "masks": open_masks,
        "coco": open_coco,
    }
    return openers[kind](rest, seed=seed, val_fraction=val_fraction, names=names)


def _task(kind: str, task: str | None, name: str) -> str:
    """What the data shall be used for: as asked, if it can be, or as usual."""
    can = TASKS[kind]
    if task is None:
        if kind == "coco":  # boxes and masks are in the same file
            raise DataError(f"{name}: is a COCO file, which is for several tasks: --task segment")
        return can[0]
    if task not in can:
        known = {each for tasks in TASKS.values() for each in tasks}
        choice("task", task, sorted(known))
        raise DataError(
            f"{name}: was read as {kind}, which is data to {' or '.join(can)}, not to {task}: "
            f"{_WANTED[task]}"
        )
    return task


def same_source(one: str, other: str) -> bool:
    """Whether two names mean the same data, however its path is written."""
    return _place(one) == _place(other)


def _place(name: str) -> str:
    """The real path of data that is on disk, or the name of what is built in."""
    kind, _, rest = name.partition(":")
    path = rest if kind in ON_DISK and rest else name
    if name in BUILT_IN or not os.path.exists(os.path.expanduser(path)):
        return name
    return os.path.realpath(os.path.expanduser(path))


def _recognise(text: str) -> str:
    """folder, masks, coco, csv or idx; an error says what was looked for and what was found."""
    path = os.path.expanduser(text)
    name = shown(text)
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        hint = did_you_mean(text, BUILT_IN)
        raise DataError(
            f"{name}: there is no such file or folder, and it is not built in "
            f"({', '.join(BUILT_IN)}) or torchvision:NAME{hint}"
        ) from None
    except (OSError, ValueError) as error:
        raise DataError(f"{name}: cannot be read: {error}") from None
    if stat.S_ISREG(mode):
        extension = os.path.splitext(path)[1].lower()
        if extension in (".csv", ".tsv", ".json"):
            return "coco" if extension == ".json" else "csv"
        raise DataError(
            f"{name}: a file is understood as data if it is a .csv or .tsv table, or COCO's .json"
            f"{': unpack the archive' if path.endswith(('.zip', '.tar', '.gz', '.tgz')) else ''}"
        )
    if not stat.S_ISDIR(mode):
        raise DataError(f"{name}: is neither a file nor a folder")
    try:
        if find_idx(path):
            return "idx"
        if find_coco(path):
            return "coco"
    except OSError as error:
        raise DataError(f"{name}: cannot be read: {error.strerror}") from None
    images, folders = Scan().look(path)
    if folders:
        return "masks" if find_pairs(path, []) else "folder"
    tables = [file for file in sorted(os.listdir(path)) if file.lower().endswith((".csv", ".tsv"))]
    found = f"{len(images)} images" if images else f"no images ({' '.join(EXTENSIONS)})"
    hint = f": perhaps you mean {os.path.join(name, tables[0])}" if tables else ""
    raise DataError(
        f"{name}: looked for a folder of each class, for IDX files (train-images-idx3-ubyte …), "
        f"and found neither, but {found}{hint}"
    )
