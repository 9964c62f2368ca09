"""The chapters of the course, by their numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from vitreous.course.text import chapters


class Title(NamedTuple):
    """Of a chapter."""

    en: str
    zh: str


CHAPTERS: Mapping[int, Title] = {
    english.number: Title(english.title, chinese.title)
    for english, chinese in zip(chapters("en"), chapters("zh"), strict=True)
}
