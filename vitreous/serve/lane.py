"""A queue of bounded length in front of a model: images come in one by one, are prepared by a few
threads, and are computed in batches by one.

Nothing is computed that nobody waits for: an image whose request was given up (its future is
cancelled) or is past its deadline is dropped before it is prepared, and again before inference.
All but `prepare` and `compute` happens on the event loop.
"""

from __future__ import annotations

import asyncio
import math
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from vitreous.errors import VitreousError
from vitreous.serve.metrics import ServerMetrics

Prepare = Callable[[Any], Any]
Compute = Callable[[Any, Sequence[Any]], Sequence[Any]]
"""Is given the key that images of a batch share, and what `prepare` made of them."""
NICE = 5
"""Of 19; a thread with it gets a third of the time of one without, if both want the same core."""


def computing_threads(count: int, name: str) -> ThreadPoolExecutor:
    """Threads that give way to the one that answers. A server must refuse at once what it cannot
    do. If all cores compute, the system lets that thread wait for its turn, tens of milliseconds;
    with a lower priority of the others it does not."""
    return ThreadPoolExecutor(count, thread_name_prefix=name, initializer=give_way)


def give_way() -> None:
    """Lowers the priority of this thread, and of those that it will start (torch's, OpenVINO's).
    Only Linux has priorities of threads."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)


class QueueFullError(Exception):
    def __init__(self, waiting: int, seconds: float) -> None:
        super().__init__(waiting)
        self.waiting = waiting
        self.retry_after = max(math.ceil(seconds), 1)


@dataclass(eq=False)
class Job:
    """One image on its way."""

    thing: Any
    key: Hashable
    answer: asyncio.Future[Any]
    deadline: float
    since: float
    """When it came to where it is now."""


class Lane:
    """`prepare` and `compute` of one model, and the images that wait for them."""

    def __init__(
        self,
        model: str,
        name: str,
        prepare: Prepare,
        compute: Compute,
        *,
        size: int,
        batch: int,
        delay: float,
        pool: Executor,
        metrics: ServerMetrics,
    ) -> None:
        self.prepare, self.compute = prepare, compute
        self.size, self.batch, self.delay = size, batch, delay
        self.pool, self.metrics = pool, metrics
        self.names = (model, name)
        self.ahead = 2 * batch
        """Prepared images may be large, so only so many are there at a time."""
        self.depth = 0
        """Images that were accepted and are not computed yet."""
        self.pace = 0.0
        """Seconds that an image takes, lately."""
        self._model = model
        self._waiting: deque[Job] = deque()
        self._ready: list[Job] = []
        self._preparing: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._thread = computing_threads(1, f"{name}-{model}")
        self._loop_task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._loop_task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """When all requests are answered."""
        if self._loop_task is not None:
            self._loop_task.cancel()
        self._thread.shutdown(wait=True, cancel_futures=True)

    def check_room(self, count: int = 1) -> None:
        if self.depth + count > self.size:
            raise QueueFullError(self.depth, self.depth * self.pace)

    async def submit(
        self, things: Sequence[Any], key: Hashable, deadline: float
    ) -> list[Any | VitreousError]:
        """An answer for each, in their order; for an image that cannot be used, the error.

        Cancelling this gives all of them up.
        """
        self.check_room(len(things))
        loop, now = asyncio.get_running_loop(), time.perf_counter()
        jobs = [Job(thing, key, loop.create_future(), deadline, now) for thing in things]
        self._count(len(jobs))
        self._waiting.extend(jobs)
        self._pump()
        try:
            return await asyncio.gather(*(job.answer for job in jobs), return_exceptions=True)
        except asyncio.CancelledError:
            self._waiting = deque(job for job in self._waiting if not self._is_dead(job))
            raise

    def _count(self, change: int) -> None:
        self.depth += change
        self.metrics.depth.labels(*self.names).set(self.depth)

    def _observe(self, stage: str, job: Job) -> None:
        now = time.perf_counter()
        self.metrics.seconds.labels(self._model, stage).observe(now - job.since)
        job.since = now

    def _is_dead(self, job: Job) -> bool:
        """Whether nobody waits for it; then it is gone."""
        if not job.answer.done() and time.monotonic() < job.deadline:
            return False
        job.answer.cancel()
        self._count(-1)
        self.metrics.dropped.labels(*self.names).inc()
        return True

    # Preparing

    def _pump(self) -> None:
        """Begins to prepare what waits, as far as there is room for it."""
        while self._waiting and len(self._preparing) + len(self._ready) < self.ahead:
            job = self._waiting.popleft()
            if not self._is_dead(job):
                self._observe("queue", job)
                task = asyncio.create_task(self._prepare(job))
                self._preparing.add(task)
                task.add_done_callback(self._prepared)

    async def _prepare(self, job: Job) -> None:
        thing, job.thing = job.thing, None
        loop = asyncio.get_running_loop()
        try:
            job.thing = await loop.run_in_executor(self.pool, self.prepare, thing)
        except Exception as error:
            self._count(-1)
            if not job.answer.done():
                job.answer.set_exception(error)
            return
        self._observe("decode", job)
        self._ready.append(job)
        self._wake.set()

    def _prepared(self, task: asyncio.Task[None]) -> None:
        self._preparing.discard(task)
        self._pump()

    # Computing

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            batch = await self._next_batch()
            began = time.perf_counter()
            answers = await loop.run_in_executor(self._thread, self._computed, batch)
            taken = (time.perf_counter() - began) / len(batch)
            self.pace += (taken - self.pace) * (0.1 if self.pace else 1.0)
            for job, answer in zip(batch, answers, strict=True):
                self._observe("compute", job)
                if job.answer.done():
                    continue
                if isinstance(answer, Exception):
                    job.answer.set_exception(answer)
                else:
                    job.answer.set_result(answer)

    async def _next_batch(self) -> list[Job]:
        """The oldest prepared image and others of its kind: a full batch, or what there is when the
        oldest has waited long enough."""
        while True:
            self._ready = [job for job in self._ready if not self._is_dead(job)]
            self._pump()
            if not self._ready:
                await self._woken(None)
                continue
            first = self._ready[0]
            batch = [job for job in self._ready if job.key == first.key][: self.batch]
            left = first.since + self.delay - time.perf_counter()
            if len(batch) < self.batch and left > 0:
                await self._woken(left)
                continue
            self._ready = [job for job in self._ready if job not in batch]
            for job in batch:
                self._observe("batch", job)
            self._count(-len(batch))
            self.metrics.batch.labels(*self.names).observe(len(batch))
            self.metrics.images.labels(*self.names).inc(len(batch))
            self._pump()
            return batch

    async def _woken(self, seconds: float | None) -> None:
        """Until another image is prepared, or so many seconds have passed."""
        self._wake.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass

    def _computed(self, batch: Sequence[Job]) -> Sequence[Any]:
        """An answer or an error for each. One image that cannot be computed does not harm the
        others: then each is computed alone."""
        try:
            return self.compute(batch[0].key, [job.thing for job in batch])
        except Exception as error:
            if len(batch) == 1:
                return [error]
        return [answer for job in batch for answer in self._computed([job])]
