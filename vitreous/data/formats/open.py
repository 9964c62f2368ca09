"""Opens data by its name: recognises the format, and has the format's module read it."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from vitreous.config import choice
from vitreous.data.decode.images import EXTENSIONS, shown
from vitreous.data.formats.builder import SourceBuilder
from vitreous.data.formats.doubts import (
    DATA_FOLDERS,
    READINGS,
    check_class_folders,
    look_into,
    only_folder,
)
from vitreous.data.formats.files import Scan, below, split_of
from vitreous.data.formats.names import Names
from vitreous.data.formats.table import (
    BUILT_IN,
    FORMATS,
    ON_DISK,
    OUR_COLUMNS,
    TRUTHS,
    Columns,
    module_of,
)
from vitreous.data.source import Source
from vitreous.data.split import HoldOut
from vitreous.errors import ConfigError, DataError, did_you_mean
from vitreous.wording import counted

_ARCHIVES = (".zip", ".tar", ".gz", ".tgz")


def open_source(
    name: str | Path,
    *,
    truth: str | None = None,
    download: bool = False,
    seed: int = 0,
    val_fraction: float = HoldOut().val,
    test_fraction: float = HoldOut().test,
    names: Names | None = None,
    columns: Columns = OUR_COLUMNS,
) -> Source:
    """The images that `name` means.

    A path is recognised by its content: a folder with IDX files, COCO's .json or its folder, YOLO's
    data.yaml or its folder, a folder as Pascal VOC's, folders of images and masks, a folder of
    class folders, a .csv or .tsv table. The format's name before it, as in `voc:PATH`, decides.
    `digits`, `handwriting`, `relations` and `shapes` are built in (`shapes:5000` has so many to
    train on);
    `torchvision:CIFAR10` is a public data set, which is downloaded only with `download`.

    truth: the kind of ground truth, class, labels, mask or boxes; the usual one of the data unless
        given. Data that has another is an error. With none, any folder of images is read, and what
        is known of them is only kept beside them (`Source.labelled`).
    seed, val_fraction, test_fraction: where the data has no val or no test, this part of each class
        of train becomes one; val is taken from what test leaves.
    names: the names of the classes, see `vitreous.data.formats.names`.
    columns: the columns of a table that are called otherwise than path, label and split.
    """
    text = os.fspath(name)
    prefix, _, path = text.partition(":")
    if isinstance(name, str) and text in BUILT_IN:
        formats, path = [text], ""
    elif isinstance(name, str) and path and prefix in FORMATS:
        formats = [prefix]
    else:
        formats, path = _recognise(text, images=truth == "none"), text
    if images := truth == "none":
        truth = None
    format = _choose(formats, truth, shown(text))
    if any(columns) and not FORMATS[format].has_columns:
        raise ConfigError(
            f"{shown(text)}: was read as {format}, which has no columns: leave out --path-column, "
            "--label-column and --split-column"
        )
    truth_kind = truth or FORMATS[format].truths[0]
    hold_out = HoldOut(val_fraction, test_fraction, seed)
    builder = SourceBuilder(
        path, format, truth_kind, truth is not None, download, hold_out, names, columns
    )
    source: Source
    try:
        source = module_of(format).read(builder)
        classes = len(source.labels)
    except DataError:
        if not images or format != "folder":
            raise
        classes = 0
    if images and format == "folder" and classes < 2:  # folders that are no classes
        return open_source(
            f"images:{path}", seed=seed, val_fraction=val_fraction, test_fraction=test_fraction
        )
    if images:
        source = source.unlabelled()
    source.notes += [
        f"was read as {format}; {other}:PATH reads it as {other}"
        for other in formats
        if other != format
    ]
    return source


def _choose(formats: list[str], truth: str | None, name: str) -> str:
    """Of the formats that data may have, the first with the ground truth that is asked for."""
    if truth is None:
        return formats[0]
    choice("truth", truth, TRUTHS)
    for format in formats:
        if truth in FORMATS[format].truths:
            return format
    has = " or ".join(dict.fromkeys(each for format in formats for each in FORMATS[format].truths))
    raise DataError(
        f"{name}: was read as {' or '.join(formats)}, whose ground truth is {has}, not {truth}: "
        f"use {TRUTHS[truth]}"
    )


def is_there(name: str) -> bool:
    """Whether data on disk is where its name says; other data is everywhere."""
    format, _, rest = name.partition(":")
    if name in BUILT_IN or (rest and format in FORMATS and format not in ON_DISK):
        return True
    return os.path.exists(os.path.expanduser(rest if format in ON_DISK and rest else name))


def is_table(name: str) -> bool:
    """Whether the name is that of a file with columns."""
    endings = tuple(
        end for format in FORMATS.values() if format.has_columns for end in format.extensions
    )
    return name.lower().endswith(endings)


def same_source(one: str, other: str) -> bool:
    """Whether two names mean the same data, however its path is written."""
    return _place(one) == _place(other)


def _place(name: str) -> str:
    """The real path of data on disk, or the name of built-in data."""
    format, _, rest = name.partition(":")
    path = os.path.expanduser(rest if format in ON_DISK and rest else name)
    return os.path.realpath(path) if name not in BUILT_IN and os.path.exists(path) else name


def _recognise(text: str, *, images: bool = False) -> list[str]:
    """The formats that a path may have, the most likely first; `images` without labels will do."""
    path, name = os.path.expanduser(text), shown(text)
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        raise DataError(
            f"{name}: there is no such file or folder, and it is not built in "
            f"({', '.join(BUILT_IN)}) or torchvision:NAME{did_you_mean(text, BUILT_IN)}"
        ) from None
    except (OSError, ValueError) as error:
        raise DataError(f"{name}: cannot be read: {error}") from None
    if stat.S_ISREG(mode):
        extension = os.path.splitext(path)[1].lower()
        for format, row in FORMATS.items():
            if extension in row.extensions:
                return [format]
        raise DataError(
            f"{name}: is not a .csv or .tsv table, COCO's .json or YOLO's .yaml"
            f"{': unpack the archive' if extension in _ARCHIVES else ''}"
        )
    if not stat.S_ISDIR(mode):
        raise DataError(f"{name}: is neither a file nor a folder")
    try:
        return _recognise_folder(path, name)
    except DataError:
        if not images:
            raise
        return ["images"]


def _check_nesting(path: str, name: str) -> None:
    """A single class may be a folder too many: data inside a folder is not one class."""
    inner = only_folder(path)
    if not inner:
        return
    try:
        (format, *_) = _recognise_folder(inner, shown(inner))
    except DataError:
        return  # it has nothing but images
    has = "class folders" if format == "folder" else f"data to be read as {format}"
    raise DataError(
        f"{name}: has a single folder, and {shown(os.path.relpath(inner, path))} in it has {has}: "
        f"did you mean {os.path.join(name, os.path.relpath(inner, path))}? folder:{name} reads it "
        "as one class"
    )


def _check_repository(path: str, name: str) -> None:
    """A data set among other folders, as in a repository: one folder has most of the images and is
    laid out as data is, and the others are not. Classes are alike, whatever is in them."""
    folders = [seen for seen in look_into(path) if seen.images]
    total = sum(seen.images for seen in folders)
    if len(folders) < 2 or any(split_of(seen.path) for seen in folders):
        return
    largest = max(folders, key=lambda seen: seen.images)
    if largest.images <= total / 2 or not (found := _data_inside(largest.path)):
        return
    if any(_data_inside(seen.path) for seen in folders if seen is not largest):
        return
    inner, what = found
    raise DataError(
        f"{name}: {below(inner, path)} in it has {what}, and {largest.images:,} of the {total:,} "
        f"images: did you mean {os.path.join(name, below(inner, path))}? folder:{name} reads each "
        f"of {', '.join(shown(os.path.basename(seen.path)) for seen in folders)} as a class"
    )


def _data_inside(folder: str, depth: int = 3) -> tuple[str, str] | None:
    """The folder at or below one that is laid out as a data set, and how."""
    for format in ON_DISK:
        if FORMATS[format].folder and format not in ("folder", "images"):
            with suppress(DataError, OSError):  # what is unclear is none
                if module_of(format).recognise(folder):
                    return folder, f"data to be read as {format}"
    images, folders = Scan().look(folder)
    if "train" in map(split_of, folders):
        return folder, "splits"
    if os.path.basename(folder).lower() in DATA_FOLDERS and len(folders) > 1 and not images:
        return folder, "class folders"
    if depth == 1 or images:
        return None
    inside = (_data_inside(inner, depth - 1) for inner in sorted(folders))
    return next(filter(None, inside), None)


def _recognise_folder(path: str, name: str) -> list[str]:
    formats: list[str] = []
    for format in ON_DISK:
        if not FORMATS[format].folder or (format == "folder" and formats):
            continue
        try:
            if module_of(format).recognise(path):
                formats.append(format)
        except OSError as error:
            raise DataError(f"{name}: cannot be read: {error.strerror}") from None
        except DataError:  # an unclear case of another format does not matter
            if not formats:
                raise
    if formats == ["folder"]:
        check_class_folders(path, name)
        _check_nesting(path, name)
        _check_repository(path, name)
    if formats:
        return formats
    images = Scan().look(path)[0]
    tables = [file for file in sorted(os.listdir(path)) if file.lower().endswith((".csv", ".tsv"))]
    if tables:
        hint = f": perhaps you mean {os.path.join(name, tables[0])}"
    elif images:
        hint = f": looked for {'; '.join(f'{format}: {what}' for format, what in READINGS.items())}"
    else:
        raise DataError(f"{name}: has no images ({' '.join(EXTENSIONS)}) and no folders")
    what = (
        f"{counted(len(images), 'image')}, and nothing that says what they show"
        if images
        else "a table"
    )
    raise DataError(f"{name}: has {what}{hint}")
