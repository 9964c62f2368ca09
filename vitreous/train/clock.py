"""How long a run has learned, in seconds and in CPU seconds: its steps, without evaluations.

It is kept in times.jsonl, apart from metrics.jsonl: a run that is repeated has the same metrics to
the bit, and other times.
"""

from __future__ import annotations

import time

import torch

from vitreous.engines.world import World
from vitreous.run_folder import Run
from vitreous.train.checkpoint import Progress


class Clock:
    """Counts into the progress of a run, which checkpoints keep: a resumed run goes on counting."""

    def __init__(self, run: Run, world: World) -> None:
        self.run, self.world = run, world
        self.last = (time.perf_counter(), time.process_time())

    def go_on(self) -> None:
        """What was before does not count."""
        self.last = (time.perf_counter(), time.process_time())

    def count(self, progress: Progress) -> None:
        """Until now; CPU seconds are those of all threads. Those of processes that read images are
        not among them."""
        before, self.last = self.last, (time.perf_counter(), time.process_time())
        if progress.seconds is None or progress.cpu_seconds is None:  # an older version began it
            return
        spent = torch.tensor(self.last[1] - before[1])
        progress.seconds += self.last[0] - before[0]
        progress.cpu_seconds += self.world.all_reduce(spent).item()

    def write(self, progress: Progress, images: int) -> None:
        """A line for this step: how many images were seen until then, and how long it took."""
        if self.world.is_first and progress.seconds is not None:
            taken = {"seconds": progress.seconds, "cpu_seconds": progress.cpu_seconds}
            rounded = {name: round(value or 0.0, 3) for name, value in taken.items()}
            self.run.log_time(step=progress.step, images=images, **rounded)
