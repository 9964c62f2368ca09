"""The errors for users. Each message states what was given, what was expected and what to do.

The command line prints a `VitreousError` without a traceback and exits with 2. Any other exception
is a bug in Vitreous and exits with 1.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any


class VitreousError(Exception):
    """A problem that the user can fix."""

    told_elsewhere = False
    """Whether another process, which has it too, tells the user."""


class ConfigError(VitreousError, ValueError):
    """A model name, field or value that cannot be used."""


class InputError(VitreousError, ValueError):
    """A tensor or image that does not fit the model."""


class CheckpointError(VitreousError):
    """A weight file that cannot be read, or that does not fit the model."""


class DataError(VitreousError):
    """Images, labels or annotations that cannot be used; the message names the file."""


class WriteError(VitreousError):
    """A file that cannot be written: the disk is full or read-only, or the place does not exist."""


class HubError(VitreousError):
    """A file that could not be downloaded."""


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Inside, a DataError says what is wrong; outside, it begins with the name of what is."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{name}: {error}") from None


class Word(str):
    """A value in advice that the user fills in, like FILE."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


Spelling = Callable[[str, Any], str]
"""A name and its value as one gives them; an empty text where one cannot."""


def _in_python(name: str, value: Any) -> str:
    return f"{name}={value!r}"


_spelling: Spelling = _in_python


@contextmanager
def spelled_by(spelling: Spelling) -> Iterator[None]:
    """Inside, advice is spelled so: as options of a command."""
    global _spelling
    before, _spelling = _spelling, spelling
    try:
        yield
    finally:
        _spelling = before


def advice(before: str, after: str = "", /, **ways: Any) -> str:
    """A part of a message: what to pass, in the words of whoever reads it. `advice(", or pass ",
    pad=True)` is ", or pass pad=True" in Python and ", or pass --set pad=True" in the shell; it is
    empty for a command that has none of the options."""
    spelled = [text for name, value in ways.items() if (text := _spelling(name, value))]
    return f"{before}{' or '.join(spelled)}{after}" if spelled else ""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`": did you mean 'vit-b/16'?"`, or an empty string when no known word is close."""
    near = difflib.get_close_matches(word.lower(), list(known), n=3, cutoff=0.6)
    return f": did you mean {' or '.join(repr(match) for match in near)}?" if near else ""
