"""What a user gets back from a model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray


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


@dataclass(frozen=True)
class Segmentation:
    """What each pixel of one image shows, at the image's own size."""

    mask: NDArray[np.int16]
    """(h, w): the class of each pixel, a place in `names`."""
    confidence: NDArray[np.float16]
    """(h, w): its probability."""
    names: tuple[str, ...]
    ids: tuple[int | str, ...]
    """The classes as the training data called them."""
    image: str = ""
    """The file, where there is one."""

    @cached_property
    def pixels(self) -> dict[str, int]:
        """How many pixels each class has, by name; classes without any are left out."""
        counts = np.bincount(self.mask.ravel(), minlength=len(self.names))
        order = sorted(range(len(counts)), key=lambda i: (-counts[i], i))
        return {self.names[i]: int(counts[i]) for i in order if counts[i]}

    @property
    def areas(self) -> dict[str, float]:
        """The part of the image that each class has, by name, the largest first."""
        return {name: count / self.mask.size for name, count in self.pixels.items()}

    def where(self, name: str) -> NDArray[np.bool_]:
        """(h, w): which pixels show the class of this name."""
        return self.mask == self.names.index(name)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; the mask itself is a picture, see `vitreous predict --out`."""
        return {
            "image": self.image,
            "size": list(self.mask.shape),
            "classes": [
                {
                    "label": name,
                    "id": self.ids[self.names.index(name)],
                    "pixels": count,
                    "area": count / self.mask.size,
                    "score": float(self.confidence[self.where(name)].mean(dtype=np.float64)),
                }
                for name, count in self.pixels.items()
            ],
        }
