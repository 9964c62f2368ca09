"""How many things are done, how fast, and how long the rest takes, on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

Log = Callable[[str], None]
"""Is told what happens, a message at a time."""
LOG_SECONDS = 30.0
"""Between two lines, where there is no terminal."""


def silent(text: str) -> None:
    """A log that nobody reads."""


class CountProgress:
    """A bar on a terminal, a line now and then elsewhere; `total` may be unknown."""

    def __init__(self, total: int | None, log: Log, what: str = "images", *, visible: bool) -> None:
        self.total, self.log, self.what, self.done = total, log, what, 0
        self.began = self.told = time.monotonic()
        self.visible = visible
        self.bar: Any = None

    def __enter__(self) -> CountProgress:
        if self.visible and self.total != 0 and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
            # what is printed meanwhile stands above the bar, but in a pipe it stays in the pipe
            above = sys.stdout.isatty()
            console = Console(stderr=True)
            self.bar = Progress(*columns, console=console, transient=True, redirect_stdout=above)
            self.task = self.bar.add_task("", total=self.total)
            self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    @property
    def rate(self) -> float:
        """Per second."""
        return self.done / max(time.monotonic() - self.began, 1e-6)

    @property
    def pace(self) -> str:
        """How fast, and how long the rest takes."""
        text = f"{self.rate:.1f} {self.what}/s"
        if self.total is None:
            return text
        left = max(self.total - self.done, 0) / max(self.rate, 1e-9)
        return f"{text}, {f'{left:.0f} s' if left < 120 else f'{left / 60:.0f} min'} to go"

    def add(self, count: int) -> None:
        self.done += count
        now = time.monotonic()
        if self.bar is not None:
            self.bar.update(self.task, completed=self.done, description=self.pace)
        elif self.visible and now - self.told > LOG_SECONDS:
            self.told = now
            of = "" if self.total is None else f" of {self.total:,}"
            self.log(f"{self.done:,}{of} {self.what}, {self.pace}")
