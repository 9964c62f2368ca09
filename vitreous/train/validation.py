"""Evaluation while a model learns: the best weights are kept, and patience is counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from vitreous.data.loader import Batch, EvalSet, eval_batches
from vitreous.layers.lora import merge_lora
from vitreous.measure import evaluating, measure
from vitreous.models.model import Model
from vitreous.run_folder import Run
from vitreous.train.checkpoint import Progress
from vitreous.train.distributed import whole
from vitreous.train.learner import Learner
from vitreous.train.progress import Display

SMOOTHING = 0.5
"""What the metric that `patience` watches keeps of its last value."""
Probe = Callable[[Model, bool], dict[str, Any]]
"""What each evaluation measures besides the task's metrics, and whether it is the last."""


@dataclass
class Validation:
    """Measures a learner on the images that are held out from it."""

    learner: Learner
    val_set: EvalSet
    run: Run
    batch: int
    workers: int
    probe: Probe
    show: Display

    def measure(self, progress: Progress, last: bool) -> dict[str, Any]:
        """The metrics of the averaged weights. The best ones so far are written."""
        learner, world = self.learner, self.learner.world
        task, metric = learner.task, learner.task.metric
        with learner.averaged():
            # The shards of a model must be called equally often: each process takes all samples.
            sharded = learner.recipe.shard
            rank, size = (0, 1) if sharded else (world.rank, world.size)
            batch, preprocess = 2 * self.batch, self.val_set.preprocess
            if preprocess.whole:
                batch = min(batch, preprocess.at_once)
            pin = world.device.type == "cuda"
            batches = eval_batches(self.val_set, batch, self.workers, rank, size, pin=pin)
            with evaluating(learner.computed) as engine:
                metrics = measure(engine, task, self._counting(batches, size))
            counts = metrics.counts()
            if not sharded:
                counts = metrics.merge(world.gather(counts))
            result = metrics.compute(counts) | self.probe(learner.model, last)
            value = result[metric.key]
            self._wait(progress, value)
            if progress.best is None or metric.better(value, progress.best):
                progress.best, progress.best_step = value, progress.step
                state = {name: whole(v) for name, v in learner.model.state_dict().items()}
                state = merge_lora(state)
                if world.is_first:
                    self.run.write_weights(learner.model, state)
                    if decoding := task.decoding(result):
                        self.run.write_decoding(decoding)
        return result

    def try_out(self, count: int) -> int:
        """Measure some images, to see how long it takes; returns how many."""
        few = replace(self.val_set, samples=self.val_set.samples[:count])
        with evaluating(self.learner.computed) as engine:
            measure(engine, self.learner.task, eval_batches(few, count, 0))
        return len(few)

    def _counting(self, batches: Iterable[Batch], processes: int) -> Iterator[Batch]:
        """The batches, while their progress is shown."""
        done, total = 0, len(self.val_set)
        self.show.evaluated(done, total)
        for batch in batches:
            yield batch
            done += len(batch.ids) * processes
            self.show.evaluated(min(done, total), total)

    def _wait(self, progress: Progress, value: float) -> None:
        """For `patience`: whether the smoothed metric has improved."""
        metric, before, best = self.learner.task.metric, progress.smoothed, progress.best_smoothed
        now = value if before is None else SMOOTHING * before + (1 - SMOOTHING) * value
        progress.smoothed, progress.waited = now, progress.waited + 1
        if best is None or metric.better(now, best):
            progress.best_smoothed, progress.waited = now, 0
