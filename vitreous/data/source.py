"""What every source of images gives, whatever it is stored as."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from vitreous.data.decode.images import DecodedImage
from vitreous.data.decode.pixels import MAX_PIXELS, Enough, ImageSize
from vitreous.errors import naming
from vitreous.labels import IGNORED as IGNORED
from vitreous.labels import LabelMap, NoLabels

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class Sample:
    """One image and what is known about it."""

    id: str
    """Stable and unique within the source: a path relative to its root, or a number."""
    target: Any
    """The class, from 0, where an image has one; all of them, where it has several; else whatever
    `truth` is found by."""


@dataclass(frozen=True)
class Problem:
    """Something wrong with the data. `fatal` ones make a sample unusable."""

    file: str
    what: str
    fatal: bool = True
    leak: bool = False
    """Usable, but what is measured would not be true."""


def unread_pages_problem(file: str, count: int) -> tuple[Problem, ...]:
    """Of a file with so many pages of which only the first is read; nothing for 0."""
    what = f"has {count} pages or frames; only the first is read"
    return (Problem(file, what, fatal=False),) if count else ()


class CheckedTruth(NamedTuple):
    """Ground truth as the data check sees it."""

    truth: Any
    remarks: tuple[Problem, ...] = ()
    """What is odd about it, but usable."""
    names: tuple[str, ...] | None = None
    records: tuple[str, ...] = ()
    """Where objects have names: what problems call each of them, and the same with its file."""
    cut: int = 0
    """Boxes that reached over the edge of the image."""


def multi_hot(classes: Iterable[int], count: int) -> Tensor:
    """(count,): 1 for each of the classes, 0 for the others."""
    chosen = set(classes)
    return torch.tensor([float(number in chosen) for number in range(count)])


@dataclass
class Source:
    """Images with labels, in splits. A subclass for each kind of storage; all can be pickled."""

    may_flip: ClassVar[bool] = True
    """Whether a mirror image could be one of these, too: of handwriting it could not."""

    name: str
    """What the user called it: a path, or a built-in name."""
    kind: str
    """folder, csv, idx, built-in …"""
    labels: LabelMap
    splits: dict[str, Sequence[Sample]]
    """train, val and test, as far as the data has them."""
    truth_kind: str = "class"
    """What is known of each image: class, labels (a set of classes), mask, boxes, instances or
    none."""
    notes: list[str] = field(default_factory=list)
    """What was understood and is worth saying."""
    problems: list[Problem] = field(default_factory=list)
    """What was found to be wrong while looking, before any image was read."""
    left_out: list[str] = field(default_factory=list, kw_only=True)
    """Ids of samples that cannot be used, and are not in the splits any more."""
    max_pixels: int = field(default=MAX_PIXELS, kw_only=True)
    """An image with more pixels is an error and is not decoded; nor is one enlarged beyond it."""
    labelled: Source | None = field(default=None, kw_only=True)
    """Of data that is to be learned from without labels: the same data with them, as far as it has
    some, to judge what was learned."""

    def unlabelled(self) -> Source:
        """The same images, of which nothing is known."""
        found = copy(self)
        if self.truth_kind != "none":
            found.truth_kind, found.labels, found.labelled = "none", NoLabels(), self
        return found

    def with_labels(self) -> Source:
        """The same images with what is known of them after all."""
        found, known = copy(self), self.labelled
        if known is not None:
            found.truth_kind, found.labels, found.labelled = known.truth_kind, known.labels, None
        return found

    def image(self, sample: Sample) -> Tensor:
        """(c, h, w) as stored: uint8, uint16 or float32. A bad file is a DataError naming it."""
        raise NotImplementedError

    def decode(
        self, sample: Sample, enough: Enough | None = None, *, count_pages: bool = False
    ) -> DecodedImage:
        """The image with its size, for `truth`. enough: a JPEG may be decoded at a half, a quarter
        or an eighth of its size, where that has as many pixels as this asks for. count_pages: count
        those that are not read."""
        image = self.image(sample)
        return DecodedImage(image, ImageSize(image.shape[1], image.shape[2]))

    def truth(self, sample: Sample, size: ImageSize | None = None) -> Any:
        """The ground truth of an image, by `truth_kind`.

        size: the image's, from who has decoded it. Without it, a source that needs it opens the
        image.
        class: the class, from 0. labels: (classes,) of 0 and 1. mask: (h, w) of int16, as large as
        the image, the class of each pixel or IGNORED. boxes: a dict with boxes (n, 4), left, top,
        right, bottom in pixels, labels (n,) and crowd (n,). instances: the same with area (n,) and
        masks, `InstanceMasks`.
        """
        if self.truth_kind == "labels":
            return multi_hot(sample.target, len(self.labels))
        return sample.target

    def checked_truth(self, sample: Sample, size: ImageSize | None = None) -> CheckedTruth:
        """The same for the data check, with what is odd about it."""
        return CheckedTruth(self.truth(sample, size))

    def names_of(self, sample: Sample) -> list[str]:
        """The class that an image shows, or all of them; none where the truth is something else."""
        if self.truth_kind not in ("class", "labels"):
            return []
        classes = [sample.target] if self.truth_kind == "class" else sample.target
        return [self.labels.names[number] for number in classes]

    def where(self, sample: Sample) -> str:
        """What an error calls a sample."""
        return f"{self.name}, image {sample.id}"

    def naming(self, sample: Sample) -> AbstractContextManager[None]:
        """Inside, a DataError about an image is one that names it."""
        return naming(self.where(sample))
