"""What every source of images gives, whatever it is stored as."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from vitreous.errors import DataError
from vitreous.labels import IGNORED as IGNORED
from vitreous.labels import LabelMap

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class Sample:
    """One image and what is known about it."""

    id: str
    """Stable and unique within the source: a path relative to its root, or a number."""
    target: Any
    """For classification the class inside the model, from 0; else whatever `truth` is found by."""


@dataclass(frozen=True)
class Problem:
    """Something wrong with the data. `fatal` ones make a sample unusable."""

    file: str
    what: str
    fatal: bool = True


@dataclass
class Source:
    """Images with labels, in splits. A subclass for each kind of storage; all can be pickled."""

    name: str
    """What the user called it: a path, or a built-in name."""
    kind: str
    """folder, csv, idx, built-in …"""
    labels: LabelMap
    splits: dict[str, Sequence[Sample]]
    """train, val and test, as far as the data has them."""
    task: str = "classify"
    notes: list[str] = field(default_factory=list)
    """What was understood and is worth saying."""
    problems: list[Problem] = field(default_factory=list)
    """What was found to be wrong while looking, before any image was read."""

    def image(self, sample: Sample) -> Tensor:
        """(c, h, w) as stored: uint8, uint16 or float32. A bad file is a DataError naming it."""
        raise NotImplementedError

    def truth(self, sample: Sample) -> Any:
        """What the image shows: for classification the class; for segmentation the mask, (h, w) of
        int16, with the class of each pixel or IGNORED, as large as the image."""
        return sample.target

    def where(self, sample: Sample) -> str:
        """What an error calls a sample."""
        return f"{self.name}, image {sample.id}"

    @contextmanager
    def naming(self, sample: Sample) -> Iterator[None]:
        """Inside, a DataError about an image is one that names it."""
        try:
            yield
        except DataError as error:
            raise DataError(f"{self.where(sample)}: {error}") from None

    def prepared(self, sample: Sample, prepare: Callable[[Tensor], Tensor]) -> Tensor:
        """The image as `prepare` makes it. What that cannot use is a DataError naming it too."""
        image = self.image(sample)
        with self.naming(sample):
            return prepare(image)
