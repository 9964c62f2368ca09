"""The optimiser, its learning rate over time, and the average of the weights."""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from vitreous.errors import ConfigError


def parameter_groups(
    model: nn.Module, *, lr: float, weight_decay: float, layer_decay: float
) -> list[dict[str, object]]:
    """Groups by weight decay and by depth, those with the same numbers together.

    Biases, norms, tokens, queries and positions (everything of one dimension, and what is called
    so) do not decay. With `layer_decay` a block's rate is that factor to the power of its distance
    from the head (Bao et al. 2021); Swin's blocks count through all stages, and a stage of a ResNet
    counts as one block. Where a model looks at images through another one, only that one's blocks
    count: what decodes masks or finds boxes learns at the full rate.
    """
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    if not trained:
        raise ConfigError("freeze leaves nothing to learn")
    core = core_of(model)
    depths = depths_of([name for name, _ in model.named_parameters()], core)
    behind = max(depths.values(), default=0) + 1
    groups: dict[tuple[float, float], dict[str, object]] = {}
    for name, parameter in trained:
        decay = 0.0 if is_exempt(name.removeprefix(core), parameter) else weight_decay
        scale = layer_decay ** (behind - depths.get(name, behind))
        group = groups.setdefault(
            (decay, scale), {"params": [], "weight_decay": decay, "lr": lr * scale, "scale": scale}
        )
        group["params"].append(parameter)  # type: ignore[attr-defined]
    return list(groups.values())


def core_of(model: nn.Module) -> str:
    """What the names begin with of the parameters that look at the image: "", "encoder." …"""
    core = getattr(model, "core", model)
    return next((f"{name}." for name, part in model.named_children() if part is core), "")


def is_exempt(name: str, parameter: Tensor) -> bool:
    """Whether a parameter is left out of weight decay."""
    placed = name.startswith(("prefix.", "position.", "queries.")) or name.endswith(".bias_table")
    return parameter.ndim <= 1 or placed or name == "decoder.classes"


def depths_of(names: Iterable[str], core: str = "") -> dict[str, int]:
    """0 for what comes before the blocks, 1 for the first block …; without what comes behind."""
    layers: dict[str, tuple[int, int]] = {}
    for name in names:
        inner = name.removeprefix(core)
        block = re.match(r"(?:blocks|stages)\.(\d+)\.(?:blocks\.(\d+))?", inner)
        if not name.startswith(core):
            continue
        if block:  # what merges patches belongs to the first block of its stage
            layers[name] = int(block[1]), int(block[2] or 0)
        elif not inner.startswith(("norm.", "pooled_norm.", "head.")):
            layers[name] = -1, 0
    numbers = {layer: i for i, layer in enumerate(sorted({(-1, 0), *layers.values()}))}
    return {name: numbers[layer] for name, layer in layers.items()}


def freeze(model: nn.Module, patterns: Iterable[str]) -> list[str]:
    """Let the parameters that match not learn (`!head.*`: that do not match); their names.

    A batch norm whose parameters rest keeps its statistics too: its module then stays in eval
    mode, which `resting` finds.
    """
    names = [name for name, _ in model.named_parameters()]
    frozen = []
    for pattern in patterns:
        matching = fnmatch.filter(names, pattern.removeprefix("!"))
        if matching and pattern.startswith("!"):
            matching = [name for name in names if name not in matching]
        if not matching:
            raise ConfigError(f"freeze = {pattern!r} matches no parameter of the model")
        frozen += matching
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in frozen)
    return frozen


def resting(model: nn.Module) -> list[nn.Module]:
    """The batch norms that do not learn."""
    return [
        module
        for module in model.modules()
        if isinstance(module, nn.modules.batchnorm._BatchNorm)
        and not any(p.requires_grad for p in module.parameters())
    ]


def rate_at(step: int, steps: int, *, warmup: float, final: float) -> float:
    """The learning rate at a step as a part of the highest: linear warm-up, then a cosine."""
    warm = round(warmup * steps)
    if step < warm:
        return (step + 1) / warm
    progress = (step - warm) / max(steps - warm, 1)
    return final + (1 - final) * 0.5 * (1 + math.cos(math.pi * progress))


def set_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr * group["scale"]


class Average:
    """An exponential moving average of a model's parameters and buffers (EMA).

    Its decay grows with the steps up to what is asked, so that a short run is not dominated by its
    first weights.
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
