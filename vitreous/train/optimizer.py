"""The optimiser, its learning rate over time, and the average of the weights."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn

from vitreous.errors import ConfigError, advice
from vitreous.models.composite import Composite
from vitreous.models.model import Model
from vitreous.train.muon import MuonAdamW, hidden_matrices
from vitreous.train.recipe import Recipe


def make_optimizer(recipe: Recipe, model: Model) -> torch.optim.AdamW:
    assert recipe.lr is not None
    groups = parameter_groups(
        model, lr=recipe.lr, weight_decay=recipe.weight_decay, layer_decay=recipe.layer_decay
    )
    if recipe.optimizer == "muon":
        matrices = hidden_matrices(model)
        if recipe.weights is not None and model.core is not model:
            # What AdamW has trained stays with it: its many matrices would double a step's time.
            matrices -= set(model.core.parameters())
        return MuonAdamW(groups, matrices, betas=recipe.betas, fused=True)
    return torch.optim.AdamW(groups, betas=recipe.betas, fused=not recipe.shard)


def parameter_groups(
    model: Model, *, lr: float, weight_decay: float, layer_decay: float
) -> list[dict[str, object]]:
    """Groups by weight decay and by depth, those with the same numbers together.

    Biases and norms (everything of one axis) do not decay, nor does what `Model.undecayed` names
    (tokens, positions, queries). With `layer_decay` a block's learning rate is scaled by that
    factor to the power of its distance from the head in `Model.layers` (Bao et al. 2021).
    """
    trained = [p for p in model.parameters() if p.requires_grad]
    if not trained:
        raise ConfigError("freeze leaves no parameter to train")
    layers = model.layers()
    depths = {
        parameter: depth
        for depth, modules in enumerate(layers)
        for module in modules
        for parameter in module.parameters()
    }
    undecayed = set(model.undecayed())
    groups: dict[tuple[float, float], dict[str, object]] = {}
    for parameter in trained:
        decay = 0.0 if parameter.ndim <= 1 or parameter in undecayed else weight_decay
        scale = layer_decay ** (len(layers) - 1 - depths[parameter])
        group = groups.setdefault(
            (decay, scale), {"params": [], "weight_decay": decay, "lr": lr * scale, "scale": scale}
        )
        group["params"].append(parameter)  # type: ignore[attr-defined]
    return list(groups.values())


def freeze(model: nn.Module, patterns: Iterable[str]) -> list[str]:
    """Freeze the parameters that match (`!head.*`: that do not match); returns their names. What
    the model itself does not train (fixed positions) stays frozen."""
    names = [name for name, _ in model.named_parameters()]
    frozen = []
    for pattern in patterns:
        matching = fnmatch.filter(names, pattern.removeprefix("!"))
        if matching and pattern.startswith("!"):
            matching = [name for name in names if name not in matching]
        if not matching:
            inside = getattr(model.config, "part", "") if isinstance(model, Composite) else ""
            instead = advice(f": to train all but its {inside}, pass ", freeze=f"{inside}.*")
            of = f"of this model{instead}" if inside else "of the model"
            raise ConfigError(f"freeze = {pattern!r} matches no parameter {of}")
        frozen += matching
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(parameter.requires_grad and name not in frozen)
    return frozen


def head_parameters(model: Model) -> list[nn.Parameter]:
    """The head; of a model around another one, all that is not inside that one."""
    if model.core is model:
        return list(model.head.parameters())
    inside = set(model.core.parameters())
    return [parameter for parameter in model.parameters() if parameter not in inside]


def batch_norms(model: nn.Module, *, trained: bool) -> list[nn.Module]:
    """Those whose parameters are trained, or those whose parameters are frozen."""
    kind = nn.modules.batchnorm._BatchNorm
    found = [module for module in model.modules() if isinstance(module, kind)]
    return [norm for norm in found if any(p.requires_grad for p in norm.parameters()) == trained]


@dataclass(frozen=True)
class Schedule:
    """How many steps a run takes. Its learning rate follows the part of it that is done, so that
    another plan on the way changes how fast that goes on, and not where it stands."""

    steps: int
    head_steps: int = 0
    """How many of them train the head alone, by a schedule of their own."""
    planned_at: int = 0
    """The step at which this was planned,"""
    done: float = 0.0
    """and the part of the schedule behind `head_steps` that was done there."""

    def position(self, step: int) -> float:
        """Where a step stands in a run that had this many from the beginning."""
        head, begin = self.head_steps, max(self.planned_at, self.head_steps)
        if not self.planned_at or step < head:
            return step
        ahead = (step - begin) / max(self.steps - begin, 1)
        return head + (self.done + (1 - self.done) * ahead) * (self.steps - head)

    def planned_again(self, step: int, steps: int) -> Schedule:
        """From this step on, with this many in all."""
        behind = max(self.position(step) - self.head_steps, 0.0)
        done = min(behind / max(self.steps - self.head_steps, 1), 1.0)
        return Schedule(steps, self.head_steps, step, done)

    def lr_factor(self, step: int, *, warmup: float, final: float) -> float:
        """See below."""
        position = self.position(step)
        schedule = {"warmup": warmup, "final": final}
        return lr_factor(position, self.steps, **schedule, head_steps=self.head_steps)


def lr_factor(
    step: float, steps: int, *, warmup: float, final: float, head_steps: int = 0
) -> float:
    """The learning rate at a step as a fraction of the peak: linear warm-up, then a cosine.

    It runs twice where `head_steps` train the head alone: the optimiser's moments of the rest begin
    behind them, and need a warm-up of their own.
    """
    if step < head_steps:
        steps = head_steps
    else:
        step, steps = step - head_steps, steps - head_steps
    warm = round(warmup * steps)
    if step < warm:
        return min((step + 1) / warm, 1.0)
    progress = (step - warm) / max(steps - warm, 1)
    return final + (1 - final) * 0.5 * (1 + math.cos(math.pi * progress))


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr * group["scale"]


class Average:
    """An exponential moving average of a model's parameters and buffers (EMA).

    Its decay grows with the steps up to `decay`, so that the first weights do not dominate a short
    run.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.state = {name: value.detach().clone() for name, value in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        decay = min(self.decay, (1 + step) / (10 + step))
        for name, value in model.state_dict().items():
            if value.is_floating_point():
                self.state[name].lerp_(value, 1 - decay)
            else:
                self.state[name].copy_(value)
