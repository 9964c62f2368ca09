"""Runs side by side: as many processes as are asked for, each with one job after the other."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

WAIT_SECONDS = 30.0
"""For runs that are stopped: each saves where it is."""


@dataclass(frozen=True)
class Answer:
    """What became of a job."""

    number: int
    found: dict[str, Any]
    """What its process says; `event` is done, failed or stopped."""


class Worker:
    """A process of `worker.py`. What it prints goes to a file."""

    def __init__(self, number: int, log: Path, tell: Callable[[int, dict[str, Any]], None]) -> None:
        self.number, self.log, self.tell = number, log, tell
        self.job: int | None = None
        environment = {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONUNBUFFERED": "1"}
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "vitreous.study.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                env=environment,
                text=True,
                start_new_session=True,  # Ctrl-C is passed on once, by this process
            )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.tell(self.number, json.loads(line))
        self.tell(self.number, {"event": "ended", "code": self.process.wait()})

    def give(self, number: int, job: dict[str, Any]) -> None:
        self.job = number
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it says so itself
            self.process.stdin.write(json.dumps(job) + "\n")
            self.process.stdin.flush()

    def close(self) -> None:
        """It ends when nobody can give it anything any more."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()


class Pool:
    """`with Pool(2, log) as pool: for answer in pool.run(jobs, watch): …`"""

    def __init__(self, size: int, log: Path) -> None:
        self.size, self.log = size, log
        self.heard: queue.SimpleQueue[tuple[int, dict[str, Any]]] = queue.SimpleQueue()
        self.workers: dict[int, Worker] = {}
        self.started = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """Runs that are under way are asked to stop, and save themselves."""
        working = {number for number, each in self.workers.items() if each.job is not None}
        for number in working:
            with contextlib.suppress(OSError):
                self.workers[number].process.send_signal(signal.SIGINT)
        until = time.monotonic() + WAIT_SECONDS
        while working:
            try:
                number, message = self.heard.get(timeout=max(until - time.monotonic(), 0))
            except queue.Empty:
                break
            working -= {number} if message["event"] != "step" else set()
        for each in self.workers.values():
            each.close()

    def run(
        self, jobs: Sequence[dict[str, Any]], watch: Callable[[int, float], None]
    ) -> Iterator[Answer]:
        """The answers as they come; `watch` is told how much of a job is done. A process that ends
        is an answer, too, and another takes its place."""
        waiting = list(enumerate(jobs))[::-1]
        working = 0
        while waiting or working:
            while waiting and working < self.size:
                self._idle().give(*waiting.pop())
                working += 1
            number, message = self.heard.get()
            worker = self.workers.get(number)
            if worker is None or (worker.job is None and message["event"] != "ended"):
                continue
            job = worker.job
            if message["event"] == "step":
                assert job is not None
                watch(job, message["part"])
                continue
            worker.job = None
            if message["event"] == "ended":
                del self.workers[number]
                message = {"event": "failed", "why": _ended(message["code"], self.log)}
            if job is not None:
                working -= 1
                yield Answer(job, message)

    def _idle(self) -> Worker:
        for worker in self.workers.values():
            if worker.job is None:
                return worker
        self.started += 1
        log = self.log / f"worker-{len(self.workers) + 1}.log"
        made = Worker(self.started, log, lambda *said: self.heard.put(said))
        self.workers[self.started] = made
        return made


def _ended(code: int, log: Path) -> str:
    if code < 0:
        name = signal.Signals(-code).name
        why = ", as it does where there is no memory left" if name == "SIGKILL" else ""
        return f"its process was ended by {name}{why}"
    return f"its process ended with code {code}; {log} has what it said"
