"""What resume needs, written so that a crash at any moment leaves a usable checkpoint.

A checkpoint is a folder `step-00000120` with `state.safetensors`, `progress.json` and, written
last, `manifest.json` with the size and hash of each file. It is made under a temporary name in the
same folder, flushed to the disk and renamed. Loading takes the newest whose manifest agrees.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from vitreous.atomic_write import making_folder, replacing_folder, write_text
from vitreous.config import from_dict
from vitreous.errors import CheckpointError
from vitreous.run_folder import MANIFEST, STATE, describe_file
from vitreous.train.distributed import copy_into, whole
from vitreous.train.optimizer import Average
from vitreous.weights.io.files import read_tensors, write_tensors

PROGRESS = "progress.json"


@dataclass
class Progress:
    """Where a run stands, besides its tensors."""

    step: int = 0
    best: float | None = None
    best_step: int = 0
    smoothed: float | None = None
    """The metric, averaged over the last evaluations: a single one goes up and down by chance,"""
    best_smoothed: float | None = None
    waited: int = 0
    """and evaluations since it improved."""
    skipped: int = 0
    """Steps left out because the loss or the gradient was not finite."""
    finished: bool = False
    lr: float | None = None
    """Of the last step; --epochs can have changed the schedule that it came from."""
    loss: float = 0.0
    """Sum of the losses since the last evaluation,"""
    losses: int = 0
    """and how many."""
    terms: dict[str, float] = field(default_factory=dict)
    """The same for each term that the loss is made of."""
    spent: float = 0.0
    """Seconds of a run that is made for a time,"""
    schedule: tuple[int, int, float] | None = None
    """and its plan: steps in all, the step it was made at, and the part that was done there."""
    threads: int = 0
    """That have computed it; others may round sums otherwise. 0: not known."""
    seconds: float | None = None
    """That its steps have taken,"""
    cpu_seconds: float | None = None
    """and those of all processors. None: a version began it that did not count."""


def save(folder: Path, tensors: dict[str, Tensor], progress: Progress) -> Path:
    """Write a checkpoint; the folder is complete when it has its name."""
    final = folder / f"step-{progress.step:08d}"
    # There may be one of a run that was killed and came here again.
    with making_folder(folder), replacing_folder(final) as temporary:
        write_tensors(temporary / STATE, tensors, "safetensors")
        write_text(temporary / PROGRESS, json.dumps(progress.__dict__))
        files = {name: describe_file(temporary / name) for name in (STATE, PROGRESS)}
        write_text(temporary / MANIFEST, json.dumps(files))
    return final


def listed(folder: Path) -> list[Path]:
    """All checkpoints, the oldest first."""
    return sorted(folder.glob("step-*")) if folder.is_dir() else []


def load(path: Path) -> tuple[dict[str, Tensor], Progress]:
    """A forged or damaged one is an error."""
    try:
        values = json.loads((path / PROGRESS).read_text(encoding="utf-8"))
        progress = from_dict(Progress, values, where=str(path / PROGRESS))
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path / PROGRESS} cannot be used: {error}") from error
    return read_tensors(path / STATE).tensors, progress


def prune(folder: Path, keep: int, best_step: int) -> None:
    """Remove all but the last `keep` and the best, and what crashes left behind."""
    checkpoints = listed(folder)
    kept = {path.name for path in checkpoints[-keep:]} | {f"step-{best_step:08d}"}
    for path in checkpoints:
        if path.name not in kept:
            shutil.rmtree(path, ignore_errors=True)
    for path in folder.glob(".*.tmp"):
        shutil.rmtree(path, ignore_errors=True)


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
