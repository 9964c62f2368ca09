"""The progress of a run, on stderr."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from vitreous.progress import CountProgress, time_left
from vitreous.terminal import print, printable
from vitreous.train.events import Event


class TrainingProgress(CountProgress):
    """A bar of steps on a terminal, a line per evaluation elsewhere."""

    def __init__(self) -> None:
        super().__init__(None, self.line, "steps", title="training", visible=True)
        self.evaluation = CountProgress(0, visible=False)
        """Of the one that is under way."""
        self.began = time.perf_counter()
        self.first: tuple[int, float] | None = None
        """The step of this session's first event, and when it was."""
        if sys.stderr.isatty():
            self.show(stays=True)

    def __enter__(self) -> TrainingProgress:
        return self

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
            self.evaluation = CountProgress(total, self.line, visible=self.bar is None)
        self.evaluation.add(done - self.evaluation.done)
        if self.bar is not None:
            pace = f", {self.evaluation.pace}" if done else ""
            text = f"evaluating {done:,} of {total:,} images{pace}"
            self.bar.update(self.task, description=text)

    def event(self, event: Event) -> None:
        now = time.perf_counter()
        self.first = self.first or (event.step, now)
        left = time_left(self._seconds_left(event, now))
        if event.evaluated is not None:
            self.line(
                f"epoch {event.epoch:g}: loss {event.loss:.4f}, "
                f"{self._measured(event, event.evaluated)}, "
                f"{event.images_per_second:.0f} images/s, {now - self.began:.0f} s, {left}"
            )
        if self.bar is not None:
            text = f"loss {event.loss:.3f}, {event.images_per_second:.0f} images/s, {left}"
            self.bar.update(self.task, completed=event.step, total=event.steps, description=text)

    def _measured(self, event: Event, found: dict[str, Any]) -> str:
        name = "validation loss" if event.primary == "loss" else event.primary
        also = [
            f"{key.replace('_', ' ')} {found[key]:.4g}" for key in event.watched if key in found
        ]
        return ", ".join([f"{name} {found[event.primary]:.4f}", *also])

    def _seconds_left(self, event: Event, now: float) -> float:
        """From the steps of this session (a resumed run has taken others before) behind the first
        one, before which data is read and features may be stored."""
        assert self.first is not None
        step, since = self.first
        done, spent = (
            (event.step - step, now - since) if event.step > step else (1, now - self.began)
        )
        return spent / done * (event.steps - event.step)
