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
from typing import Any, NamedTuple

from vitreous.data.decode.masks import LARGEST_ID
from vitreous.data.formats.files import parse_yaml, read_text
from vitreous.data.source import Problem
from vitreous.errors import DataError, naming
from vitreous.labels import External, LabelMap
from vitreous.wording import counted

Names = str | Path | Mapping[str, str | None] | Mapping[int, str | None] | Sequence[str]

_TEXT = (".txt", ".names", ".labels", ".list", ".csv", ".tsv", "")
"""Extensions of files that are read line by line."""
_NULL = ("", "~", "null", "Null", "NULL")
"""How YAML writes it."""
_ID = re.compile(r"0|[1-9]\d{0,4}")
_COLOUR = re.compile(r"#[0-9a-f]{6}")
_COLOUR_LINE = re.compile(r"(\d{1,3})[\s,]+(\d{1,3})[\s,]+(\d{1,3})[\s,]+(\S.*)")


class _Given(NamedTuple):
    where: str
    """What errors begin with."""
    names: dict[str, str | None]
    """By an id or colour as text; None: ignored."""
    is_list: bool = False
    """Names of 0, 1, 2 …"""


def with_names(labels: LabelMap, names: Names | None, *, partial: bool = False) -> LabelMap:
    """The same classes under the given names: a file, a mapping from ids, or a list for 0, 1, 2 ….

    A file is JSON or YAML (a mapping from id to name, or a list, perhaps under `names`), or text
    with one name per line.
    A list is refused unless the ids of the data are 0, 1, 2 …: with ids from 1, or with gaps,
    every class would silently get its neighbour's name.
    partial: a mapping may name only some classes; null ignores a class.
    """
    if names is None:
        return labels
    given = _given(names)
    if given.is_list and labels.external != tuple(range(len(given.names))):
        count = len(given.names)
        raise DataError(
            f"{given.where}: a list of {counted(count, 'name')} is for classes 0 to {count - 1}, "
            f"but the data has {_some(labels)}: give a JSON object from each id to its name"
        )
    known = list(map(str, labels.external))
    if partial:
        if unknown := [id for id in given.names if id not in known]:
            what = f"the data has no class {', '.join(unknown)}: {_some(labels)}"
            raise DataError(f"{given.where}: {what}")
        new = [given.names.get(id, name) for id, name in zip(known, labels.names, strict=True)]
        return _label_map(given.where, zip(labels.external, new, strict=True))
    if null := [id for id, name in given.names.items() if name is None]:
        what = f"no name for class {null[0]}: only values of masks can be ignored (null)"
        raise DataError(f"{given.where}: {what}")
    if missing := [id for id in known if id not in given.names]:
        raise DataError(f"{given.where}: no name for class {', '.join(missing)}")
    return LabelMap(tuple(str(given.names[id]) for id in known), labels.external)


def numbered_labels(names: Names) -> LabelMap:
    """Classes 0, 1, 2 … of a list, or those of an object from ids to names; null ignores one."""
    labels = mask_labels(names)
    if isinstance(labels.external[0], str):
        raise DataError("names: has colours, where the numbers of classes are expected")
    return labels


def mask_labels(names: Names) -> LabelMap:
    """The classes of masks and the values that are ignored, all defined by the names. Ids are
    sorted; colours, which have no order, stay in that of the file."""
    given = _given(names, tables=True)
    for id, name in given.names.items():
        if name is not None and (not name.strip() or not name.isprintable()):
            what = f"{id!r} has the name {name!r}, where words are expected"
            raise DataError(f"{given.where}: {what}")
    pairs = [(_key(id, given.where), name) for id, name in given.names.items()]
    if len({type(key) for key, _ in pairs}) > 1:
        raise DataError(f"{given.where}: mixes ids and colours: a mask has one or the other")
    if all(isinstance(key, int) for key, _ in pairs):
        pairs.sort(key=lambda pair: int(pair[0]))
    return _label_map(given.where, pairs)


def _label_map(where: str, pairs: Iterable[tuple[External, str | None]]) -> LabelMap:
    """Of the pairs of an id and its name, or None where it is ignored."""
    pairs = list(pairs)
    classes = [(id, name) for id, name in pairs if name is not None]
    with naming(where):
        return LabelMap(
            tuple(name for _, name in classes),
            tuple(id for id, _ in classes),
            tuple(id for id, name in pairs if name is None),
        )


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


def _some(labels: LabelMap) -> str:
    shown = ", ".join(str(id) for id in labels.external[:5])
    return f"{counted(len(labels), 'class')}: {shown}{' …' if len(labels) > 5 else ''}"


# ---- reading


def _given(names: Names, *, tables: bool = False) -> _Given:
    """tables: a file may be a table of colours, as text or CSV."""
    if isinstance(names, str | Path):
        text = read_text(names)
        with naming(str(names)):
            return _understood(text, Path(names), tables)
    if isinstance(names, Mapping):
        return _Given("names", {str(id): name for id, name in names.items()})
    return _numbered("names", names)


def _numbered(where: str, names: Iterable[str | None]) -> _Given:
    return _Given(where, {str(number): name for number, name in enumerate(names)}, True)


def _understood(text: str, path: Path, tables: bool) -> _Given:
    where = str(path)
    if path.suffix.lower() == ".json":
        try:
            values = json.loads(text, object_pairs_hook=_each_once)
        except (ValueError, RecursionError) as error:
            raise DataError(f"cannot be understood: {error}") from None
        names = list(values.values()) if isinstance(values, dict) else values
        if not isinstance(names, list) or not all(isinstance(n, str | None) for n in names):
            raise DataError("expected an object from ids to names, or a list of names")
        return _Given(where, values) if isinstance(values, dict) else _numbered(where, names)
    if path.suffix.lower() in (".yaml", ".yml"):
        return _from_yaml(parse_yaml(text), where)
    if path.suffix.lower() not in _TEXT:
        raise DataError(
            f"{path.suffix} is not the extension of a names file: give .json, .yaml, or .txt with "
            "one name per line"
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if tables and path.suffix.lower() == ".csv":
        lines = _colour_lines(lines)
    elif not tables or not any(_COLOUR_LINE.fullmatch(line) for line in lines):
        return _numbered(where, lines)
    return _Given(where, _each_once(map(_colour, lines)))


def _from_yaml(values: Any, where: str) -> _Given:
    """A list of names or a mapping from ids, as the whole file or under `names`, as YOLO's."""
    names = values.get("names", values) if isinstance(values, dict) else values
    pairs = names.items() if isinstance(names, dict) else enumerate(names or ())
    named = {str(id): None if name in _NULL else name for id, name in pairs}
    if (
        isinstance(names, str)
        or not named
        or not all(isinstance(n, str | None) for n in named.values())
    ):
        raise DataError(
            "expected names: with a list of names, or with a name for each id; a list or such a "
            "mapping may also be the whole file"
        )
    return _Given(where, named, isinstance(names, list))


def _each_once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """A dictionary; by itself it would take the last of several values of one key."""
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise DataError(f"has {key!r} twice")
        values[key] = value
    return values


def _colour_lines(lines: list[str]) -> list[str]:
    """The rows of a CSV as lines of red, green, blue and name."""
    separator = max(",;\t", key=lines[0].count) if lines else ","
    rows = csv.reader(lines, delimiter=separator, skipinitialspace=True)
    header = [column.strip().lower() for column in next(rows, [])]
    if not {"name", "r", "g", "b"} <= set(header):
        found = ", ".join(header) or "nothing"
        raise DataError(f"expected the columns name, r, g and b in the first line; it has {found}")
    values = [dict(zip(header, map(str.strip, cells), strict=False)) for cells in rows]
    return [" ".join(row.get(column, "") for column in ("r", "g", "b", "name")) for row in values]


def _colour(line: str) -> tuple[str, str]:
    match = _COLOUR_LINE.fullmatch(line)
    rgb = [int(number) for number in match.group(1, 2, 3)] if match else []
    if match is None or max(rgb) > 255:
        raise DataError(f"{line!r}: expected red, green and blue, 0 to 255, and a name")
    return "#{:02x}{:02x}{:02x}".format(*rgb), match[4]


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
