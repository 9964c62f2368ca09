"""What cards, myths and the glossary share: entries of a TOML file, in English and Chinese, with
places for numbers.

An entry has `values`, which are facts (`facts.py`): {0} in its texts is the first of them. Both
languages have the same places, so a number can be wrong in neither alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from vitreous.config import from_dict, read_toml
from vitreous.course.contents import CHAPTERS
from vitreous.course.facts import Language, fact
from vitreous.errors import ConfigError

PLACE = re.compile(r"\{(\d+)\}")


@dataclass(frozen=True)
class CourseEntry:
    """One entry; a text is known by its number in the list of its language."""

    id: str = ""
    chapter: int = 0
    en: tuple[str, ...] = ()
    zh: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    """Facts, which the texts have places for."""

    def text(self, number: int, lang: Language = "en", run: str | Path | None = None) -> str:
        """With its numbers; a `NotMeasuredError` where one that it needs is not known."""
        written = (self.en if lang == "en" else self.zh)[number]
        return PLACE.sub(lambda found: fact(self.values[int(found[1])], lang, run), written)

    def check(self, texts: range) -> None:
        """An error for what cannot be shown."""
        if not self.id:
            raise ConfigError("an entry has no id")
        if self.chapter not in CHAPTERS:
            raise ConfigError(
                f"{self.id}: chapter = {self.chapter}: there are 1 to {max(CHAPTERS)}"
            )
        if len(self.en) != len(self.zh) or len(self.en) not in texts:
            raise ConfigError(
                f"{self.id}: {len(self.en)} English and {len(self.zh)} Chinese texts: expected "
                f"{' or '.join(map(str, texts))} of each"
            )
        used = set[int]()
        for english, chinese in zip(self.en, self.zh, strict=True):
            ours, theirs = places(english), places(chinese)
            if ours != theirs:
                raise ConfigError(f"{self.id}: places {ours} in English and {theirs} in Chinese")
            used.update(ours)
        if used != set(range(len(self.values))):
            raise ConfigError(f"{self.id}: {len(self.values)} values for the places {sorted(used)}")


E = TypeVar("E", bound=CourseEntry)


def places(text: str) -> list[int]:
    """Which values a text has places for."""
    return sorted({int(each) for each in PLACE.findall(text)})


def read_entries(path: Path, key: str, kind: type[E], texts: range) -> tuple[E, ...]:
    """All entries of a file, checked; `texts` is how many texts an entry may have."""
    found = read_toml(path, f"a list of [[{key}]]")
    if set(found) - {key}:
        raise ConfigError(f"{path}: unknown key {min(set(found) - {key})!r}: expected [[{key}]]")
    entries = tuple(
        from_dict(kind, each, where=f"[[{key}]] {each.get('id', number)} of {path}")
        for number, each in enumerate(found.get(key, []), start=1)
    )
    known = set[str]()
    for entry in entries:
        try:
            entry.check(texts)
            if entry.id in known:
                raise ConfigError(f"{entry.id}: there are two of this id")
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None
        known.add(entry.id)
    return entries


def by_chapter(entries: Iterable[E]) -> dict[int, list[E]]:
    """Every chapter, with its entries in their order."""
    found: dict[int, list[E]] = {number: [] for number in CHAPTERS}
    for entry in entries:
        found[entry.chapter].append(entry)
    return found
