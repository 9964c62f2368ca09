"""Classes and the words that describe them.

    tabby cat                               a class, and its word
    tench | Tinca tinca                     two words for it; their vectors are averaged
    n01440764: tench | Tinca tinca          with its id in the data

One class per line of a .txt file, or one per value on the command line. An id has no spaces, and
either all lines have one or none. A .json file has an object from ids to a word or a list of words,
or a list.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitreous.errors import DataError, naming
from vitreous.labels import External, LabelMap
from vitreous.wording import counted, listed

MOST_CLASSES = 50_000
MOST_WORDS = 100
"""For one class."""
MOST_BYTES = 16 * 2**20
"""Of a file."""
FILES = (".txt", ".json")
_WITH_ID = re.compile(r"(\S+):\s+(.*)", re.DOTALL)

Given = str | Path | Sequence[str] | Mapping[Any, str | Sequence[str]]


@dataclass(frozen=True)
class ClassWords:
    """`words[i]` describe class i, which is called by the first of them."""

    labels: LabelMap
    words: tuple[tuple[str, ...], ...]

    def __len__(self) -> int:
        return len(self.words)

    @property
    def count(self) -> int:
        """Of all words."""
        return sum(map(len, self.words))


def class_words(given: Given) -> ClassWords:
    """The classes of a file (.txt, .json), of lines as such a file has them, or of a mapping from
    ids to words."""
    if isinstance(given, str) or (not isinstance(given, Path | Mapping) and len(given) == 1):
        text = given if isinstance(given, str) else given[0]
        given = Path(text) if str(text).endswith(FILES) else [text]
    if isinstance(given, Path):
        with naming(str(given)):
            return _from_file(given)
    if isinstance(given, Mapping):
        return _from_mapping(given)
    return _from_lines(given)


def words_of(labels: LabelMap) -> ClassWords:
    """Classes that the data names: golden_retriever is "golden retriever"."""
    words = tuple((" ".join(name.replace("_", " ").split()),) for name in labels.names)
    return _checked(labels, words)


def alike(words: ClassWords, keys: Iterable[Any]) -> list[str]:
    """Which classes cannot be told apart: those with the same key."""
    groups: dict[Any, list[str]] = defaultdict(list)
    for name, key in zip(words.labels.names, keys, strict=True):
        groups[key].append(name)
    return [" = ".join(map(repr, group)) for group in groups.values() if len(group) > 1]


def _from_file(path: Path) -> ClassWords:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise DataError("too large for a list of classes")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"not a readable list of classes: {error}") from None
    if path.suffix.lower() != ".json":
        return _from_lines([line for line in text.splitlines() if line.strip()])
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"not a readable JSON file: {error}") from None
    if isinstance(values, dict):
        return _from_mapping(values)
    if not isinstance(values, list):
        raise DataError("expected an object from ids to words, or a list of words")
    return _from_mapping(dict(enumerate(values)))


def _from_lines(lines: Sequence[str]) -> ClassWords:
    _check_count(len(lines))
    for line in lines:
        if not isinstance(line, str):
            raise DataError(f"class {str(line)[:80]!r}: expected words")
    matches = [_WITH_ID.fullmatch(line.strip()) for line in lines]
    with_id = [match is not None for match in matches]
    if any(with_id) and not all(with_id):
        first, other = lines[with_id.index(True)], lines[with_id.index(False)]
        raise DataError(
            f"class {first[:80]!r} has an id before its colon, and {other[:80]!r} has none: give "
            "all of them one, or none; in a .json file ids stand apart from words"
        )
    ids = [match[1] if match else str(i) for i, match in enumerate(matches)]
    texts = [match[2] if match else line for match, line in zip(matches, lines, strict=True)]
    words = [[word.strip() for word in text.split("|")] for text in texts]
    return _with_ids(ids, words)


def _from_mapping(values: Mapping[Any, Any]) -> ClassWords:
    _check_count(len(values))
    words = []
    for id, each in values.items():
        several = [each] if isinstance(each, str) else each
        if not isinstance(several, list | tuple) or not all(type(w) is str for w in several):
            raise DataError(f"class {str(id)[:80]!r}: expected a word or a list of words")
        words.append([*several])
    return _with_ids([str(id) for id in values], words)


def _with_ids(ids: Sequence[str], words: Sequence[Sequence[str]]) -> ClassWords:
    numbers = all(id.isdecimal() and id.isascii() and len(id) < 10 for id in ids)
    external: tuple[External, ...] = tuple(map(int, ids)) if numbers else tuple(ids)
    first = [each[0] if each else "" for each in words]
    counts = Counter(first)
    own = external != tuple(range(len(ids)))
    # crane, the bird, and crane, the machine: told apart by their ids, if they have some
    names = [
        f"{n} ({id})" if own and counts[n] > 1 else n for n, id in zip(first, ids, strict=True)
    ]
    return _checked(LabelMap(tuple(names), external), tuple(map(tuple, words)))


def _checked(labels: LabelMap, words: tuple[tuple[str, ...], ...]) -> ClassWords:
    _check_count(len(words))
    for name, id, own in zip(labels.names, labels.external, words, strict=True):
        if not own or not all(word.strip() for word in own):
            raise DataError(f"class {name or id!r} has an empty word")
        if len(own) > MOST_WORDS:
            raise DataError(f"class {name!r} has {len(own)} words; at most {MOST_WORDS} are taken")
        plain = [" ".join(word.casefold().split()) for word in own]
        if len({*plain}) < len(plain):
            twice = [w for w, count in Counter(plain).items() if count > 1]
            raise DataError(f"class {name!r} has {listed(twice)} twice")
    return ClassWords(labels, words)


def _check_count(count: int) -> None:
    if not count:
        raise DataError("there are no classes: give at least one word")
    if count > MOST_CLASSES:
        raise DataError(f"{counted(count, 'class')}: at most {MOST_CLASSES:,} are taken at a time")
