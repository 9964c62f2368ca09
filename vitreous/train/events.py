"""What a training shows while it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


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


class Display(Protocol):
    """Shows people what takes long, besides events and logs."""

    def tell(self, text: str) -> None:
        """Print a line at once: it may be called while another is being printed."""

    def evaluated(self, done: int, total: int) -> None:
        """So many images of an evaluation are done."""


class _Silent:
    def tell(self, text: str) -> None:
        pass

    def evaluated(self, done: int, total: int) -> None:
        pass


SILENT = _Silent()
