"""Ctrl-C and SIGTERM: the loop saves what was learned, and stops."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from vitreous.errors import VitreousError


class StoppedError(VitreousError):
    """A run that was asked to stop, and has saved itself."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class StopSignals:
    """The first one asks the loop to stop, a second one stops at once."""

    answer: Callable[[], None]
    """Tells people what will happen."""
    asked: int = 0
    """The signal that asked, or 0."""

    @contextmanager
    def heard(self) -> Iterator[None]:
        process = os.getpid()

        def ask(number: int, frame: object) -> None:
            if self.asked:
                raise KeyboardInterrupt
            self.asked = number
            if os.getpid() == process:  # those that load data are forks
                self.answer()

        with handling(ask, signal.SIGINT, signal.SIGTERM):
            yield


@contextmanager
def handling(handle: Callable[[int, Any], object], *signals: signal.Signals) -> Iterator[None]:
    """Inside, these signals are handled so; only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handle) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
