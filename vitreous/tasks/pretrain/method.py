"""What the methods of pre-training share. A method is a task that learns from images alone.

A method's package has a `task.py` with a subclass of `Pretraining` and a `show.py`; its model is a
family around an encoder, or the encoder itself. Its row is in `PRETRAINING` (`tasks/__init__.py`),
and what it is trained with by default in `recipes/NAME.toml`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from vitreous.data.check.classes import ImageCheck
from vitreous.data.source import Sample, Source
from vitreous.data.truth import NoTruth
from vitreous.labels import LabelMap, NoLabels
from vitreous.tasks.metric import Metric, percent
from vitreous.tasks.pretrain.defaults import PretrainDefaults
from vitreous.tasks.task import Task, TaskMetrics
from vitreous.tasks.verdict import Finding

COLLAPSED = 1.5
"""An effective rank below which features hardly differ from image to image."""


class HasLoss(Protocol):
    """What `infer` gives for an image."""

    @property
    def loss(self) -> Tensor: ...


class MeanLoss(TaskMetrics):
    """The mean of the images' losses."""

    def __init__(self) -> None:
        self.total = torch.zeros(2, dtype=torch.float64)

    def update(self, output: Sequence[HasLoss], targets: Any) -> None:
        losses = torch.stack([each.loss.double() for each in output])
        self.total += torch.stack((losses.sum(), torch.tensor(len(losses)).double()))

    def counts(self) -> Tensor:
        return self.total

    def compute(self, counts: Tensor) -> dict[str, Any]:
        total, count = counts.tolist()
        return {"samples": int(count), "loss": total / max(count, 1)}


class Pretraining(Task):
    """Learning without labels: a loss, and an encoder whose features are judged beside it."""

    name = "pretrain"
    purpose = "an encoder, from images alone"
    metric = Metric("loss", range=(0, math.inf), lower_is_better=True)
    pretrains = True
    truth = NoTruth()
    watched = ("knn_accuracy", "effective_rank")
    refused = frozenset(("overfit", "keep_head", "unfreeze_after", "lora", "task"))
    checker = ImageCheck
    defaults = PretrainDefaults()

    def __init__(self, labels: LabelMap | None = None) -> None:
        super().__init__(NoLabels())

    @classmethod
    def for_training(cls, recipe: Any, source: Source, samples: Sequence[Sample]) -> Self:
        return cls()

    @classmethod
    def outputs(cls, labels: LabelMap) -> tuple[str, ...]:
        return ()

    def metrics(self) -> TaskMetrics:
        return MeanLoss()

    def judge(self, last: Mapping[str, Any]) -> list[Finding]:
        """A loss says little: features are compared with each other, and with pixels."""
        found = []
        rank = last.get("effective_rank")
        if rank is not None and rank < COLLAPSED:
            seen = f"the features have collapsed: {rank:.2f} is their effective rank, so that they "
            found.append(Finding("bad", seen + "are nearly the same for every image", ""))
        probe, pixels = last.get("linear_accuracy"), last.get("linear_pixels")
        if probe is not None and pixels is not None:
            better = probe > pixels
            seen = f"linear probe {percent(probe)}, against {percent(pixels)} for pixels"
            worse = ": the features know no more than the images themselves"
            found.append(Finding("good" if better else "warn", seen + worse * (not better), ""))
        return found
