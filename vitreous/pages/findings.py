"""What the training report shows of one task; the frame around it is the same for all."""

from __future__ import annotations

from typing import Any

from vitreous.data.loader import Batch
from vitreous.predict import Predictor


class Findings:
    """Sees every batch of an evaluation, keeps what is worth showing, and shows it."""

    primary: tuple[str, str]
    """What the number that decides is called, and what it says."""
    beside: dict[str, str] = {}  # noqa: RUF012
    """Other numbers of an evaluation to draw beside it, and what they are called."""

    def __init__(self, predictor: Predictor) -> None:
        self.predictor = predictor

    def see(self, batch: Batch, output: Any, targets: Any) -> None:
        """A batch, what the task made of it, and the targets in the model's classes."""
        raise NotImplementedError

    def tiles(self, result: dict[str, Any], split: str) -> dict[str, str]:
        """The few numbers that stand first, by what they are."""
        raise NotImplementedError

    def sections(self, result: dict[str, Any]) -> str:
        """HTML, each section with its <h2>."""
        raise NotImplementedError
