"""The interface of a task. The training loop, the predictor and the commands know nothing more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from vitreous.labels import IGNORED, LabelMap
from vitreous.models.model import Model


class Metrics:
    """How good a model is, accumulated as counts: batches may come in any order and size."""

    def update(self, output: Any, targets: Any) -> None:
        raise NotImplementedError

    def counts(self) -> Tensor:
        """Everything accumulated, as one tensor on the CPU."""
        raise NotImplementedError

    def merge(self, parts: Sequence[Tensor]) -> Tensor:
        """What `counts` would be, had one process seen what each of several has seen."""
        return torch.stack(list(parts)).sum(dim=0)

    def compute(self, counts: Tensor) -> dict[str, Any]:
        """Numbers by name."""
        raise NotImplementedError


class Task:
    """One way to use a model."""

    name: str
    primary: str
    """The number that decides which checkpoint is best; larger is better."""

    def __init__(self, labels: LabelMap) -> None:
        self.labels = labels

    def loss(self, output: Any, targets: Any, teacher: Tensor | None = None) -> dict[str, Tensor]:
        """The terms by name, each a mean over the batch; their sum is what training minimises."""
        raise NotImplementedError

    def count_of(self, targets: Any) -> int | None:
        """How many things the loss is a mean over, where batches differ in that.

        Then `loss` takes `count`: their mean number in each process and part of the batch.
        """
        return None

    def infer(self, model: Model, images: Any, sizes: Sequence[tuple[int, int]]) -> Any:
        """What the model says of prepared images, on the CPU, as `decode` and the metrics take it.

        images: (b, c, h, w) on the model's device, or a list of (c, h, w) where sizes differ;
        sizes: the height and width that each has where it is stored.
        """
        raise NotImplementedError

    def renamed(self, targets: Any, here: Sequence[int]) -> Any:
        """The targets of other data, where class i is our class here[i]."""
        if isinstance(targets, Tensor):
            # IGNORED finds the last row, and stays what it is
            return torch.tensor([*here, IGNORED])[targets.long()]
        return [self.renamed(target, here) for target in targets]

    def metrics(self) -> Metrics:
        raise NotImplementedError

    def decode(self, output: Any, images: list[str]) -> list[Any]:
        """Results, one per image."""
        raise NotImplementedError


def ratio(part: Tensor, whole: Tensor) -> Tensor:
    """part / whole, and 0 where there is nothing."""
    return torch.where(whole > 0, part / whole.clamp(min=1e-12), torch.zeros_like(part))
