"""How results look on a terminal, as plain text when they go elsewhere, and as JSON; and messages
about images that cannot be used."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from vitreous.errors import DataError
from vitreous.terminal import print, printable


def print_json(value: Any, indent: int | None = None) -> None:
    """JSON as every reader takes it: a metric that is not defined (NaN) is null."""
    print(json.dumps(_defined(value), indent=indent, allow_nan=False), flush=True)


def _defined(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _defined(each) for key, each in value.items()}
    return [_defined(each) for each in value] if isinstance(value, list | tuple) else value


class TextTable:
    """Columns under headings; a heading that ends in `>` is aligned to the right.

    On a terminal rich draws it; in a file or a pipe it is plain lines of full length, which `grep`
    and `cut` understand.
    """

    def __init__(self, *headings: str) -> None:
        self.headings = [heading.removesuffix(">") for heading in headings]
        self.right = [heading.endswith(">") for heading in headings]
        self.rows: list[tuple[str, ...]] = []
        self.widths: list[int] = []

    def row(self, *cells: str) -> None:
        self.rows.append(tuple(printable(cell, one_line=True) for cell in cells))

    def print(self) -> None:
        if sys.stdout.isatty():
            self._print_rich()
            return
        lines = [tuple(self.headings), *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.headings))]
        for line in lines:
            print(_in_columns(line, widths, self.right))

    def _print_rich(self) -> None:
        from rich import box
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table as RichTable

        table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
        for heading, right in zip(self.headings, self.right, strict=True):
            table.add_column(heading, justify="right" if right else "left", overflow="fold")
        for cells in self.rows:
            table.add_row(*map(escape, cells))  # a class may be called [red]
        Console().print(table)


class TextLines(TextTable):
    """Rows below headings, printed as they come; a column becomes wider where it must."""

    def row(self, *cells: str) -> None:
        line = [printable(cell, one_line=True) for cell in cells]
        lines = [line] if self.widths else [self.headings, line]
        widths = self.widths or [len(heading) for heading in self.headings]
        self.widths = [max(width, len(cell)) for width, cell in zip(widths, line, strict=True)]
        for each in lines:
            print(_in_columns(each, self.widths, self.right), flush=True)


def _in_columns(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = (
        cell.rjust(width) if to_right else cell.ljust(width)
        for cell, width, to_right in zip(cells, widths, right, strict=True)
    )
    return "  ".join(padded).rstrip()


def number_text(name: str, result: Mapping[str, Any], digits: int = 4) -> str:
    """0.9833 (0.9694 to 0.9944; k-NN on pixels 0.9861): never without what to compare it with."""
    limits = result.get("intervals", {}).get(name)
    notes = [] if limits is None else [" to ".join(f"{limit:.{digits}f}" for limit in limits)]
    for baseline, numbers in result.get("baselines", {}).items():
        if numbers.get(name) is not None:
            notes.append(f"{baseline} {numbers[name]:.{digits}f}")
    text = "-" if result[name] is None else f"{result[name]:.{digits}f}"
    return f"{text} ({'; '.join(notes)})" if notes else text


def print_verdicts(result: Mapping[str, Any]) -> None:
    """A line each."""
    for each in result.get("verdicts", ()):
        sentences = filter(None, (each["seen"], each["next"]))
        print(f"{each['severity']:<8} {'; '.join(sentences)}")


class Complaints:
    """Prints a line for each image that cannot be used; when all others are done, an error."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, what: object) -> None:
        self.count += 1
        print(f"vitreous: {what}", file=sys.stderr, flush=True)

    def raise_if_any(self, given: int, what: str = "images") -> None:
        if self.count:
            raise DataError(f"{self.count} of {given} {what} could not be used: see above")
