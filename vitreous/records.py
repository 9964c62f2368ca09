"""The JSON of results, typed: what `to_dict` gives, `predict --json` prints and the server sends.

These describe; `vitreous.results` and the tasks write. A test compares both.
"""

from __future__ import annotations

from typing import NotRequired

# pydantic, which makes the server's schema of these, cannot read typing's before Python 3.12
from typing_extensions import TypedDict


class RunLengths(TypedDict):
    """A mask as COCO's run-length encoding."""

    size: list[int]
    counts: str


class PictureRecord(TypedDict):
    """A picture of numbers inside JSON."""

    png: str
    """The file in base64."""


class ClassScore(TypedDict):
    label: str
    score: float


class ClassificationRecord(TypedDict):
    image: str
    label: str
    id: int
    score: float
    top: list[ClassScore]


class LabelScore(TypedDict):
    label: str
    id: int
    score: float


class TagsRecord(TypedDict):
    image: str
    labels: list[LabelScore]
    top: list[LabelScore]


class ClassArea(TypedDict):
    label: str
    id: int
    pixels: int
    area: float
    score: float
    segmentation: NotRequired[RunLengths]
    """The pixels of the class, where masks are asked for as rle."""


class SegmentationRecord(TypedDict):
    image: str
    size: list[int]
    """Height and width."""
    classes: list[ClassArea]
    mask: NotRequired[PictureRecord]
    """The id of each pixel's class, where masks are asked for as png."""


class ObjectRecord(TypedDict):
    label: str
    id: int
    score: float
    box: list[float]
    """Left, top, right, bottom in pixels."""
    area: NotRequired[int]
    segmentation: NotRequired[RunLengths]
    """The object's mask, of models that predict one."""


class DetectionRecord(TypedDict):
    image: str
    size: list[int]
    """Height and width."""
    objects: list[ObjectRecord]
    mask: NotRequired[PictureRecord]
    """For each pixel the number of its object, from 1 in the order of `objects`, or 0; of models
    that predict masks, where they are asked for as png."""


class FeaturesRecord(TypedDict):
    image: str
    features: list[float]


class ReconstructionRecord(TypedDict):
    image: str
    loss: float
    hidden: list[list[int]]
    """1 for each patch that was hidden, in rows."""


Record = (
    ClassificationRecord
    | TagsRecord
    | SegmentationRecord
    | DetectionRecord
    | FeaturesRecord
    | ReconstructionRecord
)
