"""Whether a server is ready, draining or has failed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Life:
    ready: bool = False
    draining: bool = False
    failure: BaseException | None = None
    stop: Callable[[], None] = field(default=lambda: None)
    """Ends the server."""

    def fail(self, error: BaseException) -> None:
        self.failure = error
        self.stop()
