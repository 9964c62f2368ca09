"""How many things are done, how fast, and how long the rest takes, on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, Self

Log = Callable[[str], None]
"""Is told what happens, a message at a time."""
LOG_SECONDS = 30.0
"""Between two lines, where there is no terminal."""


def silent(text: str) -> None:
    """A log that nobody reads."""


def time_left(seconds: float) -> str:
    return f"{seconds:.0f} s to go" if seconds < 120 else f"{seconds / 60:.0f} min to go"


class CountProgress:
    """A bar on a terminal, a line now and then elsewhere; `total` may be unknown."""

    def __init__(
        self,
        total: int | None,
        log: Log = silent,
        what: str = "images",
        *,
        title: str = "",
        visible: bool,
    ) -> None:
        self.total, self.log, self.what, self.title, self.done = total, log, what, title, 0
        self.began = self.told = time.monotonic()
        self.visible = visible
        self.bar: Any = None

    def __enter__(self) -> Self:
        if self.visible and self.total != 0 and sys.stderr.isatty():
            self.show()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def show(self, *, stays: bool = False) -> None:
        """Begin to draw the bar, which `stays` at its end or goes."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        text = TextColumn("{task.description}", markup=False)  # names may have brackets
        # what is printed meanwhile stands above the bar, but in a pipe it stays in the pipe
        self.bar = Progress(
            *(BarColumn(), MofNCompleteColumn(), text),
            console=Console(stderr=True),
            transient=not stays,
            redirect_stdout=sys.stdout.isatty(),
        )
        self.task = self.bar.add_task(self.title, total=self.total)
        self.bar.start()

    def stop(self) -> None:
        """No more comes."""
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
        return f"{text}, {time_left(max(self.total - self.done, 0) / max(self.rate, 1e-9))}"

    def add(self, count: int) -> None:
        self.done += count
        now = time.monotonic()
        if self.bar is not None:
            text = f"{self.title}, {self.pace}" if self.title else self.pace
            self.bar.update(self.task, completed=self.done, description=text)
        elif self.visible and now - self.told > LOG_SECONDS:
            self.told = now
            of = "" if self.total is None else f" of {self.total:,}"
            self.log(f"{self.done:,}{of} {self.what}, {self.pace}")
