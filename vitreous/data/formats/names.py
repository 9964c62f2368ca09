"""Names for classes that the data knows by number, by a code, or by a colour.

For masks the names file also defines which classes there are, and which values are ignored:
`{"0": "sky", "1": "road", "255": null}`. Colours can be keys, `{"#808080": "sky"}`. The tables that
come with data sets of coloured masks are understood: lines of `128 128 128 sky`, or a CSV with the
columns name, r, g and b.
"""

from __future__ import annotations

import csv
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from vitreous.data.decode.masks import LARGEST_ID
from vitreous.data.formats.files import read_text
from vitreous.data.source import Problem
from vitreous.errors import DataError
from vitreous.labels import External, LabelMap

Names = str | Path | Mapping[str, str | None] | Mapping[int, str | None] | Sequence[str]
Entry = tuple[str, str | None]  # an id or colour as text; its name, or None: ignored

_ID = re.compile(r"0|[1-9]\d{0,4}")
_COLOUR = re.compile(r"#[0-9a-f]{6}")
_COLOUR_LINE = re.compile(r"(\d{1,3})[\s,]+(\d{1,3})[\s,]+(\d{1,3})[\s,]+(\S.*)")


def with_names(labels: LabelMap, names: Names | None) -> LabelMap:
    """The same classes under the given names: a file, a mapping from ids, or a list for 0, 1, 2 ….

    A file is JSON (an object from id to name, or a list), or text with one name per line.
    A list is refused unless the ids of the data are 0, 1, 2 …: with ids from 1, or with gaps,
    every class would silently get its neighbour's name.
    """
    if names is None:
        return labels
    where, entries, is_list = _given(names)
    if is_list and labels.external != tuple(range(len(entries))):
        raise DataError(
            f"{where}: a list of {len(entries)} names is for classes 0 to {len(entries) - 1}, but "
            f"the data has {_some(labels)}: give a JSON object from each id to its name"
        )
    by_text: dict[str, str] = {}
    for id, name in entries:
        if name is None:
            raise DataError(
                f"{where}: no name for class {id}: only values of masks can be ignored (null)"
            )
        by_text[id] = name
    missing = [str(id) for id in labels.external if str(id) not in by_text]
    if missing:
        raise DataError(f"{where}: no name for class {', '.join(missing)}")
    return LabelMap(tuple(by_text[str(id)] for id in labels.external), labels.external)


def changed_names(labels: LabelMap, names: Names | None) -> LabelMap:
    """The same classes, some of them renamed; null ignores a class."""
    if names is None:
        return labels
    where, entries, is_list = _given(names)
    if is_list:
        raise DataError(f"{where}: is a list: give a JSON object from each id to its name")
    given = dict(entries)
    unknown = [id for id in given if id not in map(str, labels.external)]
    if unknown:
        raise DataError(f"{where}: the data has no class {', '.join(unknown)}: {_some(labels)}")
    kept = [
        (given.get(str(id)) or name, id)
        for name, id in zip(labels.names, labels.external, strict=True)
        if given.get(str(id), name) is not None
    ]
    return _checked(
        where,
        tuple(name for name, _ in kept),
        tuple(id for _, id in kept),
        tuple(id for id in labels.external if id not in {id for _, id in kept}),
    )


def renamed(labels: LabelMap, names: Names | None) -> LabelMap:
    """`with_names` for a list, `changed_names` for an object from ids to names."""
    if names is None:
        return labels
    return (with_names if _given(names)[2] else changed_names)(labels, names)


def numbered_labels(names: Names) -> LabelMap:
    """Classes 0, 1, 2 … of a list, or those of an object from ids to names; null ignores one."""
    labels = mask_labels(names)
    if isinstance(labels.external[0], str):
        raise DataError("names: has colours, where the numbers of classes are expected")
    return labels


def mask_labels(names: Names) -> LabelMap:
    """The classes of masks and the values that are ignored, all defined by the names.

    Ids are sorted; colours, which have no order, stay in that of the file.
    """
    where, entries, _ = _given(names, tables=True)
    for id, name in entries:
        if name is not None and (not name.strip() or not name.isprintable()):
            raise DataError(f"{where}: {id!r} has the name {name!r}, where words are expected")
    keys = [_key(id, where) for id, _ in entries]
    if len({type(key) for key in keys}) > 1:
        raise DataError(f"{where}: mixes ids and colours: a mask has one or the other")
    pairs = list(zip(keys, (name for _, name in entries), strict=True))
    if all(isinstance(key, int) for key in keys):
        pairs.sort(key=lambda pair: int(pair[0]))
    classes = [(key, name) for key, name in pairs if name is not None]
    return _checked(
        where,
        tuple(name for _, name in classes),
        tuple(key for key, _ in classes),
        tuple(key for key, name in pairs if name is None),
    )


def _checked(
    where: str,
    names: tuple[str, ...],
    external: tuple[External, ...],
    ignored: tuple[External, ...],
) -> LabelMap:
    try:
        return LabelMap(names, external, ignored)
    except DataError as error:
        raise DataError(f"{where}: {error}") from None


def _key(text: str, where: str) -> External:
    """An id as a number, a colour as #rrggbb."""
    if _ID.fullmatch(text) and int(text) <= LARGEST_ID:
        return int(text)
    if _COLOUR.fullmatch(text.lower()):
        return text.lower()
    raise DataError(
        f"{where}: {text!r} is neither the value of a pixel, from 0 to {LARGEST_ID}, nor a colour "
        "like #8000ff"
    )


def _given(names: Names, *, tables: bool = False) -> tuple[str, list[Entry], bool]:
    """(what errors begin with, the entries, whether it is a list: names of 0, 1, 2 …)."""
    if isinstance(names, str | Path):
        return str(names), *_read(Path(names), tables)
    if isinstance(names, Mapping):
        return "names", [(str(id), name) for id, name in names.items()], False
    return "names", _numbered(names), True


def _read(path: Path, tables: bool) -> tuple[list[Entry], bool]:
    """The entries of a file, and whether it is a list. `tables`: of colours, as text or CSV."""
    text = read_text(path)
    try:
        if path.suffix.lower() == ".json":
            return _of_json(json.loads(text, object_pairs_hook=_Pairs), path)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: cannot be understood: {error}") from None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if tables and path.suffix.lower() == ".csv":
        return list(_of_csv(lines, path)), False
    if tables and any(_COLOUR_LINE.fullmatch(line) for line in lines):
        return [_of_line(line, path) for line in lines], False
    return _numbered(lines), True


class _Pairs(list[tuple[str, object]]):
    """A JSON object with all its entries, also those that have the same key."""


def _of_json(values: object, path: Path) -> tuple[list[Entry], bool]:
    pairs = values if isinstance(values, _Pairs) else None
    if pairs is None and isinstance(values, list):
        pairs = _Pairs((str(number), name) for number, name in enumerate(values))
    if pairs is None or not all(name is None or isinstance(name, str) for _, name in pairs):
        raise DataError(f"{path}: expected an object from ids to names, or a list of names")
    entries: dict[str, str | None] = {}
    for id, name in pairs:
        if id in entries:
            raise DataError(f"{path}: has {id!r} twice")
        entries[id] = name if isinstance(name, str) else None
    return list(entries.items()), not isinstance(values, _Pairs)


def _of_csv(lines: list[str], path: Path) -> Iterable[Entry]:
    separator = max(",;\t", key=lines[0].count) if lines else ","
    rows = csv.reader(lines, delimiter=separator, skipinitialspace=True)
    header = [column.strip().lower() for column in next(rows, [])]
    if not {"name", "r", "g", "b"} <= set(header):
        raise DataError(
            f"{path}: expected the columns name, r, g and b in the first line; it has "
            f"{', '.join(header) or 'nothing'}"
        )
    for cells in rows:
        values = dict(zip(header, (cell.strip() for cell in cells), strict=False))
        line = " ".join(values.get(column, "") for column in ("r", "g", "b", "name"))
        yield _of_line(line, path)


def _of_line(line: str, path: Path) -> Entry:
    match = _COLOUR_LINE.fullmatch(line)
    if match is None or max(map(int, match.group(1, 2, 3))) > 255:
        raise DataError(f"{path}: {line!r}: expected red, green and blue, 0 to 255, and a name")
    red, green, blue = map(int, match.group(1, 2, 3))
    return f"#{red:02x}{green:02x}{blue:02x}", match[4]


def _numbered(names: Iterable[str]) -> list[Entry]:
    return [(str(number), name) for number, name in enumerate(names)]


def _some(labels: LabelMap) -> str:
    shown = ", ".join(str(id) for id in labels.external[:5])
    return f"{len(labels)} classes: {shown}{' …' if len(labels) > 5 else ''}"


def spelling_problems(name: str, labels: Iterable[str]) -> list[Problem]:
    """Classes whose names differ only in upper case or spaces are probably one class."""
    alike: dict[str, list[str]] = defaultdict(list)
    for label in sorted(set(labels)):
        alike[" ".join(label.casefold().split())].append(label)
    return [
        Problem(
            name, f"the classes {' and '.join(map(repr, group))} differ only in spelling", False
        )
        for group in alike.values()
        if len(group) > 1
    ]
