"""Where images come from: one file for each kind of storage, found by `open_source`."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from vitreous.config import choice
from vitreous.data.decode.images import EXTENSIONS, shown
from vitreous.data.formats.builtin import open_digits, open_shapes
from vitreous.data.formats.coco import find_coco, open_coco
from vitreous.data.formats.csv_table import open_csv
from vitreous.data.formats.folder import Scan, open_folder
from vitreous.data.formats.idx import find_idx, open_idx
from vitreous.data.formats.masks import open_masks
from vitreous.data.formats.names import Names
from vitreous.data.formats.pairing import find_pairs
from vitreous.data.formats.voc import find_voc, open_voc
from vitreous.data.formats.yolo import find_yolo, open_yolo
from vitreous.data.source import Source
from vitreous.data.split import VAL_FRACTION
from vitreous.errors import DataError, did_you_mean

BUILT_IN = ("digits", "shapes")
ON_DISK = ("folder", "csv", "idx", "masks", "coco", "voc", "yolo")
"""What may stand before a path, as in `folder:PATH`."""
PREFIXES = (*ON_DISK, "torchvision", "shapes")

TRUTHS: dict[str, tuple[str, ...]] = {
    "digits": ("class",),
    "shapes": ("class", "mask", "boxes"),
    "folder": ("class",),
    "csv": ("class",),
    "idx": ("class",),
    "torchvision": ("class",),
    "masks": ("mask",),
    "coco": ("boxes", "mask"),
    "voc": ("boxes",),
    "yolo": ("boxes",),
}
"""The kinds of ground truth that each format can give, the usual one first."""

_LAYOUTS = {
    "class": "a folder for each class, or a table of paths and labels",
    "labels": "a table of paths with several labels for each",
    "mask": "folders of images and of masks, as train/images and train/masks",
    "boxes": "COCO's .json, or a folder as Pascal VOC's or YOLO's",
}
"""Where each kind of ground truth is found."""

_FILES = {
    **{".csv": "csv", ".tsv": "csv"},
    **{".json": "coco", ".yaml": "yolo", ".yml": "yolo"},
}
"""What a file is read as."""

_FOLDERS: dict[str, Callable[[str], object]] = {
    "idx": find_idx,
    "coco": find_coco,
    "yolo": find_yolo,
    "voc": find_voc,
    "masks": lambda folder: find_pairs(folder, []),
}
"""What finds whether a folder is laid out as some kind of data; the first is meant if several do.
Folders that are nothing of all this have classes."""


def open_source(
    name: str | Path,
    *,
    truth: str | None = None,
    download: bool = False,
    seed: int = 0,
    val_fraction: float = VAL_FRACTION,
    names: Names | None = None,
) -> Source:
    """The images that `name` means.

    A path is recognised by looking: a folder with IDX files, COCO's .json or its folder, YOLO's
    data.yaml or its folder, a folder as Pascal VOC's, folders of images and masks, a folder of
    class folders, a .csv or .tsv table. `folder:PATH`, `csv:PATH`, `idx:PATH`, `masks:PATH`,
    `coco:PATH`, `voc:PATH` and `yolo:PATH` say it. `digits` and `shapes` are built in
    (`shapes:5000` for that many to train on); `torchvision:CIFAR10` is a public data set, which is
    fetched only with `download`.

    truth: the kind of ground truth that is wanted, class, labels, mask or boxes; the usual one of
        the format unless given. Data that has another is an error.
    seed, val_fraction: where the data has no val, this part of each class of train becomes one.
    names: what the classes are called, see `vitreous.data.formats.names`.
    """
    text = os.fspath(name)
    kind, _, rest = text.partition(":")
    kinds = [kind]
    if isinstance(name, Path) or kind not in PREFIXES or not rest:
        built_in = text in BUILT_IN and not isinstance(name, Path)
        kinds, rest = ([text], "") if built_in else (_recognise(text), text)
    kind, truth = _choose(kinds, truth, shown(text))
    source = _open(kind, rest, truth, download, seed, val_fraction, names)
    for other in kinds:
        if other != kind:
            source.notes.append(f"was read as {kind}; {other}:PATH reads it as {other}")
    return source


def _open(
    kind: str,
    rest: str,
    truth: str,
    download: bool,
    seed: int,
    val_fraction: float,
    names: Names | None,
) -> Source:
    if kind == "digits":
        return open_digits(names=names)
    if kind == "shapes":
        return open_shapes(rest, truth=truth, seed=seed, names=names)
    if kind == "torchvision":
        from vitreous.data.formats.torchvision import open_public

        return open_public(
            rest, download=download, seed=seed, val_fraction=val_fraction, names=names
        )
    if kind == "coco":
        return open_coco(rest, truth=truth, seed=seed, val_fraction=val_fraction, names=names)
    openers = {
        "folder": open_folder,
        "csv": open_csv,
        "idx": open_idx,
        "masks": open_masks,
        "voc": open_voc,
        "yolo": open_yolo,
    }
    return openers[kind](rest, seed=seed, val_fraction=val_fraction, names=names)


def _choose(kinds: list[str], truth: str | None, name: str) -> tuple[str, str]:
    """Of the formats that data may have, the first that gives the wanted ground truth."""
    if truth is None:
        return kinds[0], TRUTHS[kinds[0]][0]
    choice("truth", truth, _LAYOUTS)
    for kind in kinds:
        if truth in TRUTHS[kind]:
            return kind, truth
    has = " or ".join(dict.fromkeys(each for kind in kinds for each in TRUTHS[kind]))
    raise DataError(
        f"{name}: was read as {' or '.join(kinds)}, whose ground truth is {has}; {truth} is "
        f"wanted: use {_LAYOUTS[truth]}"
    )


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


def _recognise(text: str) -> list[str]:
    """What a path may be read as, what is most likely first; an error says what was looked for and
    what was found."""
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
        if extension in _FILES:
            return [_FILES[extension]]
        raise DataError(
            f"{name}: a file is understood as data if it is a .csv or .tsv table, COCO's .json or "
            "YOLO's .yaml"
            f"{': unpack the archive' if path.endswith(('.zip', '.tar', '.gz', '.tgz')) else ''}"
        )
    if not stat.S_ISDIR(mode):
        raise DataError(f"{name}: is neither a file nor a folder")
    if kinds := _kinds(path, name):
        return kinds
    images, folders = Scan().look(path)
    if folders:
        return ["folder"]
    tables = [file for file in sorted(os.listdir(path)) if file.lower().endswith((".csv", ".tsv"))]
    found = f"{len(images)} images" if images else f"no images ({' '.join(EXTENSIONS)})"
    hint = f": perhaps you mean {os.path.join(name, tables[0])}" if tables else ""
    raise DataError(
        f"{name}: looked for a folder of each class, for IDX files (train-images-idx3-ubyte …), "
        f"and found neither, but {found}{hint}"
    )


def _kinds(folder: str, name: str) -> list[str]:
    """What a folder may be read as, if not as classes."""
    kinds: list[str] = []
    for kind, find in _FOLDERS.items():
        try:
            if find(folder):
                kinds.append(kind)
        except OSError as error:
            raise DataError(f"{name}: cannot be read: {error.strerror}") from None
        except DataError:  # that it is no clear case of another kind does not matter
            if not kinds:
                raise
    return kinds
