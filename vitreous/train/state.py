"""All tensors of a run by name, for checkpoints: model, optimiser, average."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vitreous.train.distributed import copy_into, whole
from vitreous.train.optimizer import Average


def gather(
    model: nn.Module, optimizer: torch.optim.Optimizer, average: Average | None
) -> dict[str, Tensor]:
    """Complete tensors on the CPU, under names that do not depend on the number of processes."""
    tensors = {f"model.{name}": whole(value) for name, value in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            tensors[f"optimizer.{name}.{key}"] = whole(torch.as_tensor(value))
    if average is not None:
        tensors |= {f"average.{name}": whole(value) for name, value in average.state.items()}
    return tensors


def restore(
    tensors: dict[str, Tensor],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    average: Average | None,
) -> None:
    """The reverse of `gather`, at any number of processes."""
    for name, value in model.state_dict().items():
        copy_into(value, tensors[f"model.{name}"])
    for name, parameter in model.named_parameters():
        prefix = f"optimizer.{name}."
        stored = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
        if not stored:
            continue
        state = optimizer.state[parameter]
        for key, value in stored.items():
            if key == "step":
                state[key] = value.clone()
                continue
            state[key] = torch.zeros_like(parameter)
            copy_into(state[key], value)
    if average is not None:
        for name, value in average.state.items():
            copy_into(value, tensors[f"average.{name}"])
