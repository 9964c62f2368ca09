"""What an engine answers for batches, and how good that is: in training and in `evaluate`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from vitreous.data.loader import Batch
from vitreous.data.source import Source
from vitreous.engines.torch import TorchEngine
from vitreous.errors import DataError, InputError
from vitreous.models.model import Model
from vitreous.tasks.task import Engine, Task, TaskMetrics

Infer = Callable[[Engine, Any, Sequence[tuple[int, int]]], Any]
"""See `Task.infer`."""


class Answered(NamedTuple):
    """A batch, the model's output, and the targets as our classes."""

    batch: Batch
    output: Any
    targets: Any


@torch.inference_mode()
def answered(
    engine: Engine,
    task: Task,
    batches: Iterable[Batch],
    here: Sequence[int] | None = None,
    infer: Infer | None = None,
) -> Iterator[Answered]:
    """Each batch with what an engine gives for it; `here` gives our class for each class of the
    data. `infer` is the task's unless given."""
    for batch in batches:
        targets = batch.targets if here is None else task.renamed(batch.targets, here)
        output = (infer or task.infer)(engine, batch.images, batch.sizes)
        check_finite(output, batch.ids)
        yield Answered(batch, output, targets)


@torch.inference_mode()
def measure(engine: Engine, task: Task, batches: Iterable[Batch]) -> TaskMetrics:
    """The metrics of an engine over batches."""
    metrics = task.metrics()
    for _, output, targets in answered(engine, task, batches):
        metrics.update(output, targets)
    return metrics


def same_answers(task: Task, output: Any, other: Any, names: Sequence[str]) -> list[float]:
    """How far the answers that two outputs mean are the same, from 0 to 1, for each image."""
    both = (task.decode(each, list(names)) for each in (output, other))
    return [one.agreement(theirs) for one, theirs in zip(*both, strict=True)]


@contextmanager
def evaluating(model: Model) -> Iterator[TorchEngine]:
    """A model that is being trained as an engine; after it the model is in the mode it was in."""
    training = model.training
    model.eval()
    try:
        yield TorchEngine(model)
    finally:
        model.train(training)


def check_finite(output: Iterable[Any], names: Sequence[str]) -> None:
    """Every number that a model gives for an image, a tensor or several, must be finite."""
    for one, name in zip(output, names, strict=True):
        if not all(bool(part.isfinite().all()) for part in _tensors(one)):
            raise InputError(
                f"{name}: the model's output is not finite (NaN or infinity): its weights are "
                "damaged or too large, or the image has extreme values"
            )


def _tensors(thing: Any) -> Iterator[Tensor]:
    """What is in tuples and lists, also arrays."""
    if isinstance(thing, Tensor | np.ndarray):
        yield torch.as_tensor(thing)
    elif isinstance(thing, tuple | list):
        for each in thing:
            yield from _tensors(each)


def chosen_split(source: Source, split: str | None = None) -> str:
    """The one that is asked for, or else test, val or train; one that is not there is an error."""
    split = split or next(name for name in ("test", "val", "train") if name in source.splits)
    if split not in source.splits:
        there = ", ".join(source.splits)
        raise DataError(f"{source.name} has no split {split!r}; it has {there}")
    return split
