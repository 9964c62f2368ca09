"""Names for classes that the data knows by number or by a code."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from vitreous.errors import DataError
from vitreous.labels import LabelMap

Names = str | Path | Mapping[str, str] | Mapping[int, str] | Sequence[str]


def with_names(labels: LabelMap, names: Names | None) -> LabelMap:
    """The same classes under the given names: a file, a mapping from ids, or a list for 0, 1, 2 ….

    A file is JSON (an object from id to name, or a list), or text with one name a line.
    A list is refused unless the ids of the data are 0, 1, 2 …: with ids from 1, or with gaps,
    every name would silently be the next one's.
    """
    if names is None:
        return labels
    where = "names"
    if isinstance(names, str | Path):
        where, names = str(names), _read(Path(names))
    if not isinstance(names, Mapping):
        if labels.external != tuple(range(len(names))):
            raise DataError(
                f"{where}: a list of {len(names)} names is for classes 0 to {len(names) - 1}, but "
                f"the data has {_some(labels)}: give a JSON object from each id to its name"
            )
        names = dict(enumerate(names))
    by_text = {str(key): name for key, name in names.items()}
    missing = [str(id) for id in labels.external if str(id) not in by_text]
    if missing:
        raise DataError(f"{where}: no name for class {', '.join(missing)}")
    return LabelMap(tuple(by_text[str(id)] for id in labels.external), labels.external)


def _read(path: Path) -> Mapping[str, str] | Sequence[str]:
    try:
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix.lower() != ".json":
            return [line.strip() for line in text.splitlines() if line.strip()]
        values = json.loads(text)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise DataError(f"{path}: cannot be understood: {error}") from None
    items = values.values() if isinstance(values, dict) else values
    if not isinstance(values, dict | list) or not all(isinstance(name, str) for name in items):
        raise DataError(f"{path}: expected an object from ids to names, or a list of names")
    return values


def _some(labels: LabelMap) -> str:
    shown = ", ".join(str(id) for id in labels.external[:5])
    return f"{len(labels)} classes: {shown}{' …' if len(labels) > 5 else ''}"
