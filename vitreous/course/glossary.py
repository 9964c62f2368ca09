"""Which concept is in which chapter, and what it is called in both languages: glossary.toml."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from vitreous.course.entries import CourseEntry, read_entries
from vitreous.course.facts import Language

TERM, SENTENCE = 0, 1


@dataclass(frozen=True)
class Term(CourseEntry):
    """Its texts are the term and a sentence."""

    kind: Literal["concept", "formula", "table", "figure", "code"] = "concept"
    notes: tuple[str, ...] = ()
    """The study notes that have it."""
    formula: str = ""
    """In LaTeX."""


@cache
def read_glossary() -> tuple[Term, ...]:
    path = Path(__file__).with_name("glossary.toml")
    return read_entries(path, "entry", Term, range(2, 3))


def glossary_table(lang: Language = "en") -> str:
    """In Markdown: term, kind, chapter and the notes that have it."""
    head = {"en": "| term | kind | chapter | notes |", "zh": "| 术语 | 类别 | 章 | 笔记 |"}[lang]
    rows = [
        f"| {each.text(TERM, lang)} | {each.kind} | {each.chapter} | {', '.join(each.notes)} |"
        for each in read_glossary()
    ]
    return "\n".join([head, "|---|---|---|---|", *rows]) + "\n"
