"""The interface of a task. The training loop, the predictor and the commands know nothing more."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from vitreous.labels import LabelMap


class Metrics:
    """How good a model is, accumulated as counts: batches may come in any order and size."""

    primary: str
    """The number that decides which checkpoint is best; larger is better."""

    def update(self, output: Tensor, targets: Any) -> None:
        raise NotImplementedError

    def counts(self) -> Tensor:
        """Everything accumulated, as one tensor that processes can add up."""
        raise NotImplementedError

    def compute(self, counts: Tensor) -> dict[str, Any]:
        """Numbers by name."""
        raise NotImplementedError


class Task:
    """One way to use a model."""

    name: str

    def __init__(self, labels: LabelMap) -> None:
        self.labels = labels

    def loss(self, output: Any, targets: Any) -> dict[str, Tensor]:
        """The terms by name, each a mean over the batch; their sum is what training minimises."""
        raise NotImplementedError

    def metrics(self) -> Metrics:
        raise NotImplementedError

    def decode(self, output: Tensor, images: list[str]) -> list[Any]:
        """Results, one per image."""
        raise NotImplementedError
