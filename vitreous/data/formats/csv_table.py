"""A table with a header: `path,label` and optionally `split`. Paths start at the table's folder.

Labels are names, or whole numbers where all of them are. Commas, semicolons and tabs are
understood.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator
from itertools import zip_longest

from vitreous.data.decode.images import shown
from vitreous.data.formats.files import FileSource
from vitreous.data.formats.folder import SPLIT_FOLDERS
from vitreous.data.formats.names import Names, with_names
from vitreous.data.source import Problem, Sample
from vitreous.data.split import VAL_FRACTION, with_val
from vitreous.errors import DataError, did_you_mean
from vitreous.labels import LabelMap, natural

Row = tuple[str, str, str, int]  # path, label, split, line


def open_csv(
    path: str,
    *,
    root: str | None = None,
    seed: int = 0,
    val_fraction: float = VAL_FRACTION,
    names: Names | None = None,
) -> FileSource:
    file = os.path.expanduser(path)
    rows = list(_rows(file, shown(path)))
    if not rows:
        raise DataError(f"{shown(path)}: the table has no rows below its header")
    problems: list[Problem] = []
    rows = _once(rows, shown(path), problems)
    all_numbers = all(re.fullmatch(r"-?(0|[1-9]\d{0,17})", label) for _, label, _, _ in rows)
    labels = (
        LabelMap.of_ids(int(label) for _, label, _, _ in rows)
        if all_numbers
        else LabelMap.of_names(label for _, label, _, _ in rows)
    )
    classes = {str(external): number for number, external in enumerate(labels.external)}
    splits: dict[str, list[Sample]] = {}
    for image, label, split, _ in rows:
        splits.setdefault(split, []).append(Sample(image, classes[label]))
    if "train" in splits:
        learned = {label for _, label, split, _ in rows if split == "train"}
        for _, label, split, line in rows:
            if label not in learned:
                hint = did_you_mean(label, learned)
                raise DataError(
                    f"{shown(path)}, line {line}: class {label!r} is in {split} but not in "
                    f"train{hint}"
                )
    for samples in splits.values():
        samples.sort(key=lambda sample: natural(sample.id))
    notes: list[str] = []
    return FileSource(
        name=shown(path),
        kind="csv",
        labels=with_names(labels, names),
        splits=with_val(splits, val_fraction, seed, notes),
        notes=notes,
        problems=problems,
        root=root if root is not None else os.path.dirname(file),
    )


def _rows(file: str, name: str) -> Iterator[Row]:
    line = 1
    try:
        with open(file, encoding="utf-8-sig", newline="") as opened:
            first = opened.readline()
            opened.seek(0)
            separator = max(",;\t", key=first.count)
            # strict: a quote that nobody closes would make all rows behind it one label
            reader = csv.reader(opened, delimiter=separator, strict=True)
            header = _header(next(reader, []), name)
            line = reader.line_num + 1
            for cells in reader:
                if cells:
                    yield _row(header, cells, name, line)
                line = reader.line_num + 1
    except OSError as error:
        raise DataError(f"{name}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{name}: is not text in UTF-8 ({error.reason})") from None
    except csv.Error as error:
        what = "a quote is opened here and never closed" if "end of data" in str(error) else error
        raise DataError(f"{name}, line {line}: cannot be understood: {what}") from None


def _header(cells: list[str], name: str) -> list[str]:
    header = [column.strip().lower() for column in cells]
    missing = [column for column in ("path", "label") if column not in header]
    if missing:
        found = f"it has {', '.join(header)}" if any(header) else "it is empty"
        raise DataError(
            f"{name}: the header has no column {missing[0]!r}: {found}. "
            "The first line must name the columns path, label and perhaps split"
        )
    return header


def _row(header: list[str], cells: list[str], name: str, line: int) -> Row:
    where = f"{name}, line {line}"
    if len(cells) > len(header):
        raise DataError(f"{where}: has more values than the header has columns")
    values = dict(zip_longest(header, cells, fillvalue=""))
    for column in ("path", "label"):
        if "\n" in values[column] or "\r" in values[column]:
            raise DataError(
                f"{where}: the {column} has a line break in it: is a quote missing at its end?"
            )
    path, label = values["path"].strip(), values["label"].strip()
    if not path or not label:
        raise DataError(f"{where}: has no {'path' if not path else 'label'}")
    text = values.get("split", "").strip().lower() or "train"
    if text not in SPLIT_FOLDERS:
        raise DataError(f"{where}: split {text!r} is not known: use train, val or test")
    return os.path.normpath(path).replace(os.sep, "/"), label, SPLIT_FOLDERS[text], line


def _once(rows: list[Row], name: str, problems: list[Problem]) -> list[Row]:
    """Each image once; the same line twice does not matter, two answers for one image do."""
    seen: dict[str, Row] = {}
    for row in rows:
        first = seen.setdefault(row[0], row)
        if first[1:3] != row[1:3]:
            raise DataError(
                f"{name}, line {row[3]}: {row[0]} is {row[1]!r} in {row[2]}, but line {first[3]} "
                f"says {first[1]!r} in {first[2]}"
            )
        if first is not row:
            what = f"line {row[3]} of {name} repeats line {first[3]}"
            problems.append(Problem(row[0], what, fatal=False))
    return list(seen.values())
