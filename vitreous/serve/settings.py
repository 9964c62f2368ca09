"""What a server is to do, which goes to the worker processes as it is; and how it stands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from vitreous.inference import USUAL, InferenceOptions


@dataclass(frozen=True)
class Limits:
    """What bounds the work and the memory of a server."""

    body: int = 10_000_000
    """Bytes of a request's body."""
    pixels: int = 25_000_000
    """Of an image, as its header states them."""
    images: int = 16
    """In one request."""
    queue: int = 64
    """Images that wait for a model."""
    explain_queue: int = 4
    """Images that wait to be explained by a model, which takes many times as long."""
    batch: int = 8
    """Images that a model computes at once."""
    delay: float = 0.005
    """Seconds that an image waits for others to be computed with it."""
    deadline: float = 30.0
    """Seconds until a request is answered, or given up."""
    head: float = 10.0
    """Seconds in which a request's head must arrive,"""
    upload: float = 20.0
    """and then its body."""
    idle: float = 30.0
    """Seconds that a connection without a request stays open."""
    connections: int = 1000
    """Open at once; more are closed at once."""

    @property
    def memory(self) -> int:
        """Bytes of all bodies that are held at a time."""
        return self.queue * self.body


@dataclass(frozen=True)
class Settings:
    models: dict[str, str]
    """Run folders or exported files, by the names under which they are served."""
    inference: InferenceOptions = USUAL
    """How they are run."""
    threads: int | None = None
    """Threads that compute, in each worker."""
    host: str = "127.0.0.1"
    port: int = 8000
    allow_hosts: tuple[str, ...] = ()
    """Names by which it may be asked, besides those that `Hosts` knows."""
    workers: int = 1
    token: str = field(default="", repr=False)
    """What requests must bear; none: everybody may ask."""
    drain: float = 0.0
    """Seconds between SIGTERM, when /readyz begins to say no, and the closing of the port."""
    examples: int = 0
    """Images of each run's own data that the page shows."""
    limits: Limits = Limits()


@dataclass
class Life:
    """Whether a server is ready, draining or has failed."""

    ready: bool = False
    draining: bool = False
    failure: BaseException | None = None
    stop: Callable[[], None] = field(default=lambda: None)
    """Ends the server."""

    def fail(self, error: BaseException) -> None:
        self.failure = error
        self.stop()
