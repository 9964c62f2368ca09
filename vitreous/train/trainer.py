"""The one training loop, for every task, on one process or many."""

from __future__ import annotations

import contextlib
import itertools
import math
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from vitreous.data.loader import Batch, EvalSet, Order, TrainSet, train_batches
from vitreous.engines.world import World
from vitreous.errors import ConfigError, VitreousError
from vitreous.models.model import Model
from vitreous.progress import Log, silent
from vitreous.run_folder import Run, is_valid_checkpoint, newest_checkpoint
from vitreous.tasks.task import Task
from vitreous.train import checkpoint
from vitreous.train.checkpoint import Progress
from vitreous.train.clock import Clock
from vitreous.train.features import HeadAlone, store_features, trains_head_alone, why_not_stored
from vitreous.train.learner import Learner, NotFiniteStepError
from vitreous.train.open_data import resuming
from vitreous.train.optimizer import Schedule, set_lr
from vitreous.train.progress import SILENT, Display, Event, Watch
from vitreous.train.recipe import Recipe, write_recipe
from vitreous.train.stop import StoppedError, StopSignals
from vitreous.train.time_budget import TimeBudget
from vitreous.train.validation import Probe, Validation
from vitreous.wording import listed

UNPLANNED = 10
"""Epochs of a run that is made for a time, until its first step has been measured."""
FEATURE_EPOCHS = 100
"""The most that a head is trained on stored features in a given time: they take a moment each."""


class TrainingError(VitreousError):
    """A run that cannot continue."""


class NotFiniteError(TrainingError):
    """A run whose loss is not finite any more."""


def _named(terms: dict[str, float]) -> dict[str, float]:
    """The terms of a loss as they are logged; a single one is the loss itself."""
    return {f"loss_{name}": term for name, term in terms.items()} if len(terms) > 1 else {}


class Trainer:
    """The loop, and where it stands."""

    def __init__(
        self,
        recipe: Recipe,
        run: Run,
        model: Model,
        task: Task,
        train_set: TrainSet,
        val_set: EvalSet,
        world: World,
        *,
        weights: Tensor | None = None,
        teacher: Callable[[Tensor], Tensor] | None = None,
        probe: Probe = lambda model, final: {},
        watch: Watch = lambda event: None,
        log: Log = silent,
        show: Display = SILENT,
    ) -> None:
        assert recipe.batch is not None
        assert recipe.epochs is not None or recipe.time is not None
        assert recipe.lr is not None
        self.recipe, self.run, self.task, self.world = recipe, run, task, world
        self.train_set, self.watchers, self.log = train_set, [watch], log
        count = len(train_set.samples)
        self.batch = self._batch(recipe.batch, count)
        self.order = Order(
            count, self.batch, recipe.seed, 0, 0, world.rank, world.size, weights=weights
        )
        per_epoch = self.order.steps_per_epoch
        self.head_steps = recipe.unfreeze_after * per_epoch
        self.schedule = Schedule((recipe.epochs or UNPLANNED) * per_epoch, self.head_steps)
        self.budget: TimeBudget | None = None
        """The time that the run is made for, and that plans its steps."""
        self.workers = recipe.workers or 0
        self.learner = Learner(recipe, model, task, world, self.head_steps, teacher, log)
        self.model = self.learner.model
        self.stores_features = self._stores_features()
        parts = (self.learner, val_set, run, self.batch, self.workers)
        self.validation = Validation(*parts, probe, show)
        self.progress = Progress(seconds=0.0, cpu_seconds=0.0)
        self.clock = Clock(run, world)
        self.saved = 0
        """The step of the last checkpoint,"""
        self.doing = "step"
        """and what is done before the next one."""
        self.stop = StopSignals(
            lambda: show.tell(
                f"stopping when this {self.doing} is done and saved; Ctrl-C again leaves at once, "
                f"and loses what was learned after step {self.saved}"
            )
        )

    def _stores_features(self) -> bool:
        """Whether the features of each image are computed once, because they stay the same."""
        if self.head_steps or not trains_head_alone(self.model):
            return False
        if reason := why_not_stored(self.recipe, self.train_set):
            self.log(f"features: computed in every epoch, because {reason}")
        return not reason

    def _store_features(self) -> None:
        """From here on, batches have features in place of images."""
        began, sets = time.perf_counter(), (self.train_set, self.validation.val_set)
        self.train_set, self.validation.val_set = store_features(
            self.model, *sets, 2 * self.batch, self.workers, self.world
        )
        self.workers = self.validation.workers = 0
        self.learner.computed, self.stores_features = HeadAlone(self.model), False
        self.learner.wrap()
        spent = time.perf_counter() - began
        self.log(f"features: computed once, in {spent:.0f} s; the head is trained on them")

    def _batch(self, asked: int, count: int) -> int:
        """The batch of the recipe, or less if there are fewer samples."""
        parts = self.world.size * self.recipe.accumulate
        into = f"{self.world.size} processes x {self.recipe.accumulate} parts"
        if asked % parts:
            raise ConfigError(
                f"a batch of {asked} does not divide into {into}: choose --batch as a multiple of "
                f"{parts}"
            )
        if asked <= count:
            return asked
        if count < parts:
            raise ConfigError(f"{count} training images do not divide into {into}")
        self.log(f"batch: {count - count % parts}, not {asked}: there are {count} training images")
        return count - count % parts

    @property
    def steps(self) -> int:
        """In all, as far as is known."""
        return self.schedule.steps

    def fit(self) -> None:
        """Train to the end, evaluating and saving after each epoch (or `save_every` steps)."""
        start, per_epoch = self.progress.step, self.order.steps_per_epoch
        self.order.start = start
        self.order.stop = self.steps if self.budget is None else sys.maxsize
        if start >= self.steps:
            self._end_early()
            return
        self.clock.go_on()
        if self.stores_features:
            self._store_features()
        pin = self.world.device.type == "cuda"  # into memory that a GPU can copy from meanwhile
        batches = train_batches(self.train_set, self.order, self.workers, pin=pin)
        if self.budget is not None:
            self.budget.start(start)
        began, counted = time.perf_counter(), 0
        with self.stop.heard():
            for step in itertools.count(start + 1):
                loss = self.fitting_step(step - 1, next(batches))
                self._count(step, loss)
                counted += self.batch
                if self.budget is not None:
                    self._plan(step, self.budget)
                speed = counted / (time.perf_counter() - began)
                event = Event(step, self.steps, step / per_epoch, loss, self.learner.lr, speed)
                ends_epoch, last = step % per_epoch == 0, step >= self.steps
                if ends_epoch or last:
                    event.loss, event.evaluated = self._evaluate(last)
                    event.primary, event.watched = self.task.metric.key, self.task.watched
                    began, counted = time.perf_counter(), 0
                elif self.recipe.log_every and step % self.recipe.log_every == 0:
                    self._log("step", {"loss": loss, **_named(self.learner.terms)})
                for watch in self.watchers:
                    watch(event)
                if event.evaluated is not None and self._is_enough(event.evaluated):
                    last = True
                self.progress.finished = last
                due = self.recipe.save_every and step % self.recipe.save_every == 0
                stop = self.world.any(self.stop.asked > 0)
                if ends_epoch or last or due or stop:
                    self.save()
                if last:
                    return
                if stop:
                    raise StoppedError(
                        f"stopped at step {step} of {self.steps} and saved; to continue: "
                        f"{resuming(self.recipe, self.run)}",
                        code=128 + (self.stop.asked or signal.SIGTERM),
                    )

    def _count(self, step: int, loss: float) -> None:
        """One more step is done."""
        progress = self.progress
        progress.step, progress.lr = step, self.learner.lr
        if math.isfinite(loss):  # else the step was left out
            progress.loss, progress.losses = progress.loss + loss, progress.losses + 1
            for name, term in self.learner.terms.items():
                progress.terms[name] = progress.terms.get(name, 0.0) + term

    def _is_enough(self, evaluated: dict[str, Any]) -> bool:
        """Whether more steps would bring nothing: `patience` is over, or the few images of
        `overfit` are known by heart, which is all it is to show."""
        progress, metric = self.progress, self.task.metric
        value = evaluated[metric.key]
        if learnt := bool(self.recipe.overfit and metric.is_learnt(value)):
            self.log(f"overfit: {metric.name} is {value:.3f}: the images are learnt")
        if waited := 0 < self.recipe.patience <= progress.waited:
            self.log(
                f"stopped early: no improvement in {progress.waited} evaluations; the best weights "
                f"are those of step {progress.best_step}"
            )
        return learnt or waited

    def _evaluate(self, last: bool) -> tuple[float, dict[str, Any]]:
        """The mean loss since the last evaluation, and what this one measures."""
        self.doing, progress = "evaluation", self.progress
        self.clock.count(progress)
        losses = max(progress.losses, 1)
        mean = progress.loss / losses
        terms = {name: term / losses for name, term in progress.terms.items()}
        with self.budget.evaluation() if self.budget else contextlib.nullcontext():
            result = self.validation.measure(progress, last)
            numbers = {k: v for k, v in result.items() if isinstance(v, int | float)}
            self._log("evaluation", {"train_loss": mean, **_named(terms), **numbers})
            self.clock.write(progress, self.batch * progress.step)
            self.world.barrier()
        progress.loss, progress.losses, progress.terms = 0.0, 0, {}
        self.doing = "step"
        self.clock.go_on()
        return mean, result

    def _plan(self, step: int, budget: TimeBudget) -> None:
        """How many steps fit into the time, by what they have taken until this one."""
        per_epoch = self.order.steps_per_epoch
        if not self.world.any(budget.due(step, per_epoch)):
            return
        if budget.check is None:
            self._time_evaluation(budget)
        steps = budget.plan(step, per_epoch)
        if isinstance(self.learner.computed, HeadAlone):
            steps = min(steps, max(FEATURE_EPOCHS * per_epoch, step))
        steps = self.world.broadcast(steps)
        if steps != self.steps:
            self._log("plan", {"steps": steps, "spent": round(budget.spent(), 1)})
        self.schedule = self.schedule.planned_again(step, steps)
        if budget.is_news(step, steps):
            epochs = steps / per_epoch
            amount = f"{epochs:.1f}" if epochs < 10 else f"{epochs:,.0f}"
            self.log(f"time: about {amount} epochs fit into {self.recipe.time}")
        if step >= steps and step < self.head_steps:
            self.log("time: over before all of the model was trained: lower unfreeze_after")

    def _time_evaluation(self, budget: TimeBudget) -> None:
        """How long one will take, by a batch of it."""
        if isinstance(self.learner.computed, HeadAlone):
            return  # a moment
        with budget.evaluation():
            measured = self.validation.try_out(self.batch)
        images = len(self.validation.val_set)
        share = images / (1 if self.recipe.shard else self.world.size)
        budget.check = (budget.check or 0.0) * max(share / measured, 1.0)

    def _end_early(self) -> None:
        """Finish a run that is beyond its last epoch, because that was lowered."""
        time = self.recipe.time
        asked = f"--epochs {self.recipe.epochs}" if time is None else f"--time {time}"
        self.log(
            f"ended at step {self.progress.step}, as {asked} asks, before the learning rate had "
            "come down; the best weights so far are kept"
        )
        if self.progress.losses:
            self._evaluate(last=True)
        self.progress.finished = True
        self.save()

    def resume(self, longer: bool = False) -> bool:
        """Continue from the newest valid checkpoint, if there is one.

        A run that is made longer may have stopped early: its patience starts anew.
        """
        found = newest_checkpoint(self.run.checkpoints)
        if found is not None:
            tensors, self.progress = checkpoint.load(found)
            checkpoint.restore(tensors, self.model, self.learner.optimizer, self.learner.average)
            if self.progress.lr is not None:
                set_lr(self.learner.optimizer, self.progress.lr)
            if self.budget is not None:
                self.budget.before = self.progress.spent
                self.schedule = self._planned_before(self.budget, longer)
        self.saved = self.progress.step
        if longer:
            self.progress.finished, self.progress.waited = False, 0
        if self.world.is_first:
            self.run.forget_after(self.progress.step)
        return found is not None

    def _planned_before(self, budget: TimeBudget, longer: bool) -> Schedule:
        """The plan of the checkpoint; what was spent is less of a time that is longer now."""
        step, (steps, planned_at, done) = self.progress.step, self.progress.schedule or (0, 0, 0.0)
        if not steps or longer:
            done = min(self.progress.spent / budget.seconds, 1.0)
            steps, planned_at = max(step + 1, round(step / max(done, 1e-9))), step
        return Schedule(steps, self.head_steps, planned_at, done)

    def keep_weights(self) -> None:
        """Write the weights of a finished run that has lost them: of its best checkpoint, or else
        of its last."""
        if not self.world.is_first or self.run.has_weights:
            return
        best = self.run.checkpoints / f"step-{self.progress.best_step:08d}"
        source = best if is_valid_checkpoint(best) else newest_checkpoint(self.run.checkpoints)
        assert source is not None
        self.run.write_weights(self.model, Run(source).checkpoint_weights())
        self.log(f"model.safetensors was missing: written from {source.name}")

    def save(self) -> None:
        self.clock.count(self.progress)
        if self.budget is not None:
            plan = self.schedule
            self.progress.schedule = (plan.steps, plan.planned_at, plan.done)
            self.progress.spent = self.budget.spent()
        tensors = checkpoint.gather(self.model, self.learner.optimizer, self.learner.average)
        if self.world.is_first:
            checkpoint.save(self.run.checkpoints, tensors, self.progress)
            checkpoint.prune(self.run.checkpoints, self.recipe.keep, self.progress.best_step)
        self.saved = self.progress.step
        self.world.barrier()
        self.clock.go_on()

    def fitting_step(self, step: int, batch: Batch, lr: float | None = None) -> float:
        """One update, as `step` does it. A batch that does not fit into the device's memory is
        computed in more parts from then on, where that changes nothing but the time."""
        while True:
            try:
                return self.step(step, batch, lr)
            except torch.OutOfMemoryError as error:
                parts = 2 * self.recipe.accumulate
                if reason := self._why_not_in(parts):
                    raise TrainingError(
                        f"step {step + 1}: a batch of {self.batch} images does not fit into the "
                        f"memory of {self.world.device}{reason}"
                    ) from error
            # outside: the error holds what is to be freed
            self.learner.optimizer.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()
            self.recipe = self.learner.recipe = replace(self.recipe, accumulate=parts)
            if self.run.exists:
                self.run.write_text("recipe.toml", write_recipe(self.recipe))
            self.log(
                f"step {step + 1}: the batch of {self.batch} does not fit into memory: from here "
                f"on it is computed in {parts} parts (--set-recipe accumulate={parts})"
            )

    def _why_not_in(self, parts: int) -> str:
        """Why a batch cannot be computed in so many parts, and what to do; "" if it can."""
        less = "a smaller --batch, --recompute or --set-recipe checkpoint=true"
        if "accumulate" in self.task.refused:
            return f": {self.task.name} compares all images of a batch, so give {less}"
        if self.learner.has_batch_norms:
            return (
                f": give {less}; or --set-recipe accumulate={parts}, which trains otherwise: batch "
                "norm then normalises each part by itself"
            )
        if self.batch % (parts * self.world.size):
            return f": give {less}"
        return f": give --set-recipe accumulate={parts}, {less}" if self.world.size > 1 else ""

    def step(self, step: int, batch: Batch, lr: float | None = None) -> float:
        """One update, with the schedule's learning rate unless given; returns the loss. One that is
        not finite is left out if that is allowed, and else the end."""
        recipe = self.recipe
        if lr is None:
            assert recipe.lr is not None
            lr = recipe.lr * self.schedule.lr_factor(
                step, warmup=recipe.warmup, final=recipe.final_lr
            )
        try:
            return self.learner.step(step, batch, lr)
        except NotFiniteStepError as error:
            self.progress.skipped += 1
            what = f"step {step + 1}: {error}; {error.culprit}samples {listed(batch.ids)}"
            if self.progress.skipped > recipe.skip_nonfinite:
                which = "gradient" if math.isfinite(error.loss) else "loss"
                raise NotFiniteError(
                    f"the {which} is not finite at {what}. {self._steadier()}"
                ) from None
            self.log(f"skipped {what}")
            self._log("skipped", {"loss": str(error.loss), "samples": batch.ids}, step + 1)
            return error.loss

    def _steadier(self) -> str:
        """What to try when numbers are not finite, the likely cause first."""
        lr = self.recipe.lr
        assert lr is not None
        ways = [
            f"a smaller learning rate than {lr:g}: --lr {lr / 10:.2g}, or --lr-find to find one"
        ]
        if self.recipe.precision == "bfloat16":
            ways.append("--precision float32")
        return f"Try {', or '.join(ways)}; if that does not help, look at these images"

    def _log(self, kind: str, values: dict[str, Any], step: int | None = None) -> None:
        """To metrics.jsonl, at the present step unless given."""
        if self.world.is_first:
            step = self.progress.step if step is None else step
            epoch = step / self.order.steps_per_epoch
            self.run.log(step=step, kind=kind, epoch=epoch, lr=self.learner.lr, **values)
