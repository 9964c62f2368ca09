"""How ground truth moves with its image. Each task has its own kind (`tasks/*/truth.py`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from vitreous.data.decode.pixels import ImageSize
    from vitreous.data.source import Sample, Source

Size = tuple[int, int]
"""Height and width."""


class Truth:
    """Ground truth of the image as a whole, a class or several: no crop or flip changes it."""

    any_size = False
    """Whether images of different sizes can be learned from in one batch."""

    @property
    def stays(self) -> bool:
        """Whether it is the same for every part of an image: it has no places in it."""
        return type(self).crop is Truth.crop

    def read(self, source: Source, sample: Sample, size: ImageSize | None = None) -> Any:
        """Of one image of a source. size: see `Source.truth`."""
        return source.truth(sample, size)

    def crop(self, truth: Any, size: Size, top: int, left: int, height: int, width: int) -> Any:
        """Of an image of `size`, for this part of it."""
        return truth

    def resize(self, truth: Any, size: Size, new: Size) -> Any:
        return truth

    def hflip(self, truth: Any, size: Size) -> Any:
        return truth

    def shift(self, truth: Any, rows: Tensor, columns: Tensor) -> Any:
        """For an image that was made of these rows and columns of pixels."""
        return truth

    def pad(self, truth: Any, right: int, bottom: int) -> Any:
        """For an image that was padded by so many pixels."""
        return truth

    def target(self, truth: Any, size: Size) -> Any:
        """As the loss takes it, of an image of `size`."""
        return truth

    def reference(self, truth: Any, size: Size) -> Any:
        """The target of an image of `size` that was not changed, as the metrics take it."""
        return self.target(truth, size)

    def classes(self, truth: Any) -> Iterable[int]:
        """That it has; each at least once."""
        return (int(truth),)

    def mix(self, first: Any, second: Any, share: float) -> Any:
        """The target of two images that Mixup or CutMix has mixed; the first one has `share`."""
        return first


class NoTruth(Truth):
    """None: what is learned from images alone has this in place of a target."""

    def read(self, source: Source, sample: Sample, size: ImageSize | None = None) -> int:
        return 0

    def classes(self, truth: Any) -> Iterable[int]:
        return ()
