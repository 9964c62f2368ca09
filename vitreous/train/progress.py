"""The progress of a run: on stderr, and for those who have it in TensorBoard."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from vitreous.errors import ConfigError
from vitreous.progress import CountProgress, time_left
from vitreous.terminal import print, printable


@dataclass
class Event:
    """The state after a step, for progress bars and logs."""

    step: int
    steps: int
    epoch: float
    loss: float
    lr: float
    images_per_second: float
    evaluated: dict[str, Any] | None = None
    primary: str = ""
    """The metric in `evaluated` that decides which weights are kept,"""
    watched: tuple[str, ...] = ()
    """and others that are of interest."""


Watch = Callable[[Event], None]


class Display:
    """Shows people what takes long, besides events and logs; this one shows nothing."""

    def tell(self, text: str) -> None:
        """Print a line at once: it may be called while another is being printed."""

    def evaluated(self, done: int, total: int) -> None:
        """So many images of an evaluation are done."""


SILENT = Display()


class TrainingProgress(CountProgress, Display):
    """A bar of steps on a terminal, a line per evaluation elsewhere."""

    def __init__(self) -> None:
        super().__init__(None, self.line, "steps", title="training", visible=True)
        self.evaluation = CountProgress(0, visible=False)
        """Of the one that is under way."""
        self.began = time.perf_counter()
        self.first: tuple[int, float] | None = None
        """The step of this session's first event, and when it was."""

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self.show(stays=True)
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


@contextmanager
def board(folder: Path, step: int) -> Iterator[Watch]:
    """Writes what it is shown; what was written behind `step` by a run that died is dropped."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ConfigError(
            "tensorboard = true needs a package: pip install 'vitreous[tensorboard]'"
        ) from error
    with SummaryWriter(str(folder), purge_step=step + 1) as writer:

        def see(event: Event) -> None:
            writer.add_scalar("train/loss", event.loss, event.step)
            writer.add_scalar("train/lr", event.lr, event.step)
            writer.add_scalar("train/images_per_second", event.images_per_second, event.step)
            for name, value in (event.evaluated or {}).items():
                if isinstance(value, int | float):
                    writer.add_scalar(f"val/{name}", value, event.step)

        yield see
