"""What sources of images with boxes have in common, whatever file has the boxes."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from torch import Tensor

from vitreous.data.decode.images import seen_size, shown
from vitreous.data.formats.box_records import (
    EDGE,
    PART_ROUNDING,
    ROUNDING,
    Box,
    Placed,
    check_fits,
    place,
    sort_out,
    together,
)
from vitreous.data.formats.files import FileSource
from vitreous.data.source import Problem, Sample
from vitreous.errors import DataError


@dataclass
class BoxSource(FileSource):
    """Images with boxes. A sample's target is the path below `root` of the file that has its boxes,
    or nothing where it has none."""

    objects: dict[str, tuple[Box, ...]] = field(default_factory=dict, kw_only=True, repr=False)
    """By the sample's id."""
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict, kw_only=True, repr=False)
    """By the sample's id, the height and width that the file of its boxes says."""
    spoiled: dict[str, str] = field(default_factory=dict, kw_only=True)
    """By the sample's id, why it is not known what the image shows."""
    parts: bool = field(default=False, kw_only=True)
    """Boxes are parts of the image's width and height, not pixels."""
    unused: Counter[str] = field(default_factory=Counter, kw_only=True)
    """Objects of classes that the names file ignores."""
    image_ids: dict[str, int] = field(default_factory=dict, kw_only=True, repr=False)
    """By the sample's id, the number that a COCO file gives to the image."""

    def truth(self, sample: Sample) -> dict[str, Tensor]:
        return self.placed(sample).truth

    def placed(self, sample: Sample) -> Placed:
        """The boxes of an image, and which of them were cut off at its edge."""
        if sample.id in self.spoiled:
            raise DataError(f"{self._begin(sample)}: {self.spoiled[sample.id]}")
        height, width, turned = seen_size(self.file(sample), max_pixels=self.max_pixels)
        try:
            said = self.sizes.get(sample.id)
            check_fits(said, (height, width), turned, self._elsewhere(sample))
            return place(self.objects[sample.id], height, width, parts=self.parts)
        except DataError as error:
            raise DataError(f"{self._begin(sample)}: {error}") from None

    def annotation(self, sample: Sample) -> str:
        """What errors call the file that has the boxes of a sample."""
        return str(sample.target) or sample.id

    def record(self, sample: Sample, name: str) -> str:
        """What a problem with a record is filed under."""
        return f"{self.annotation(sample)}, {name}"

    def cut_off(self, sample: Sample, placed: Placed) -> list[Problem]:
        """The boxes that reach over the edge of the image by more than the usual pixel."""
        return [
            Problem(
                self.record(sample, box.name),
                f"its box reaches {far:.4g} pixels over the edge of the image: cut off there",
                fatal=False,
            )
            for box, far in zip(self.objects[sample.id], placed.over, strict=True)
            if far > EDGE
        ]

    def files(self, sample: Sample) -> dict[str, str]:
        images = super().files(sample)
        return images | {sample.target: self._boxes_file(sample)} if sample.target else images

    def _boxes_file(self, sample: Sample) -> str:
        return os.path.join(self.root, self.odd_names.get(sample.target, sample.target))

    def _begin(self, sample: Sample) -> str:
        """An error begins with the file that is to be changed."""
        return shown(self._boxes_file(sample)) if sample.target else self.where(sample)

    def _elsewhere(self, sample: Sample) -> str:
        """The file that has the boxes, where an error begins with another."""
        return ""

    def put(self, sample: Sample, boxes: Iterable[Box], wrong: Iterable[str] = ()) -> None:
        """What a file says about an image; `wrong` spoils it. Problems are told."""
        found = sort_out(boxes, parts=self.parts)
        self.objects[sample.id] = tuple(found.kept)
        self.problems += [
            Problem(self.record(sample, box.name), what, fatal=False) for box, what in found.told
        ]
        if faults := [*wrong, *found.wrong]:
            self.spoiled[sample.id] = together(faults)

    def count(self) -> None:
        """Says of each split what is not to be overlooked, once all is put."""
        for category, count in self.unused.items():
            what = f"{count} objects of {category} are not used: the names file says null"
            self.notes.append(what)
        for split, samples in self.splits.items():
            spoiled = [sample.id for sample in samples if sample.id in self.spoiled]
            good = [sample.id for sample in samples if sample.id not in self.spoiled]
            if empty := sum(not self.objects[id] for id in good):
                self.notes.append(f"{split}: {empty} images have no objects")
            if over := sum(map(self._over, good)):
                what = "boxes reach over the edge of their image and are cut off there"
                self.notes.append(f"{split}: {over} {what}")
            if spoiled:
                what = "images have boxes that cannot be used"
                self.notes.append(f"{split}: {len(spoiled)} {what}: {spoiled[0]} …")

    def _over(self, id: str) -> int:
        """How many boxes reach over the edge, as far as the size of the image is known."""
        height, width = (1, 1) if self.parts else self.sizes.get(id, (math.inf, math.inf))
        slack = PART_ROUNDING if self.parts else ROUNDING
        return sum(
            left < -slack or top < -slack or right > width + slack or bottom > height + slack
            for left, top, right, bottom in (box.corners for box in self.objects[id])
        )
