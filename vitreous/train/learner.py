"""A model that learns, and one update of its weights."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from vitreous.data.augment import random_by, rescaled, seed_of
from vitreous.data.loader import Batch
from vitreous.engines.accelerate import accelerate
from vitreous.engines.fewer_tokens import skip_unread
from vitreous.engines.linear import training_step
from vitreous.engines.world import World
from vitreous.errors import ConfigError, VitreousError
from vitreous.layers.lora import add_lora
from vitreous.models.model import Model
from vitreous.progress import Log
from vitreous.tasks.shared_random import sharing_batch
from vitreous.tasks.task import Task
from vitreous.train.distributed import RandomRows, synchronise_batch_norms, whole, wrap
from vitreous.train.memory import checkpoint_blocks, keep_memory, recompute_cheap, recomputing
from vitreous.train.optimizer import (
    Average,
    batch_norms,
    freeze,
    head_parameters,
    make_optimizer,
    set_lr,
)
from vitreous.train.recipe import Recipe


class NotFiniteStepError(VitreousError):
    """A step that was not taken, since its loss or gradient is not finite."""

    def __init__(self, loss: float, norm: float, culprit: str) -> None:
        super().__init__(f"loss {loss:g}, gradient norm {norm:g}")
        self.loss, self.culprit = loss, culprit


class Learner:
    """The model with its optimiser and the average of its weights, on one process or many."""

    def __init__(
        self,
        recipe: Recipe,
        model: Model,
        task: Task,
        world: World,
        head_steps: int,
        teacher: Callable[[Tensor], Tensor] | None,
        log: Log,
    ) -> None:
        self.recipe, self.task, self.world, self.log = recipe, task, world, log
        self.teacher = teacher
        self.head_steps = head_steps
        """How many steps train the head alone, before all of the model is trained."""
        skip_unread(model) if recipe.compile else accelerate(model)
        if recipe.recompute:
            recompute_cheap(model)
        freeze(model, recipe.freeze)
        if recipe.lora:
            adapt(model, recipe.lora, recipe.seed, log)
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
        self.trained = [p for p in model.parameters() if p.requires_grad]
        self.wrap()
        # Sharding has put other parameters in place: these are what the optimiser must have.
        self.trained = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = make_optimizer(recipe, model)
        self.average = Average(model, recipe.ema) if recipe.ema else None
        self.terms: dict[str, float] = {}
        """The terms of the last step's loss."""
        self.has_batch_norms = bool(batch_norms(model, trained=True))
        """Whether what the model gives for an image depends on the others of its batch, or part."""
        if recipe.accumulate > 1 and self.has_batch_norms:
            log(
                f"accumulate: {recipe.accumulate}: batch norm normalises each of the parts by "
                "itself, as if the batch were that small"
            )
        if head_steps:
            self._begin_with_head()

    def _begin_with_head(self) -> None:
        recipe = self.recipe
        self.wrap(head_alone=True)
        count = sum(p.numel() for p in self.model.parameters() if p.requires_grad)
        total = sum(p.numel() for p in self.trained)
        if not count:
            raise ConfigError("freeze leaves no parameter of the head to train first")
        if count == total:
            raise ConfigError(
                f"unfreeze_after = {recipe.unfreeze_after} has nothing to unfreeze: freeze = "
                f"{' '.join(recipe.freeze)!r} leaves only the head to train"
            )
        self.log(
            f"unfreeze_after: {recipe.unfreeze_after}: until then {count:,} of {total:,} "
            "parameters are trained, those of the head; the schedule runs for each part"
        )

    def wrap(self, *, head_alone: bool = False) -> None:
        """Prepare the model for training, all of it or, of what is not frozen, the head alone."""
        self.head_alone = head_alone
        head = set(head_parameters(self.model)) if head_alone else set(self.trained)
        for parameter in self.trained:
            parameter.requires_grad_(parameter in head)
        self.frozen_norms = batch_norms(self.model, trained=False)
        """They stay in eval mode, which freezes their statistics too."""
        self.wrapped: nn.Module = self.computed
        self.compute: Callable[..., Any] = self.computed  # nothing keeps what was wrapped before
        self.wrapped = wrap(self.computed, self.world, self.recipe.shard)
        self.compute = torch.compile(self.wrapped) if self.recipe.compile else self.wrapped

    def restart(self, weights: dict[str, Tensor]) -> None:
        """Be as before the first step, with these weights."""
        self.model.load_state_dict(weights)
        self.optimizer.state.clear()
        if self.head_steps:
            self.wrap(head_alone=True)

    @property
    def lr(self) -> float:
        """The present learning rate of the layers nearest to the head."""
        group = self.optimizer.param_groups[-1]
        return float(group["lr"] / group["scale"])

    def step(self, step: int, batch: Batch, lr: float) -> float:
        """One update; returns the loss. The random numbers of dropout depend on the step, and on
        GPUs on the process."""
        parts = self.recipe.accumulate
        rank = 0 if self.shares_chance else self.world.rank
        torch.manual_seed(seed_of(self.recipe.seed, step, rank, "model"))  # of all devices
        if self.head_alone and step >= self.head_steps:
            self.log(f"step {step + 1}: all parameters are trained from here on")
            self.wrap()
        set_lr(self.optimizer, lr)
        self.wrapped.train()
        for module in self.frozen_norms:
            module.eval()
        self.optimizer.zero_grad(set_to_none=True)
        batch = self.rescaled(step, batch.to(self.world.device))
        extra = self._counted(batch)
        total: dict[str, Tensor] = {}
        for number in range(parts):
            part = batch.part(number, parts) if parts > 1 else batch
            last = number == parts - 1
            with self._without_sync(not last):
                with self._forward(len(part.ids)):  # the backward follows its types
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
            raise NotFiniteStepError(mean, norm, self._culprit(batch))
        self.optimizer.step()
        if self.average is not None:
            self.average.update(self.model, step)
        return mean

    def rescaled(self, step: int, batch: Batch) -> Batch:
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

    @contextlib.contextmanager
    def averaged(self) -> Iterator[None]:
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

    @contextlib.contextmanager
    def _forward(self, rows: int) -> Iterator[None]:
        """Around a forward of so many images that is learned from."""
        with self._precision(), contextlib.ExitStack() as stack:
            if self.recipe.recompute:
                stack.enter_context(recomputing(self.see_kept))
            stack.enter_context(training_step())
            if self.shares_chance:
                stack.enter_context(RandomRows(rows))
            yield


def adapt(model: Model, rank: int, seed: int, log: Log) -> None:
    """Freeze all that looks at the image, except for new matrices of this rank in it (LoRA)."""
    head = set(head_parameters(model))
    for parameter in model.parameters():
        parameter.requires_grad_(parameter.requires_grad and parameter in head)
    if rank >= model.core.width:
        raise ConfigError(
            f"lora = {rank}: the rank is to be far below the model's width, "
            f"{model.core.width}: 4 to 64 are usual"
        )
    with random_by(seed, "lora"):
        factors = add_lora(model.core, rank)
    if not factors:
        raise ConfigError(f"lora = {rank}: {model.name} has no attention to adapt")
    count = sum(factor.numel() for factor in factors)
    log(f"lora: {count:,} parameters in {len(factors) // 2} matrices, beside the head")
