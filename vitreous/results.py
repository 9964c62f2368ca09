"""What a user gets back from a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vitreous.errors import ConfigError


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


@dataclass(frozen=True)
class Found:
    """One object in an image."""

    label: str
    id: int | str
    """The class as the training data called it."""
    score: float
    """Its probability."""
    box: tuple[float, float, float, float]
    """left, top, right, bottom in pixels of the image as given."""
    query: int
    """Which of the model's queries has found it."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"label": self.label, "id": self.id, "score": self.score, "box": list(self.box)}


@dataclass(frozen=True)
class Detection:
    """What objects one image has, and where.

    The arrays have a row for each query of the model, the surest first; `objects` are those of at
    least `threshold`.
    """

    boxes: NDArray[np.float32]
    """(queries, 4): left, top, right, bottom in pixels of the image as given."""
    classes: NDArray[np.int64]
    """(queries,): a place in `names`."""
    scores: NDArray[np.float32]
    queries: NDArray[np.int64]
    names: tuple[str, ...]
    ids: tuple[int | str, ...]
    """The classes as the training data called them."""
    size: tuple[int, int]
    """Height and width of the image as given."""
    threshold: float = 0.5
    image: str = ""
    """The file, where there is one."""

    @cached_property
    def objects(self) -> list[Found]:
        """What was found, the surest first."""
        rows = zip(self.classes, self.scores, self.boxes.tolist(), self.queries, strict=True)
        return [
            Found(self.names[number], self.ids[number], float(score), tuple(box), int(query))
            for number, score, box, query in rows
            if score >= self.threshold
        ]

    @property
    def counts(self) -> dict[str, int]:
        """How many objects each class has, by name; classes without any are left out."""
        labels = [found.label for found in self.objects]
        return {name: labels.count(name) for name in self.names if name in labels}

    def above(self, threshold: float) -> Detection:
        """The same with another threshold, from 0 to 1."""
        if not isinstance(threshold, int | float) or not 0 <= threshold <= 1:
            raise ConfigError(f"threshold = {threshold!r}: expected a number from 0 to 1")
        return replace(self, threshold=threshold)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        objects = [found.to_dict() for found in self.objects]
        return {"image": self.image, "size": list(self.size), "objects": objects}

    def to_coco(
        self, image_id: int | str, ids: Sequence[int | str | None] | None = None
    ) -> list[dict[str, Any]]:
        """All rows, whatever their score, as entries of a COCO file of results.

        `ids` are what other data calls our classes; rows of a class that it has not are left out.
        """
        ids = self.ids if ids is None else ids
        boxes = self.boxes.astype(np.float64)
        boxes[:, 2:] -= boxes[:, :2]
        return [
            {
                "image_id": image_id,
                "category_id": ids[number],
                "bbox": box,
                "score": float(score),
            }
            for number, score, box in zip(self.classes, self.scores, boxes.tolist(), strict=True)
            if ids[number] is not None
        ]
