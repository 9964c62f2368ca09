"""Text for a terminal. Names of files and classes come from other people's data, and may have
escape sequences in them that clear a screen, forge a line or hide a word. They are shown, not sent.

Everything that the command line prints goes through `print` here, and cells of tables and lines of
progress bars through `printable`.
"""

from __future__ import annotations

import builtins
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from vitreous.errors import WriteError


class OutputClosedError(Exception):
    """Whoever reads our output has left, which is no error."""


# C0 and C1 controls, line separators, marks that reverse the order of letters, half characters
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: object, *, one_line: bool = False) -> str:
    """The text with control characters as \\x1b and the like; with `one_line` line breaks too."""
    safe = _UNSAFE.sub(lambda found: _escaped(found[0]), str(text))
    return re.sub(r"[\t\n]", lambda found: _escaped(found[0]), safe) if one_line else safe


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def print(
    text: object = "", *, end: str = "\n", file: TextIO | None = None, flush: bool = False
) -> None:
    """Prints what is safe to print, also where the terminal's encoding has not all characters."""
    stream = sys.stdout if file is None else file
    encoding = getattr(stream, "encoding", None) or "utf-8"
    known = printable(text).encode(encoding, "backslashreplace").decode(encoding)
    with reaching(stream):
        builtins.print(known, end=end, file=stream, flush=flush)


@contextmanager
def all_printed() -> Iterator[None]:
    """A program, at whose end all that it printed has arrived: Python itself would find out at exit
    that it cannot, and complain then."""
    try:
        yield
    except SystemExit:  # --help
        _flush()
        raise
    except BaseException:
        with suppress(OutputClosedError, WriteError):
            _flush()
        raise
    _flush()


def _flush() -> None:
    if sys.stdout is not None:
        with reaching(sys.stdout):
            sys.stdout.flush()


@contextmanager
def reaching(stream: TextIO) -> Iterator[None]:
    """Inside, something is printed. What cannot be is an error, unless it is itself about errors
    or progress: then there is nobody to tell."""
    try:
        yield
    except OSError as error:
        with suppress(OSError, ValueError):  # what is left of it goes nowhere, also at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        if isinstance(error, BrokenPipeError):
            raise OutputClosedError from None
        if stream is not sys.stderr:
            reason = error.strerror or error
            raise WriteError(f"the output cannot be written: {reason}") from None
