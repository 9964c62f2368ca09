"""What sources that are made of image files have in common."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from torch import Tensor

from vitreous.data.decode.images import MAX_PIXELS, read_image, shown
from vitreous.data.source import Sample, Source


@dataclass
class FileSource(Source):
    """A sample's id is its path below `root`."""

    root: str = field(default="", kw_only=True)
    max_pixels: int = field(default=MAX_PIXELS, kw_only=True)
    """A file of more is an error, and is not decoded."""
    odd_names: dict[str, str] = field(default_factory=dict, kw_only=True)
    """The real path of a sample whose name is no valid text."""

    def file(self, sample: Sample) -> str:
        return os.path.join(self.root, self.odd_names.get(sample.id, sample.id))

    def files(self, sample: Sample) -> dict[str, str]:
        """Every file that a sample is read from, by its path below `root`."""
        return {sample.id: self.file(sample)}

    def where(self, sample: Sample) -> str:
        return shown(self.file(sample))

    def image(self, sample: Sample) -> Tensor:
        return read_image(self.file(sample), max_pixels=self.max_pixels)
