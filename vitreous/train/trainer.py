"""The one training loop, for every task, on one process or many."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from vitreous.data.augment import random_by, rescaled, seed_of
from vitreous.data.loader import Batch, EvalSet, Order, TrainSet, eval_batches, train_batches
from vitreous.engines.accelerate import accelerate
from vitreous.engines.fewer_tokens import skip_unread
from vitreous.engines.linear import training_step
from vitreous.engines.world import World
from vitreous.errors import ConfigError, VitreousError
from vitreous.layers.lora import add_lora, merge_lora
from vitreous.measure import evaluating, measure
from vitreous.models.model import Model
from vitreous.run_folder import Run, is_valid_checkpoint, newest_checkpoint
from vitreous.tasks.shared_random import sharing_batch
from vitreous.tasks.task import Task
from vitreous.train import checkpoint
from vitreous.train.checkpoint import Progress
from vitreous.train.distributed import whole, wrap
from vitreous.train.features import (
    HeadAlone,
    store_features,
    trains_head_alone,
    why_not_stored,
)
from vitreous.train.memory import checkpoint_blocks, keep_memory
from vitreous.train.optimizer import (
    Average,
    Schedule,
    freeze,
    frozen_batch_norms,
    has_training_batch_norms,
    head_parameters,
    make_optimizer,
    set_lr,
)
from vitreous.train.recipe import Recipe, write_recipe
from vitreous.train.recompute import recompute_cheap, recomputing
from vitreous.train.shared_batch import RandomRows, synchronise_batch_norms
from vitreous.train.state import gather, restore
from vitreous.train.time_budget import TimeBudget
from vitreous.wording import listed

LEARNT_BY_HEART = 0.97
"""The metric of a few images (`overfit`) from which on more steps would show nothing new."""
SMOOTHING = 0.5
"""What the metric that `patience` watches keeps of its last value."""
UNPLANNED = 10
"""Epochs of a run that is made for a time, until its first step has been measured."""
FEATURE_EPOCHS = 100
"""The most that a head is trained on stored features in a given time: they take a moment each."""


class Show(Protocol):
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


class TrainingError(VitreousError):
    """A run that cannot continue."""


class NotFiniteError(TrainingError):
    """A run whose loss is not finite any more."""


class StoppedError(VitreousError):
    """A run that was asked to stop, and has saved itself."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


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


def _named(terms: dict[str, float]) -> dict[str, float]:
    """The terms of a loss as they are logged; a single one is the loss itself."""
    return {f"loss_{name}": term for name, term in terms.items()} if len(terms) > 1 else {}


class Trainer:
    """The loop and all of its state: model, optimiser, average of the weights, progress."""

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
        probe: Callable[[Model, bool], dict[str, Any]] = lambda model, final: {},
        watch: Callable[[Event], None] = lambda event: None,
        log: Callable[[str], None] = lambda text: None,
        show: Show = SILENT,
    ) -> None:
        assert recipe.batch is not None
        assert recipe.epochs is not None or recipe.time is not None
        assert recipe.lr is not None
        self.recipe, self.run, self.task, self.world = recipe, run, task, world
        self.train_set, self.val_set = train_set, val_set
        self.weights, self.teacher, self.watch, self.log = weights, teacher, watch, log
        self.show = show
        self.probe = probe
        """What each evaluation measures besides the task's metrics, and whether it is the last."""
        count = len(train_set.samples)
        self.batch = self._batch(recipe.batch, count)
        self.order = Order(
            count, self.batch, recipe.seed, 0, 0, world.rank, world.size, weights=weights
        )
        per_epoch = self.order.steps_per_epoch
        self.head_steps = recipe.unfreeze_after * per_epoch
        """How many steps train the head alone, before all of the model is trained."""
        self.schedule = Schedule((recipe.epochs or UNPLANNED) * per_epoch, self.head_steps)
        self.budget: TimeBudget | None = None
        """The time that the run is made for, and that plans its steps."""
        self.workers = recipe.workers or 0
        skip_unread(model) if recipe.compile else accelerate(model)
        if recipe.recompute:
            recompute_cheap(model)
        freeze(model, recipe.freeze)
        if recipe.lora:
            self._adapt(model, recipe.lora)
        self.checkpointed = checkpoint_blocks(model) if recipe.checkpoint else []
        """Of these modules only the input is kept for the backward,"""
        self.see_kept: Callable[[Tensor], object] | None = None
        """and with `recompute`, this is shown what is kept."""
        if world.device.type == "cpu" and not (recipe.recompute or recipe.checkpoint):
            keep_memory()
        self.model = model.to(world.device)
        self.shares_chance = world.size > 1 and world.device.type == "cpu" and not recipe.compile
        """Whether dropout and the like draw the same numbers as in one process: see `RandomRows`.
        For many GPUs it would take too much memory."""
        if world.size > 1:
            synchronise_batch_norms(self.model)
        self.computed: Model = self.model
        """What batches go through: the model, or its head where the features are stored."""
        self.stores_features = self._stores_features()
        self.trained = [p for p in model.parameters() if p.requires_grad]
        self._wrap()
        # Sharding has put other parameters in place: these are what the optimiser must have.
        self.trained = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = make_optimizer(recipe, model)
        self.average = Average(model, recipe.ema) if recipe.ema else None
        self.progress = Progress()
        self.terms: dict[str, float] = {}
        """The terms of the last step's loss."""
        self.stop_asked = 0
        self.saved = 0
        """The step of the last checkpoint,"""
        self.doing = "step"
        """and what is done before the next one."""
        self.pins = world.device.type == "cuda"
        """Whether batches are put into memory that a GPU can copy from meanwhile."""
        self.has_batch_norms = has_training_batch_norms(model)
        """Whether what the model gives for an image depends on the others of its batch, or part."""
        if recipe.accumulate > 1 and self.has_batch_norms:
            log(
                f"accumulate: {recipe.accumulate}: batch norm normalises each of the parts by "
                "itself, as if the batch were that small"
            )
        if self.head_steps:
            self._wrap(head_alone=True)
            count = sum(p.numel() for p in model.parameters() if p.requires_grad)
            total = sum(p.numel() for p in self.trained)
            if not count:
                raise ConfigError("freeze leaves no parameter of the head to train first")
            if count == total:
                raise ConfigError(
                    f"unfreeze_after = {recipe.unfreeze_after} has nothing to unfreeze: freeze = "
                    f"{' '.join(recipe.freeze)!r} leaves only the head to train"
                )
            log(
                f"unfreeze_after: {recipe.unfreeze_after}: until then {count:,} of {total:,} "
                "parameters are trained, those of the head; the schedule runs for each part"
            )

    def _adapt(self, model: Model, rank: int) -> None:
        """Freeze all that looks at the image, except for new matrices of this rank in it (LoRA)."""
        head = set(head_parameters(model))
        for parameter in model.parameters():
            parameter.requires_grad_(parameter.requires_grad and parameter in head)
        if rank >= model.core.width:
            raise ConfigError(
                f"lora = {rank}: the rank is to be far below the model's width, "
                f"{model.core.width}: 4 to 64 are usual"
            )
        with random_by(self.recipe.seed, "lora"):
            factors = add_lora(model.core, rank)
        if not factors:
            raise ConfigError(f"lora = {rank}: {model.name} has no attention to adapt")
        count = sum(factor.numel() for factor in factors)
        self.log(f"lora: {count:,} parameters in {len(factors) // 2} matrices, beside the head")

    def _stores_features(self) -> bool:
        """Whether the features of each image are computed once, because they stay the same."""
        if self.head_steps or not trains_head_alone(self.model):
            return False
        if reason := why_not_stored(self.recipe, self.train_set):
            self.log(f"features: computed in every epoch, because {reason}")
        return not reason

    def _wrap(self, *, head_alone: bool = False) -> None:
        """Prepare the model for training, all of it or, of what is not frozen, the head alone."""
        self.head_alone = head_alone
        head = set(head_parameters(self.model)) if head_alone else set(self.trained)
        for parameter in self.trained:
            parameter.requires_grad_(parameter in head)
        self.frozen_norms = frozen_batch_norms(self.model)
        self.wrapped: nn.Module = self.computed
        self.compute: Callable[..., Any] = self.computed  # nothing keeps what was wrapped before
        self.wrapped = wrap(self.computed, self.world, self.recipe.shard)
        self.compute = torch.compile(self.wrapped) if self.recipe.compile else self.wrapped

    def restart(self, weights: dict[str, Tensor]) -> None:
        """Be as before the first step, with these weights."""
        self.model.load_state_dict(weights)
        self.optimizer.state.clear()
        if self.head_steps:
            self._wrap(head_alone=True)

    def _store_features(self) -> None:
        """From here on, batches have features in place of images."""
        began = time.perf_counter()
        self.train_set, self.val_set = store_features(
            self.model, self.train_set, self.val_set, 2 * self.batch, self.workers, self.world
        )
        self.computed, self.workers, self.stores_features = HeadAlone(self.model), 0, False
        self._wrap()
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
        per_epoch = self.order.steps_per_epoch
        start = self.progress.step
        self.order.start = start
        self.order.stop = self.steps if self.budget is None else sys.maxsize
        if start >= self.steps:
            self._end_early()
            return
        if self.stores_features:
            self._store_features()
        batches = train_batches(self.train_set, self.order, self.workers, pin=self.pins)
        progress, began, counted = self.progress, time.perf_counter(), 0
        if self.budget is not None:
            self.budget.start(start)
        with self._signals():
            for step in itertools.count(start):
                loss = self.fitting_step(step, next(batches))
                progress.step, progress.lr = step + 1, self.lr
                if math.isfinite(loss):  # else the step was left out
                    progress.loss, progress.losses = progress.loss + loss, progress.losses + 1
                    for name, term in self.terms.items():
                        progress.terms[name] = progress.terms.get(name, 0.0) + term
                counted += self.batch
                if self.budget is not None:
                    self._plan(step + 1, self.budget)
                speed = counted / (time.perf_counter() - began)
                event = Event(step + 1, self.steps, (step + 1) / per_epoch, loss, self.lr, speed)
                ends_epoch = (step + 1) % per_epoch == 0
                last = step + 1 >= self.steps
                if ends_epoch or last:
                    mean = progress.loss / max(progress.losses, 1)
                    with self.budget.evaluation() if self.budget else contextlib.nullcontext():
                        event.evaluated, event.loss = self._evaluate(step + 1, mean, last), mean
                    event.primary, event.watched = self.task.primary, self.task.watched
                    progress.loss, progress.losses, progress.terms = 0.0, 0, {}
                    began, counted = time.perf_counter(), 0
                elif self.recipe.log_every and (step + 1) % self.recipe.log_every == 0:
                    self._log(event.step, "step", loss=loss, **_named(self.terms))
                self.watch(event)
                if event.evaluated is not None and 0 < self.recipe.patience <= progress.waited:
                    last = True
                    self.log(
                        f"stopped early: no improvement in {progress.waited} evaluations; the best "
                        f"weights are those of step {progress.best_step}"
                    )
                if event.evaluated is not None and self._is_learnt(event.evaluated):
                    last = True
                progress.finished = last
                due = self.recipe.save_every and (step + 1) % self.recipe.save_every == 0
                stop = self.world.any(self.stop_asked > 0)
                if ends_epoch or last or due or stop:
                    self.save()
                if stop and not last:
                    raise StoppedError(
                        f"stopped at step {step + 1} of {self.steps} and saved; to continue: "
                        f"vitreous {self.recipe.command} --resume --out {self.run.path}",
                        code=128 + (self.stop_asked or signal.SIGTERM),
                    )
                if last:
                    return

    def _plan(self, step: int, budget: TimeBudget) -> None:
        """How many steps fit into the time, by what they have taken until this one."""
        per_epoch = self.order.steps_per_epoch
        if not self.world.any(budget.due(step, per_epoch)):
            return
        if budget.check is None:
            self._time_evaluation(budget)
        steps = budget.plan(step, per_epoch)
        if isinstance(self.computed, HeadAlone):
            steps = min(steps, max(FEATURE_EPOCHS * per_epoch, step))
        steps = self.world.broadcast(steps)
        if steps != self.steps:
            self._log(step, "plan", steps=steps, spent=round(budget.spent(), 1))
        self.schedule = self.schedule.planned_again(step, steps)
        if budget.is_news(step, steps):
            epochs = steps / per_epoch
            amount = f"{epochs:.1f}" if epochs < 10 else f"{epochs:,.0f}"
            self.log(f"time: about {amount} epochs fit into {self.recipe.time}")
        if step >= steps and step < self.head_steps:
            self.log("time: over before all of the model was trained: lower --unfreeze-after")

    def _time_evaluation(self, budget: TimeBudget) -> None:
        """How long one will take, by a batch of it."""
        if isinstance(self.computed, HeadAlone):
            return  # a moment
        few = replace(self.val_set, samples=self.val_set.samples[: self.batch])
        with budget.evaluation(), evaluating(self.computed) as engine:
            measure(engine, self.task, eval_batches(few, self.batch, 0))
        share = len(self.val_set) / (1 if self.recipe.shard else self.world.size)
        budget.check = (budget.check or 0.0) * max(share / len(few), 1.0)

    def _is_learnt(self, evaluated: dict[str, Any]) -> bool:
        """Whether the few images of `overfit` are known by heart, which is all it is to show."""
        value = evaluated[self.task.primary]
        if not self.recipe.overfit or value < LEARNT_BY_HEART:
            return False
        self.log(f"overfit: {self.task.primary_name} is {value:.3f}: the images are learnt")
        return True

    @property
    def _asked(self) -> str:
        """The option that says how long the run is."""
        time = self.recipe.time
        return f"--epochs {self.recipe.epochs}" if time is None else f"--time {time}"

    def _end_early(self) -> None:
        """Finish a run that is beyond its last epoch, because that was lowered."""
        step, progress = self.progress.step, self.progress
        self.log(
            f"ended at step {step}, as {self._asked} asks, before the learning "
            "rate had come down; the best weights so far are kept"
        )
        if progress.losses:
            self._evaluate(step, progress.loss / progress.losses, last=True)
            progress.loss, progress.losses, progress.terms = 0.0, 0, {}
        progress.finished = True
        self.save()

    def resume(self, longer: bool = False) -> bool:
        """Continue from the newest valid checkpoint, if there is one.

        A run that is made longer may have stopped early: its patience starts anew.
        """
        found = newest_checkpoint(self.run.checkpoints)
        if found is not None:
            tensors, self.progress = checkpoint.load(found)
            restore(tensors, self.model, self.optimizer, self.average)
            if self.progress.lr is not None:
                set_lr(self.optimizer, self.progress.lr)
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
        if self.budget is not None:
            plan = self.schedule
            self.progress.schedule = (plan.steps, plan.planned_at, plan.done)
            self.progress.spent = self.budget.spent()
        tensors = gather(self.model, self.optimizer, self.average)
        if self.world.is_first:
            checkpoint.save(self.run.checkpoints, tensors, self.progress)
            checkpoint.prune(self.run.checkpoints, self.recipe.keep, self.progress.best_step)
        self.saved = self.progress.step
        self.world.barrier()

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
            self.optimizer.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()
            self.recipe = replace(self.recipe, accumulate=parts)
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
        if self.has_batch_norms:
            return (
                f": give {less}; or --set-recipe accumulate={parts}, which trains otherwise: batch "
                "norm then normalises each part by itself"
            )
        if self.batch % (parts * self.world.size):
            return f": give {less}"
        return f": give --set-recipe accumulate={parts}, {less}" if self.world.size > 1 else ""

    def step(self, step: int, batch: Batch, lr: float | None = None) -> float:
        """One update; returns the loss. The random numbers of dropout depend on the step, and on
        GPUs on the process.

        `lr` replaces the schedule's learning rate.
        """
        recipe, parts = self.recipe, self.recipe.accumulate
        assert recipe.lr is not None
        rank = 0 if self.shares_chance else self.world.rank
        torch.manual_seed(seed_of(recipe.seed, step, rank, "model"))  # of all devices
        if self.head_alone and step >= self.head_steps:
            self.log(f"step {step + 1}: all parameters are trained from here on")
            self._wrap()
        scale = self.schedule.lr_factor(step, warmup=recipe.warmup, final=recipe.final_lr)
        set_lr(self.optimizer, recipe.lr * scale if lr is None else lr)
        self.wrapped.train()
        for module in self.frozen_norms:
            module.eval()
        self.optimizer.zero_grad(set_to_none=True)
        batch = self._rescaled(step, batch.to(self.world.device))
        extra = self._counted(batch)
        total: dict[str, Tensor] = {}
        for number in range(parts):
            part = batch.part(number, parts) if parts > 1 else batch
            last = number == parts - 1
            with self._without_sync(not last):
                with self._forward(), self._random_rows(part):  # the backward follows its types
                    output = self.compute(part.images)
                if self.teacher is not None:
                    with self._precision():
                        extra["teacher"] = self.teacher(part.images)
                with sharing_batch() if self.shares_chance else contextlib.nullcontext():
                    terms = self.task.loss(output, part.targets, **extra)
                (torch.stack(list(terms.values())).sum() / parts).backward()
            for name, term in terms.items():
                total[name] = total.get(name, 0) + term.detach() / parts
        # one copy to the CPU for everything that is looked at
        seen = torch.stack([*total.values(), self._clip().to(self.world.device)]).cpu()
        seen = self.world.all_reduce(seen) / self.world.size
        mean, norm = seen[:-1].sum().item(), seen[-1].item()
        self.terms = dict(zip(total, seen[:-1].tolist(), strict=True))
        if not math.isfinite(mean) or not math.isfinite(norm):
            self._not_finite(step, mean, norm, batch)
            return mean
        self.optimizer.step()
        if self.average is not None:
            self.average.update(self.model, step)
        return mean

    def _rescaled(self, step: int, batch: Batch) -> Batch:
        """The batch at a size of its own, the same in all processes (`multi_scale`)."""
        low, high = self.recipe.multi_scale
        if low == high == 1:
            return batch
        with random_by(self.recipe.seed, step, "size"):
            factor = low + (high - low) * float(torch.rand(()))
        pixels = max(self.model.levels(self.model.own_size())[-1].pixels)
        images = batch.images
        if isinstance(images, Tensor):
            return batch._replace(images=rescaled(images, factor, pixels))
        return batch._replace(images=[rescaled(each[None], factor, pixels)[0] for each in images])

    def _counted(self, batch: Batch) -> dict[str, Any]:
        """For a loss that is a mean over objects, of which batches have different numbers: their
        number, averaged over processes and parts, so that it does not matter how a batch is split.
        """
        count = self.task.count_of(batch.targets)
        if count is None:
            return {}
        total = self.world.all_reduce(torch.tensor(float(count))).item()
        return {"count": total / (self.world.size * self.recipe.accumulate)}

    @torch.no_grad()
    def _culprit(self, batch: Batch) -> str:
        """Which image it was; a second forward, on all processes."""
        with self._precision():
            output = self.compute(batch.images)
        found = self.task.not_finite(output, batch.targets)
        return "" if found is None else f"{batch.ids[found[0]]}: the {found[1]} are not finite; "

    def _clip(self) -> Tensor:
        """Clips the gradient; its norm before."""
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        limit = self.recipe.clip or math.inf
        norm = nn.utils.clip_grad_norm_(parameters, limit, foreach=True)
        return whole(norm)

    def _not_finite(self, step: int, loss: float, norm: float, batch: Batch) -> None:
        """Skip the step if that is allowed, else stop; either way name the samples."""
        self.progress.skipped += 1
        numbers = f"step {step + 1}: loss {loss:g}, gradient norm {norm:g}"
        what = f"{numbers}; {self._culprit(batch)}samples {listed(batch.ids)}"
        if self.progress.skipped > self.recipe.skip_nonfinite:
            which = "gradient" if math.isfinite(loss) else "loss"
            raise NotFiniteError(f"the {which} is not finite at {what}. {self._steadier()}")
        self.log(f"skipped {what}")
        self._log(step + 1, "skipped", loss=str(loss), samples=batch.ids)

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

    def _evaluate(self, step: int, train_loss: float, last: bool) -> dict[str, Any]:
        self.doing = "evaluation"
        with self._averaged():
            # The shards of a model must be called equally often: each process takes all samples.
            sharded = self.recipe.shard
            rank, size = (0, 1) if sharded else (self.world.rank, self.world.size)
            preprocess = self.val_set.preprocess
            batch = min(2 * self.batch, preprocess.at_once) if preprocess.whole else 2 * self.batch
            batches = eval_batches(self.val_set, batch, self.workers, rank, size, pin=self.pins)
            with evaluating(self.computed) as engine:
                metrics = measure(engine, self.task, self._counting(batches, size))
            counts = metrics.counts()
            if not sharded:
                counts = metrics.merge(self.world.gather(counts))
            result = metrics.compute(counts) | self.probe(self.model, last)
            primary, best = result[self.task.primary], self.progress.best
            self._wait(primary)
            if best is None or self.task.better(primary, best):
                self.progress.best, self.progress.best_step = primary, step
                state = {name: whole(v) for name, v in self.model.state_dict().items()}
                state = merge_lora(state)
                if self.world.is_first:
                    self.run.write_weights(self.model, state)
                    if decoding := self.task.decoding(result):
                        self.run.write_decoding(decoding)
        numbers = {k: v for k, v in result.items() if isinstance(v, int | float)}
        losses = max(self.progress.losses, 1)
        terms = {name: term / losses for name, term in self.progress.terms.items()}
        self._log(step, "evaluation", train_loss=train_loss, **_named(terms), **numbers)
        self.world.barrier()
        self.doing = "step"
        return result

    def _counting(self, batches: Iterable[Batch], processes: int) -> Iterator[Batch]:
        """The batches, while their progress is shown."""
        done, total = 0, len(self.val_set)
        self.show.evaluated(done, total)
        for batch in batches:
            yield batch
            done += len(batch.ids) * processes
            self.show.evaluated(min(done, total), total)

    def _wait(self, primary: float) -> None:
        """For `patience`: whether the smoothed metric has improved."""
        progress = self.progress
        before, best = progress.smoothed, progress.best_smoothed
        now = primary if before is None else SMOOTHING * before + (1 - SMOOTHING) * primary
        progress.smoothed, progress.waited = now, progress.waited + 1
        if best is None or self.task.better(now, best):
            progress.best_smoothed, progress.waited = now, 0

    @property
    def lr(self) -> float:
        """The present learning rate of the layers nearest to the head."""
        group = self.optimizer.param_groups[-1]
        return float(group["lr"] / group["scale"])

    def _log(self, step: int, kind: str, **values: Any) -> None:
        if self.world.is_first:
            epoch = step / self.order.steps_per_epoch
            self.run.log(step=step, kind=kind, epoch=epoch, lr=self.lr, **values)

    @contextlib.contextmanager
    def _averaged(self) -> Iterator[None]:
        """Inside, the model has the averaged weights."""
        if self.average is None:
            yield
            return
        own = {name: value.clone() for name, value in self.model.state_dict().items()}
        self.model.load_state_dict(self.average.state)
        try:
            yield
        finally:
            self.model.load_state_dict(own)

    def _without_sync(self, wanted: bool) -> contextlib.AbstractContextManager[Any]:
        if wanted and isinstance(self.wrapped, nn.parallel.DistributedDataParallel):
            return self.wrapped.no_sync()
        return contextlib.nullcontext()

    def _precision(self) -> contextlib.AbstractContextManager[Any]:
        if self.recipe.precision == "bfloat16":
            return torch.autocast(self.world.device.type, torch.bfloat16)
        return contextlib.nullcontext()

    def _random_rows(self, batch: Batch) -> contextlib.AbstractContextManager[Any]:
        return RandomRows(len(batch.ids)) if self.shares_chance else contextlib.nullcontext()

    def _memory(self) -> contextlib.AbstractContextManager[Any]:
        return recomputing(self.see_kept) if self.recipe.recompute else contextlib.nullcontext()

    @contextlib.contextmanager
    def _forward(self) -> Iterator[None]:
        """Around a forward that is learned from."""
        with self._precision(), self._memory(), training_step():
            yield

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Inside, Ctrl-C and SIGTERM ask the loop to save and stop; a second one stops at once."""

        process = os.getpid()

        def ask(number: int, frame: object) -> None:
            if self.stop_asked:
                raise KeyboardInterrupt
            self.stop_asked = number
            if os.getpid() == process and self.world.is_first:  # those that load data are forks
                self.show.tell(
                    f"stopping when this {self.doing} is done and saved; Ctrl-C again leaves at "
                    f"once, and loses what was learned after step {self.saved}"
                )

        if not is_main_thread():
            yield  # signals are the main thread's
            return
        before = {n: signal.signal(n, ask) for n in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def is_main_thread() -> bool:
    """The one that handles signals."""
    return threading.current_thread() is threading.main_thread()
