"""Tables with a header: the column `path`, the labels of each image, and optionally `split`.

One class per image is a column `label`. Several labels per image are a column `labels` or `tags`
(or `label`) with "cat;dog", "cat|dog", "cat, dog" or ["cat", "dog"], or one column of 0 and 1 for
each label; an image may have none. Labels are names, or whole numbers where all of them are.

Paths start at the table's folder. Columns may be separated by commas, semicolons or tabs.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest

from torch import Tensor

from vitreous.data.formats.builder import SourceBuilder, multi_hot
from vitreous.data.formats.files import SPLIT_FOLDERS, FileSource, read_text
from vitreous.data.formats.names import spelling_problems, with_names
from vitreous.data.source import Problem, Sample
from vitreous.errors import DataError
from vitreous.labels import LabelMap

_COLUMNS = ("path", "split", "label", "labels", "tags")
_FLAGS = {"0": False, "0.0": False, "false": False, "1": True, "1.0": True, "true": True}
_SHOWN = 8  # labels in a note


@dataclass
class LabelSetSource(FileSource):
    """A sample's target is the tuple of the image's classes, from 0."""

    def truth(self, sample: Sample) -> Tensor:
        return multi_hot(sample.target, len(self.labels))


@dataclass(frozen=True, slots=True)
class Row:
    line: int
    path: str
    split: str
    cells: dict[str, str]
    """By column."""


Labelled = list[tuple[Row, tuple[str, ...]]]
"""Rows with their labels."""


def read(builder: SourceBuilder) -> FileSource:
    table = _Table(builder, *_read_rows(builder))
    builder.root = os.path.dirname(builder.root)
    if not builder.asked and table.has_several():
        builder.truth_kind = "labels"
    single = builder.truth_kind == "class"
    labelled = table.single() if single else table.several()
    labels = _label_map(table.names)
    classes = {str(external): number for number, external in enumerate(labels.external)}
    for row, found in table.without_repeats(labelled):
        target = tuple(sorted(classes[label] for label in found))
        sample = Sample(row.path, target[0] if single else target)
        builder.splits.setdefault(row.split, []).append(sample)
        builder.lines[row.path] = row.line
    labels = with_names(labels, builder.names)
    return builder.build(FileSource if single else LabelSetSource, labels)


def _label_map(names: Iterable[str]) -> LabelMap:
    names = set(names)
    if all(re.fullmatch(r"-?(0|[1-9]\d{0,17})", name) for name in names):
        return LabelMap.of_ids(map(int, names))
    return LabelMap.of_names(names)


# ---- rows


def _read_rows(builder: SourceBuilder) -> tuple[list[str], list[Row]]:
    """The columns and the rows below them."""
    name, text = builder.name, read_text(builder.root)
    separator = max(",;\t", key=text.partition("\n")[0].count)
    # strict: a quote that is never closed would make all rows behind it one label
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    rows, line = [], 1
    try:
        columns = _columns(next(reader, []), name)
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


def _columns(cells: list[str], name: str) -> list[str]:
    """The header; our own columns in lower case, labels as they are."""
    stripped = [cell.strip() for cell in cells]
    columns = [cell.lower() if cell.lower() in _COLUMNS else cell for cell in stripped]
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
        "path and a column of 0 and 1 for each label"
    )


def _row(columns: list[str], cells: list[str], name: str, line: int) -> Row:
    where = f"{name}, line {line}"
    if len(cells) > len(columns):
        raise DataError(f"{where}: has more values than the header has columns")
    values = dict(zip_longest(columns, map(str.strip, cells), fillvalue=""))
    for column in _COLUMNS:
        if "\n" in values.get(column, "") or "\r" in values.get(column, ""):
            what = f"the {column} has a line break in it: is a quote missing at its end?"
            raise DataError(f"{where}: {what}")
    if not values["path"]:
        raise DataError(f"{where}: has no path")
    split = values.get("split", "").lower() or "train"
    if split not in SPLIT_FOLDERS:
        raise DataError(f"{where}: split {split!r} is not known: use train, val or test")
    path = os.path.normpath(values["path"]).replace(os.sep, "/")
    return Row(line, path, SPLIT_FOLDERS[split], values)


# ---- labels


@dataclass
class _Table:
    builder: SourceBuilder
    columns: list[str]
    rows: list[Row]

    def __post_init__(self) -> None:
        self.names: set[str] = set()
        """Of all labels, once they are read."""
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

    def single(self) -> Labelled:
        """One class per image."""
        if "label" not in self.columns:
            raise _missing("label", self.columns, self.builder.name)
        for row in self.rows:
            if not row.cells["label"]:
                raise DataError(f"{self._line(row)}: has no label")
        if others := self.lists or (self.flags if len(self.flags) > 1 else []):
            what = f'truth="labels" reads several from {", ".join(others[:_SHOWN])}'
            self.builder.notes.append(f"one class per image, from the column 'label'; {what}")
        self.names = {row.cells["label"] for row in self.rows}
        return [(row, (row.cells["label"],)) for row in self.rows]

    def several(self) -> Labelled:
        """Any number of labels per image."""
        if self.lists:
            labelled = self._from_lists(self.lists[0])
        elif "label" in self.columns and (self.has_several() or not self.flags):
            labelled = self._from_lists("label")
        elif self.flags:
            labelled = self._from_flags()
        else:
            raise _missing("labels", self.columns, self.builder.name)
        self.builder.problems += spelling_problems(self.builder.name, self.names)
        if empty := sum(not labels for _, labels in labelled):
            self.builder.notes.append(f"{empty} images have no label")
        return labelled

    def _from_flags(self) -> Labelled:
        """From one column of 0 and 1 for each label."""
        for row in self.rows:
            for column in self.flags:
                if (value := row.cells[column]).lower() not in _FLAGS:
                    what = f"the column {column!r} is {value or 'empty'}, expected 0 or 1"
                    raise DataError(f"{self._line(row)}: {what}")
        self.names = set(self.flags)
        names = f"{', '.join(self.flags[:_SHOWN])}{' …' if len(self.flags) > _SHOWN else ''}"
        self.builder.notes.append(f"several labels per image, from columns of 0 and 1: {names}")
        unused = {*self.columns} - {*self.flags, "path", "split", ""}
        if unused:
            self.builder.notes.append(f"columns that are not used: {', '.join(sorted(unused))}")
        return [
            (row, tuple(name for name in self.flags if _FLAGS[row.cells[name].lower()]))
            for row in self.rows
        ]

    def _from_lists(self, column: str) -> Labelled:
        """From one column with all labels of an image."""
        separator = self._separator(column)
        labelled = [(row, self._split(row, row.cells[column], separator)) for row in self.rows]
        self.names = {label for _, labels in labelled for label in labels}
        if not self.names:
            raise DataError(f"{self.builder.name}: no image has a label")
        how = f"separated by {separator!r}" if separator else "each one label, or a list in [ ]"
        other = '; truth="class" reads a cell as one class' if column == "label" else ""
        what = f"several labels per image, from the column {column!r}, {how}{other}"
        self.builder.notes.append(what)
        self._report_spaces(labelled, separator)
        return labelled

    def _separator(self, column: str) -> str:
        """What separates labels: ; or |, or else a comma; "" where there is none of them."""
        found: dict[str, int] = {}
        for row in self.rows:
            for separator in "" if _is_list(row.cells[column]) else ";|,":
                if separator in row.cells[column]:
                    found.setdefault(separator, row.line)
        if ";" in found and "|" in found:
            first, second = sorted(";|", key=found.__getitem__)
            what = f"separates labels by {second!r}, but line {found[first]} by {first!r}: use one"
            raise DataError(f"{self.builder.name}, line {found[second]}: {what}")
        return next((separator for separator in ";|," if separator in found), "")

    def _split(self, row: Row, cell: str, separator: str) -> tuple[str, ...]:
        if _is_list(cell):
            quote = '"' if '"' in cell else "'"
            parts = next(csv.reader([cell[1:-1]], quotechar=quote, skipinitialspace=True), [])
        else:
            parts = cell.split(separator) if cell and separator else [cell] if cell else []
        labels = [part.strip() for part in parts]
        for what, wrong in (
            ("an empty label", "" in labels),
            ("a label twice", len(set(labels)) < len(labels)),
        ):
            if wrong:
                problem = Problem(self._line(row), f"has {what}: {cell!r}", fatal=False)
                self.builder.problems.append(problem)
        return tuple(dict.fromkeys(filter(None, labels)))

    def _report_spaces(self, labelled: Labelled, separator: str) -> None:
        """Labels that are perhaps several, separated by spaces."""
        doubtful = {
            label
            for label in self.names
            if len(words := label.split()) > 1 and (not separator or self.names.issuperset(words))
        }
        for row, labels in labelled:
            for label in labels:
                if label in doubtful:
                    doubtful.discard(label)  # once is enough
                    what = f"{label!r} is read as one label: spaces do not separate labels"
                    self.builder.problems.append(Problem(self._line(row), what, fatal=False))

    def without_repeats(self, labelled: Labelled) -> Iterator[tuple[Row, tuple[str, ...]]]:
        """Each image once. The same row twice does not matter; other labels for an image do."""
        seen: dict[str, tuple[Row, tuple[str, ...]]] = {}
        for row, labels in labelled:
            first, before = seen.setdefault(row.path, (row, labels))
            if first is row:
                yield row, labels
            elif (row.split, set(labels)) == (first.split, set(before)):
                what = f"line {row.line} of {self.builder.name} repeats line {first.line}"
                self.builder.problems.append(Problem(row.path, what, fatal=False))
            else:
                here, there = (
                    f"{', '.join(map(repr, found)) or 'no label'} in {where.split}"
                    for where, found in ((row, labels), (first, before))
                )
                what = f"{row.path} is {here}, but in line {first.line} it is {there}"
                raise DataError(f"{self._line(row)}: {what}")

    def _line(self, row: Row) -> str:
        return f"{self.builder.name}, line {row.line}"


def _is_list(cell: str) -> bool:
    return cell.startswith("[") and cell.endswith("]")
