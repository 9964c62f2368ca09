"""The words of all pages, from words.toml: each in English and in Chinese."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vitreous.config import read_toml

WORDS = read_toml(Path(__file__).with_name("words.toml"), "the words of all pages")
LANGUAGES = ("en", "zh")
Message = str | list[Any]
"""What a page says in its reader's language: a key of the table and what is filled in; or text."""


def words_for(page: str, *parts: str) -> dict[str, Any]:
    """By language, what words.js needs: a page's own words, and those of what is in it."""
    table = {"language": WORDS["language"], **WORDS[page]} | {part: WORDS[part] for part in parts}
    return {language: _words_in(i, table) for i, language in enumerate(LANGUAGES)}


def _words_in(number: int, table: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _words_in(number, value) if isinstance(value, dict) else value[number]
        for key, value in table.items()
    }


def token_name(name: str) -> Message:
    """How a page names a token of `explain`'s `prefix_names`: a key of [viewer], and its number."""
    kind, _, number = name.partition(" ")
    return ["register", number] if number else [f"{kind}Token"]


def english(message: Message, page: str) -> str:
    """What a message of a page says in English."""
    if isinstance(message, str):
        return message
    key, *given = message
    return str(WORDS[page][key][0]).format(*given)
