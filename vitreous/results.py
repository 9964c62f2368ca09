"""What a user gets back from a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Classification:
    """What one image shows."""

    label: str
    """The name of the most probable class."""
    score: float
    """Its probability."""
    id: int | str
    """The class as the training data called it."""
    scores: dict[str, float]
    """Probabilities by name, the most probable first."""
    image: str = ""
    """The file, where there is one."""

    def top(self, k: int) -> list[tuple[str, float]]:
        """The k most probable classes with their probabilities."""
        return list(self.scores.items())[:k]

    def to_dict(self, top: int = 5) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "image": self.image,
            "label": self.label,
            "id": self.id,
            "score": self.score,
            "top": [{"label": name, "score": score} for name, score in self.top(top)],
        }
