"""How results look on a terminal, and as plain text when they go elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from vitreous.terminal import print, printable


class TextTable:
    """Columns under headings; a heading that ends in `>` is aligned to the right.

    On a terminal rich draws it; in a file or a pipe it is plain lines of full length, which `grep`
    and `cut` understand.
    """

    def __init__(self, *headings: str) -> None:
        self.headings = [heading.removesuffix(">") for heading in headings]
        self.right = [heading.endswith(">") for heading in headings]
        self.rows: list[tuple[str, ...]] = []

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


class TextLines:
    """Rows below headings, printed as they come; a column becomes wider where it must."""

    def __init__(self, *headings: str) -> None:
        self.headings = [heading.removesuffix(">") for heading in headings]
        self.right = [heading.endswith(">") for heading in headings]
        self.widths: list[int] = []

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
