"""The myths of the course, myths.toml: claims that circulate, each with a command that shows what
is true of it, our number and a verdict."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, get_args

from vitreous.course.entries import CourseEntry, by_chapter, read_entries
from vitreous.course.facts import Language, NotMeasuredError
from vitreous.errors import ConfigError

CLAIM, TRUTH = 0, 1
Verdict = Literal["true", "false", "depends"]


@dataclass(frozen=True)
class Myth(CourseEntry):
    """Its texts are a claim and what is true of it."""

    verdict: Verdict = "false"
    command: str = ""
    """What a reader runs, to see the number."""

    def check(self, texts: range) -> None:
        super().check(texts)
        if self.verdict not in get_args(Verdict):
            expected = ", ".join(get_args(Verdict))
            raise ConfigError(f"{self.id}: verdict = {self.verdict!r}: expected one of {expected}")
        if not self.command:
            raise ConfigError(f"{self.id}: a myth needs a command that shows what is true")


@cache
def read_myths() -> tuple[Myth, ...]:
    """All of them, chapter by chapter."""
    path = Path(__file__).with_name("myths.toml")
    myths = read_entries(path, "myth", Myth, range(2, 3))
    return tuple(itertools.chain.from_iterable(by_chapter(myths).values()))


@cache
def measured_myths() -> tuple[Myth, ...]:
    """Those whose numbers are known: one that waits for a study is left out until it is run."""
    return tuple(each for each in read_myths() if _measured(each))


def _measured(myth: Myth) -> bool:
    try:
        for lang in get_args(Language):
            myth.text(TRUTH, lang)
    except NotMeasuredError:
        return False
    return True
