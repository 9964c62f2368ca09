"""The results of `Predictor`, one class per task."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from vitreous.errors import ConfigError
from vitreous.mask_parts import MaskParts, Runs, area, encoded, in_text, united


def check_threshold(threshold: Any) -> None:
    number = isinstance(threshold, int | float) and not isinstance(threshold, bool)
    if not number or not 0 <= threshold <= 1:
        raise ConfigError(f"threshold = {threshold!r}: expected a number from 0 to 1")


@dataclass(frozen=True)
class Classification:
    """The classes of one image with their probabilities."""

    label: str
    """Name of the most probable class."""
    score: float
    """Its probability."""
    id: int
    """Number of the class: its id in the training data, or from 0 where that has only names."""
    scores: dict[str, float]
    """Probability by class name, highest first."""
    image: str = ""
    """The image's file, if it has one."""

    def top(self, k: int) -> list[tuple[str, float]]:
        """The k most probable classes with their probabilities."""
        return list(self.scores.items())[:k]

    def agreement(self, other: Classification) -> float:
        """1 for the same class, else 0."""
        return float(self.label == other.label)

    def to_dict(self, top: int = 5) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "image": self.image,
            "label": self.label,
            "id": self.id,
            "score": self.score,
            "top": [{"label": name, "score": score} for name, score in self.top(top)],
        }


@dataclass(frozen=True, eq=False)
class FeatureVector:
    """What a model without a head gives for one image."""

    values: NDArray[np.float32]
    """(d,)"""
    image: str = ""
    """The image's file, if it has one."""

    @property
    def norm(self) -> float:
        return float(np.linalg.norm(self.values))

    def agreement(self, other: FeatureVector) -> float:
        """The cosine between both."""
        length = max(self.norm * other.norm, 1e-12)
        return float(np.vdot(self.values, other.values)) / length

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"image": self.image, "features": self.values.tolist()}


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """What a masked autoencoder makes of one image."""

    loss: float
    """Of the hidden patches."""
    pixels: NDArray[np.float32]
    """(c, h, w): the predicted pixels, normalised as the model's input is."""
    mask: NDArray[np.bool_]
    """(gh, gw): which patches were hidden."""
    image: str = ""
    """The image's file, if it has one."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        hidden = self.mask.astype(int).tolist()
        return {"image": self.image, "loss": self.loss, "hidden": hidden}


@dataclass(frozen=True)
class Segmentation:
    """The class of every pixel, at the size of the input image."""

    mask: NDArray[np.int16]
    """(h, w): the class of each pixel, an index into `names`."""
    confidence: NDArray[np.float16]
    """(h, w): its probability."""
    names: tuple[str, ...]
    ids: tuple[int | str, ...]
    """The classes' ids in the training data."""
    image: str = ""
    """The image's file, if it has one."""

    @cached_property
    def pixels(self) -> dict[str, int]:
        """Number of pixels by class name, largest first; classes without pixels are left out."""
        counts = np.bincount(self.mask.ravel(), minlength=len(self.names))
        order = sorted(range(len(counts)), key=lambda i: (-counts[i], i))
        return {self.names[i]: int(counts[i]) for i in order if counts[i]}

    @property
    def areas(self) -> dict[str, float]:
        """Share of the image by class name, largest first."""
        return {name: count / self.mask.size for name, count in self.pixels.items()}

    def where(self, name: str) -> NDArray[np.bool_]:
        """(h, w): the pixels of the class with this name."""
        return self.mask == self.names.index(name)

    def same_classes(self, other: Segmentation) -> NDArray[np.bool_]:
        """(h, w): the pixels of which both say the same class, by its name."""
        theirs = other.mask
        if self.names != other.names:
            here = {name: number for number, name in enumerate(self.names)}
            theirs = np.array([here.get(name, -1) for name in other.names])[theirs]
        return np.asarray(self.mask == theirs)

    def agreement(self, other: Segmentation) -> float:
        """The part of the pixels with the same class."""
        return float(self.same_classes(other).mean())

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, without the mask; `vitreous predict --out` writes that.

        A class's `id` is a number there too: 0, 1, 2 … where the data has none (colours, names).
        """
        free = (number for number in itertools.count() if number not in self.ids)
        own = [id if isinstance(id, int) else next(free) for id in self.ids]
        numbers = dict(zip(self.names, own, strict=True))
        return {
            "image": self.image,
            "size": list(self.mask.shape),
            "classes": [
                {
                    "label": name,
                    "id": numbers[name],
                    "pixels": count,
                    "area": count / self.mask.size,
                    "score": float(self.confidence[self.where(name)].mean(dtype=np.float64)),
                }
                for name, count in self.pixels.items()
            ],
        }


@dataclass(frozen=True)
class DetectedObject:
    """One object in an image, with its box and score."""

    label: str
    id: int
    """Number of the class: its id in the training data, or from 0 where that has only names."""
    score: float
    """Its probability."""
    box: tuple[float, float, float, float]
    """Left, top, right, bottom in pixels of the input image, inside of it."""
    query: int
    """Index of the query that predicted it; of its tile, in an image that was cut into tiles."""
    track: int | None = None
    """The same number for the same object in all frames of a video, if it is tracked."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        track = {} if self.track is None else {"track": self.track}
        found = {"label": self.label, "id": self.id, "score": self.score, "box": list(self.box)}
        return track | found


@dataclass(frozen=True)
class Detection:
    """The objects in one image.

    The arrays have a row for each query of the model, or less with NMS or tiles, the highest score
    first; `objects` lists those with a score of at least `threshold`.
    """

    rows: ClassVar[tuple[str, ...]] = ("boxes", "classes", "scores", "queries", "tracks")
    """The fields that have a row for each query."""
    boxes: NDArray[np.float32]
    """(queries, 4): left, top, right, bottom in pixels of the input image."""
    classes: NDArray[np.int64]
    """(queries,): an index into `names`."""
    scores: NDArray[np.float32]
    queries: NDArray[np.int64]
    names: tuple[str, ...]
    ids: tuple[int, ...]
    """Numbers of the classes: their ids in the training data, or from 0 where that has only
    names."""
    size: tuple[int, int]
    """Height and width of the input image."""
    threshold: float = 0.5
    image: str = ""
    """The image's file, if it has one."""
    tracks: tuple[int, ...] = ()
    """Of each row above the threshold, the number of its object in all frames of a video, if they
    are tracked."""

    @cached_property
    def objects(self) -> list[DetectedObject]:
        """The objects above the threshold, the highest score first."""
        rows = zip(self.classes, self.scores, self.boxes.tolist(), self.queries, strict=True)
        found = [row for row in rows if row[1] >= self.threshold]
        return [
            DetectedObject(
                *(self.names[number], self.ids[number], float(score), tuple(box), int(query)),
                track=track,
            )
            for (number, score, box, query), track in zip(
                found, self.tracks or [None] * len(found), strict=True
            )
        ]

    @property
    def counts(self) -> dict[str, int]:
        """Number of objects by class name; classes without objects are left out."""
        labels = [found.label for found in self.objects]
        return {name: labels.count(name) for name in self.names if name in labels}

    def above(self, threshold: float) -> Detection:
        """The same result with another threshold, from 0 to 1; objects are not tracked any more."""
        check_threshold(threshold)
        return replace(self, threshold=threshold, tracks=())

    def best(self, count: int | None) -> Self:
        """The same result with at most so many objects, the most confident."""
        objects = self.objects if count is None else self.objects[:count]
        if len(objects) == len(self.objects):
            return self
        kept = {name: getattr(self, name)[: len(objects)] for name in self.rows}
        return replace(self, **kept)

    def only_in(self, other: Detection) -> tuple[list[DetectedObject], list[DetectedObject]]:
        """The objects of one of both, and those of the other, that are not one object: one has the
        same class, and each side of the box within a hundredth of the image."""
        ours, theirs = [], list(other.objects)
        near = 0.01 * max(self.size)
        for one in self.objects:
            for each in theirs:
                apart = np.abs(np.subtract(one.box, each.box)).max()
                if one.label == each.label and apart <= near:
                    theirs.remove(each)
                    break
            else:
                ours.append(one)
        return ours, theirs

    def agreement(self, other: Detection) -> float:
        """The part of the objects of both that are in both."""
        ours, theirs = self.only_in(other)
        total = len(self.objects) + len(other.objects)
        return 1 - (len(ours) + len(theirs)) / total if total else 1.0

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        objects = [found.to_dict() for found in self.objects]
        return {"image": self.image, "size": list(self.size), "objects": objects}

    def to_coco(
        self, image_id: int | str, ids: Sequence[int | str | None] | None = None
    ) -> list[dict[str, Any]]:
        """All rows, whatever their score, as entries of a COCO results file.

        ids: the classes' ids in other data; rows whose class has None are left out.
        """
        ids = self.ids if ids is None else ids
        boxes = self.boxes.astype(np.float64)
        boxes[:, 2:] -= boxes[:, :2]
        return [
            {"image_id": image_id, "category_id": ids[number], "bbox": box, "score": float(score)}
            for number, score, box in zip(self.classes, self.scores, boxes.tolist(), strict=True)
            if ids[number] is not None
        ]


@dataclass(frozen=True, eq=False)
class SegmentedObject(DetectedObject):
    """One object in an image, with its box, score and mask."""

    parts: MaskParts = field(kw_only=True, repr=False)
    """Of the mask, as the model gives them."""
    size: tuple[int, int] = field(kw_only=True, repr=False)
    """Height and width of the input image."""

    @cached_property
    def mask(self) -> NDArray[np.bool_]:
        """(h, w): its pixels in the input image."""
        return united(self.parts, self.size)

    @cached_property
    def _runs(self) -> Runs:
        return encoded(self.parts, self.size)

    @property
    def area(self) -> int:
        """Number of its pixels."""
        return area(self._runs)

    @property
    def rle(self) -> dict[str, Any]:
        """The mask as COCO's run-length encoding: {"size": [h, w], "counts": text}."""
        return in_text(self._runs)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return super().to_dict() | {"area": self.area, "segmentation": self.rle}


@dataclass(frozen=True, eq=False)
class InstanceSegmentation(Detection):
    """The objects in one image, each with its mask. Masks are made when they are asked for."""

    rows = (*Detection.rows, "masks")
    masks: tuple[MaskParts, ...] = field(kw_only=True, repr=False)
    """Of each query, as the model gives them."""

    @cached_property
    def objects(self) -> list[SegmentedObject]:  # type: ignore[override]
        """The objects above the threshold, the highest score first."""
        pairs = zip(self.masks, self.scores, strict=True)
        rows = [parts for parts, score in pairs if score >= self.threshold]
        return [
            SegmentedObject(
                *(found.label, found.id, found.score, found.box, found.query),
                track=found.track,
                parts=parts,
                size=self.size,
            )
            for found, parts in zip(super().objects, rows, strict=True)
        ]

    @property
    def ids_mask(self) -> NDArray[np.uint16]:
        """(h, w): 1 for the first of `objects`, 2 for the second …, 0 where none is; where masks
        overlap, the object with the higher score."""
        found = np.zeros(self.size, np.uint16)
        for number, each in reversed(list(enumerate(self.objects, 1))):
            found[each.mask] = number
        return found

    def to_coco(
        self, image_id: int | str, ids: Sequence[int | str | None] | None = None
    ) -> list[dict[str, Any]]:
        """As `Detection.to_coco`, with a `segmentation` in each entry."""
        masks = zip(self.classes, self.masks, strict=True)
        known = self.ids if ids is None else ids
        used = [parts for number, parts in masks if known[number] is not None]
        return [
            {**row, "segmentation": in_text(encoded(parts, self.size))}
            for row, parts in zip(super().to_coco(image_id, ids), used, strict=True)
        ]
