"""Where images come from: one file for each kind of storage, found by `open_source`."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from vitreous.data.images import EXTENSIONS, shown
from vitreous.data.names import Names
from vitreous.data.source import Source
from vitreous.data.sources.builtin import open_digits, open_shapes
from vitreous.data.sources.csv_table import open_csv
from vitreous.data.sources.folder import Scan, open_folder
from vitreous.data.sources.idx import find_idx, open_idx
from vitreous.errors import DataError, did_you_mean

BUILT_IN = ("digits", "shapes")
PREFIXES = ("folder", "csv", "idx", "torchvision", "shapes")


def open_source(
    name: str | Path,
    *,
    download: bool = False,
    seed: int = 0,
    val_fraction: float = 0.1,
    names: Names | None = None,
) -> Source:
    """The images that `name` means.

    A path is recognised by looking: a folder with IDX files, a folder of class folders, a .csv or
    .tsv table. `folder:PATH`, `csv:PATH` and `idx:PATH` say it. `digits` and `shapes` are built in
    (`shapes:5000` for that many to train on); `torchvision:CIFAR10` is a public data set, which is
    fetched only with `download`.

    seed, val_fraction: where the data has no val, this part of each class of train becomes one.
    names: what the classes are called, see `vitreous.data.names`.
    """
    text = os.fspath(name)
    kind, _, rest = text.partition(":")
    if isinstance(name, Path) or kind not in PREFIXES or not rest:
        built_in = text in BUILT_IN and not isinstance(name, Path)
        kind, rest = (text, "") if built_in else (_recognise(text), text)
    if kind == "digits":
        return open_digits(names=names)
    if kind == "shapes":
        return open_shapes(rest, seed=seed, names=names)
    if kind == "torchvision":
        from vitreous.data.sources.public import open_public

        return open_public(
            rest, download=download, seed=seed, val_fraction=val_fraction, names=names
        )
    openers = {"folder": open_folder, "csv": open_csv, "idx": open_idx}
    return openers[kind](rest, seed=seed, val_fraction=val_fraction, names=names)


def same_source(one: str, other: str) -> bool:
    """Whether two names mean the same data, however its path is written."""
    return _place(one) == _place(other)


def _place(name: str) -> str:
    """The real path of data that is on disk, or the name of what is built in."""
    kind, _, rest = name.partition(":")
    path = rest if kind in ("folder", "csv", "idx") and rest else name
    if name in BUILT_IN or not os.path.exists(os.path.expanduser(path)):
        return name
    return os.path.realpath(os.path.expanduser(path))


def _recognise(text: str) -> str:
    """folder, csv or idx; an error says what was looked for and what was found."""
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
        if os.path.splitext(path)[1].lower() in (".csv", ".tsv"):
            return "csv"
        raise DataError(
            f"{name}: a file is understood as data if it is a .csv or .tsv table"
            f"{': unpack the archive' if path.endswith(('.zip', '.tar', '.gz', '.tgz')) else ''}"
        )
    if not stat.S_ISDIR(mode):
        raise DataError(f"{name}: is neither a file nor a folder")
    try:
        if find_idx(path):
            return "idx"
    except OSError as error:
        raise DataError(f"{name}: cannot be read: {error.strerror}") from None
    images, folders = Scan().look(path)
    if folders:
        return "folder"
    tables = [file for file in sorted(os.listdir(path)) if file.lower().endswith((".csv", ".tsv"))]
    found = f"{len(images)} images" if images else f"no images ({' '.join(EXTENSIONS)})"
    hint = f": perhaps you mean {os.path.join(name, tables[0])}" if tables else ""
    raise DataError(
        f"{name}: looked for a folder of each class, for IDX files (train-images-idx3-ubyte …), "
        f"and found neither, but {found}{hint}"
    )
