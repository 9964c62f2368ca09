"""The progress of a run, on stderr."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from vitreous.progress import CountProgress
from vitreous.terminal import print, printable
from vitreous.train.events import Event


class ProgressBar:
    """A bar on a terminal, a line per evaluation elsewhere."""

    def __init__(self) -> None:
        self.bar = None
        self.counter = CountProgress(0, self.line, visible=False)
        """Of the evaluation that is under way."""
        self.began = time.perf_counter()
        self.first: tuple[int, float] | None = None
        """The step of this session's first event, and when it was."""
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            self.bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.completed}/{task.total}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self.task = self.bar.add_task("training", total=None)
            self.bar.start()

    def line(self, text: str) -> None:
        if self.bar is not None:
            self.bar.console.print(printable(text), highlight=False, markup=False)
        else:
            print(text, file=sys.stderr, flush=True)

    def tell(self, text: str) -> None:
        """A line at once, also from a signal handler: nothing of what prints meanwhile is used."""
        line = f"{printable(text)}\n".encode("ascii", "backslashreplace")
        try:
            os.write(sys.stderr.fileno(), b"\n" + line if self.bar is not None else line)
        except OSError:  # in a notebook it has no number
            self.line(text)

    def evaluated(self, done: int, total: int) -> None:
        """How far an evaluation is, where it takes long."""
        if not done:
            self.counter = CountProgress(total, self.line, visible=self.bar is None)
        self.counter.add(done - self.counter.done)
        if self.bar is not None:
            pace = f", {self.counter.pace}" if done else ""
            text = f"evaluating {done:,} of {total:,} images{pace}"
            self.bar.update(self.task, description=text)

    def stop(self) -> None:
        """No more steps come."""
        if self.bar is not None:
            self.bar.stop()

    def event(self, event: Event) -> None:
        self.first = self.first or (event.step, time.perf_counter())
        if event.evaluated is not None:
            spent = time.perf_counter() - self.began
            self.line(
                f"epoch {event.epoch:g}: loss {event.loss:.4f}, "
                f"{self._measured(event, event.evaluated)}, "
                f"{event.images_per_second:.0f} images/s, {spent:.0f} s, "
                f"{self._left(event, spent)} to go"
            )
        if self.bar is not None:
            text = f"loss {event.loss:.3f}  {event.images_per_second:.0f} images/s"
            self.bar.update(self.task, completed=event.step, total=event.steps, description=text)

    def _measured(self, event: Event, found: dict[str, Any]) -> str:
        name = "validation loss" if event.primary == "loss" else event.primary
        also = [
            f"{key.replace('_', ' ')} {found[key]:.4g}" for key in event.watched if key in found
        ]
        return ", ".join([f"{name} {found[event.primary]:.4f}", *also])

    def _left(self, event: Event, spent: float) -> str:
        """From the steps of this session (a resumed run has taken others before) behind the first
        one, before which data is read and features may be stored."""
        assert self.first is not None
        step, since = self.first
        done, spent = (
            (event.step - step, time.perf_counter() - since) if event.step > step else (1, spent)
        )
        seconds = spent / done * (event.steps - event.step)
        return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
