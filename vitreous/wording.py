"""Counts and lists as a reader says them: 1 class, 2 classes; a, b and 3 more."""

from __future__ import annotations

import re
from collections.abc import Sequence


def counted(count: int, noun: str) -> str:
    """`1 image`, `1,797 images`, `2 classes`; of "file of code" the first word is counted."""
    return f"{count:,} {noun if count == 1 else plural(noun)}"


def none_or(count: int, noun: str) -> str:
    """The same with `no images` for 0."""
    return counted(count, noun) if count else f"no {plural(noun)}"


def plural(noun: str) -> str:
    """By the rules of spelling. Of words with "of" the first counts: `files of code`."""
    head, of, rest = noun.partition(" of ")
    if re.search(r"(s|x|z|ch|sh)$", head):
        head += "es"
    elif re.search(r"[^aeiou]y$", head):
        head = head[:-1] + "ies"
    else:
        head += "s"
    return head + of + rest


def listed(words: Sequence[str], most: int = 3) -> str:
    """`a, b, c and 28 more`; all of them where one more fits as well."""
    shown = words if len(words) <= most + 1 else words[:most]
    more = len(words) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more else "")


def and_between(parts: Sequence[str]) -> str:
    """`a, b and c`"""
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))
