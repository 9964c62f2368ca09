"""Tables with a header: the column `path`, the labels of each image, and optionally `split`.

One class per image is a column `label`. Several labels per image are a column `labels` or `tags`
(or `label`) with "cat;dog", "cat|dog", "cat, dog" or ["cat", "dog"], or one column of 0 and 1 for
each label; an image may have none. Labels are names, or whole numbers where all of them are.

Tables that call these columns otherwise are read with `Columns`. Paths start at the table's folder.
Columns may be separated by commas, semicolons or tabs.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

from vitreous.data.formats.builder import SourceBuilder
from vitreous.data.formats.files import SPLIT_FOLDERS, FileSource, read_text
from vitreous.data.formats.names import spelling_problems, with_names
from vitreous.data.formats.table import Columns
from vitreous.data.source import Problem, Sample
from vitreous.errors import DataError, did_you_mean, naming
from vitreous.labels import LabelMap
from vitreous.wording import counted

_COLUMNS = ("path", "split", "label", "labels", "tags")
_FLAGS = {"0": False, "0.0": False, "false": False, "1": True, "1.0": True, "true": True}
_SHOWN = 8  # labels in a note


@dataclass(slots=True)
class TableRow:
    where: str
    """What errors begin with: the table and the line."""
    line: int
    path: str
    split: str
    cells: dict[str, str]
    """By column."""
    labels: tuple[str, ...] = ()
    """Once they are read."""


def read(builder: SourceBuilder) -> FileSource:
    columns, rows = _read_rows(builder)
    builder.root = os.path.dirname(builder.root)
    table = _Table(builder, columns, rows)
    if not builder.asked and table.has_several():
        builder.truth_kind = "labels"
    single = builder.truth_kind == "class"
    labels = _label_map(table.read_class() if single else table.read_labels())
    classes = {str(id): number for id, number in labels.by_external().items()}
    for row in table.each_image_once():
        target = tuple(sorted(classes[label] for label in row.labels))
        sample = Sample(row.path, target[0] if single else target)
        builder.splits.setdefault(row.split, []).append(sample)
        builder.lines[row.path] = row.line
    return builder.build(FileSource, with_names(labels, builder.names))


def _label_map(names: set[str]) -> LabelMap:
    if all(re.fullmatch(r"-?(0|[1-9]\d{0,17})", name) for name in names):
        return LabelMap.of_ids(map(int, names))
    return LabelMap.of_names(names)


# ---- rows


def _read_rows(builder: SourceBuilder) -> tuple[list[str], list[TableRow]]:
    """The columns and the rows below them."""
    name, text = builder.name, read_text(builder.root)
    separator = max(",;\t", key=text.partition("\n")[0].count)
    # strict: a quote that is never closed would make all rows behind it one label
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    rows, line = [], 1
    try:
        columns = _columns(next(reader, []), name, builder.columns)
        line = reader.line_num + 1
        for cells in reader:
            if cells:
                rows.append(_row(columns, cells, name, line))
            line = reader.line_num + 1
    except csv.Error as error:
        what = "a quote is opened here and never closed" if "end of data" in str(error) else error
        raise DataError(f"{name}, line {line}: cannot be understood: {what}") from None
    if not rows:
        raise DataError(f"{name}: the table has no rows below its header")
    return columns, rows


def _columns(cells: list[str], name: str, given: Columns) -> list[str]:
    """The header with our own names of the columns that have one; others as they are."""
    stripped = [cell.strip() for cell in cells]
    columns = [cell.lower() if cell.lower() in _COLUMNS else cell for cell in stripped]
    for ours, theirs in given._asdict().items():
        if theirs is None:
            continue
        if theirs not in stripped:
            hint = did_you_mean(theirs, stripped)
            found = ", ".join(filter(None, stripped)) or "nothing"
            what = f"--{ours}-column {theirs}: the header has no such column{hint}; it has {found}"
            raise DataError(f"{name}: {what}")
        # a column that only happens to have our name is not used
        columns = ["" if column == ours else column for column in columns]
        columns[stripped.index(theirs)] = ours
    if "path" not in columns:
        raise _missing("path", columns, name)
    if twice := [column for column in columns if column and columns.count(column) > 1]:
        raise DataError(f"{name}: two columns of the header are called {twice[0]!r}: keep one")
    return columns


def _missing(column: str, columns: list[str], name: str) -> DataError:
    found = f"it has {', '.join(columns)}" if any(columns) else "it is empty"
    return DataError(
        f"{name}: the header has no column {column!r}: {found}. The first line must name the "
        "columns path, label and perhaps split; for several labels per image, path and labels, or "
        "path and a column of 0 and 1 for each label. If they are called otherwise, name them with "
        "--path-column, --label-column and --split-column"
    )


def _row(columns: list[str], cells: list[str], name: str, line: int) -> TableRow:
    where = f"{name}, line {line}"
    with naming(where):
        if len(cells) > len(columns):
            raise DataError("has more values than the header has columns")
        values = dict(zip_longest(columns, map(str.strip, cells), fillvalue=""))
        for column in _COLUMNS:
            if {"\n", "\r"} & set(values.get(column, "")):
                what = "has a line break in it: is a quote missing at its end?"
                raise DataError(f"the {column} {what}")
        if not values["path"]:
            raise DataError("has no path")
        if "\0" in values["path"]:
            raise DataError("the path has a zero byte in it, which no file's name can have")
        split = values.get("split", "").lower() or "train"
        if split not in SPLIT_FOLDERS:
            raise DataError(f"split {split!r} is not known: use train, val or test")
    path = os.path.normpath(values["path"]).replace(os.sep, "/")
    return TableRow(where, line, path, SPLIT_FOLDERS[split], values)


# ---- labels


@dataclass
class _Table:
    """Gives its rows their labels; each reading returns the names of all of them."""

    builder: SourceBuilder
    columns: list[str]
    rows: list[TableRow]

    def __post_init__(self) -> None:
        self.flags = [column for column in self.columns if self._is_flags(column)]
        self.lists = [column for column in ("labels", "tags") if column in self.columns]

    def _is_flags(self, column: str) -> bool:
        """A column of 0 and 1. Half of its values are enough, so that a typing error is found."""
        if not column or column in _COLUMNS:
            return False
        return 2 * sum(row.cells[column].lower() in _FLAGS for row in self.rows) >= len(self.rows)

    def has_several(self) -> bool:
        """Whether images have several labels, if the user does not decide."""
        if "label" in self.columns:
            return any(";" in row.cells["label"] or "|" in row.cells["label"] for row in self.rows)
        return bool(self.lists) or len(self.flags) > 1

    def read_class(self) -> set[str]:
        """One class per image."""
        if "label" not in self.columns:
            raise _missing("label", self.columns, self.builder.name)
        for row in self.rows:
            row.labels = (row.cells["label"],)
            if not row.labels[0]:
                raise DataError(f"{row.where}: has no label")
        if others := self.lists or (self.flags if len(self.flags) > 1 else []):
            what = f"--task can read several from {', '.join(others[:_SHOWN])}"
            self.builder.notes.append(f"one class per image, from the column 'label'; {what}")
        return {row.labels[0] for row in self.rows}

    def read_labels(self) -> set[str]:
        """Any number of labels per image."""
        if self.lists:
            names = self._read_lists(self.lists[0])
        elif "label" in self.columns and (self.has_several() or not self.flags):
            names = self._read_lists("label")
        elif self.flags:
            names = self._read_flags()
        else:
            raise _missing("labels", self.columns, self.builder.name)
        self.builder.problems += spelling_problems(self.builder.name, names)
        if empty := sum(not row.labels for row in self.rows):
            self.builder.notes.append(f"without a label: {counted(empty, 'image')}")
        return names

    def _read_flags(self) -> set[str]:
        """From one column of 0 and 1 for each label."""
        for row in self.rows:
            flags = {name: _FLAGS.get(row.cells[name].lower()) for name in self.flags}
            if odd := [name for name, flag in flags.items() if flag is None]:
                value = row.cells[odd[0]] or "empty"
                what = f"the column {odd[0]!r} is {value}, expected 0 or 1"
                raise DataError(f"{row.where}: {what}")
            row.labels = tuple(name for name, flag in flags.items() if flag)
        names = f"{', '.join(self.flags[:_SHOWN])}{' …' if len(self.flags) > _SHOWN else ''}"
        self.builder.notes.append(f"several labels per image, from columns of 0 and 1: {names}")
        if unused := {*self.columns} - {*self.flags, "path", "split", ""}:
            self.builder.notes.append(f"columns that are not used: {', '.join(sorted(unused))}")
        return set(self.flags)

    def _read_lists(self, column: str) -> set[str]:
        """From one column with all labels of an image."""
        separator = self._separator(column)
        for row in self.rows:
            row.labels = self._split(row, row.cells[column], separator)
        names = {label for row in self.rows for label in row.labels}
        if not names:
            raise DataError(f"{self.builder.name}: no image has a label")
        how = f"separated by {separator!r}" if separator else "each one label, or a list in [ ]"
        other = "; --task can read a cell as one class" if column == "label" else ""
        what = f"several labels per image, from the column {column!r}, {how}{other}"
        self.builder.notes.append(what)
        self._report_spaces(names, separator)
        return names

    def _separator(self, column: str) -> str:
        """What separates labels: ; or |, or else a comma; "" where there is none of them."""
        found: dict[str, TableRow] = {}
        for row in self.rows:
            for separator in "" if _is_list(row.cells[column]) else ";|,":
                if separator in row.cells[column]:
                    found.setdefault(separator, row)
        if {";", "|"} <= found.keys():
            first, second = sorted(";|", key=lambda separator: found[separator].line)
            other = f"line {found[first].line} by {first!r}"
            what = f"separates labels by {second!r}, but {other}: use one"
            raise DataError(f"{found[second].where}: {what}")
        return next((separator for separator in ";|," if separator in found), "")

    def _split(self, row: TableRow, cell: str, separator: str) -> tuple[str, ...]:
        if _is_list(cell):
            quote = '"' if '"' in cell else "'"
            parts = next(csv.reader([cell[1:-1]], quotechar=quote, skipinitialspace=True), [])
        else:
            parts = cell.split(separator) if cell and separator else [cell] if cell else []
        labels = [part.strip() for part in parts]
        odd = ["an empty label"] if "" in labels else []
        odd += ["a label twice"] if len(set(labels)) < len(labels) else []
        self.builder.problems += [Problem(row.where, f"has {w}: {cell!r}", False) for w in odd]
        return tuple(dict.fromkeys(filter(None, labels)))

    def _report_spaces(self, names: set[str], separator: str) -> None:
        """Labels that are perhaps several, separated by spaces."""
        first = {label: row.where for row in reversed(self.rows) for label in row.labels}
        self.builder.problems += [
            Problem(where, f"{label!r} is read as one label: spaces do not separate labels", False)
            for label, where in first.items()
            if len(words := label.split()) > 1 and (not separator or names.issuperset(words))
        ]

    def each_image_once(self) -> Iterator[TableRow]:
        """The same row twice does not matter; other labels for an image do."""
        seen: dict[str, TableRow] = {}
        for row in self.rows:
            first = seen.setdefault(row.path, row)
            if first is row:
                yield row
            elif (row.split, set(row.labels)) == (first.split, set(first.labels)):
                what = f"line {row.line} of {self.builder.name} repeats line {first.line}"
                self.builder.problems.append(Problem(row.path, what, fatal=False))
            else:
                here, there = (
                    f"{', '.join(map(repr, each.labels)) or 'no label'} in {each.split}"
                    for each in (row, first)
                )
                what = f"{row.path} is {here}, but in line {first.line} it is {there}"
                raise DataError(f"{row.where}: {what}")


def _is_list(cell: str) -> bool:
    return cell.startswith("[") and cell.endswith("]")
