"""The sources of images whose objects are given by a file: COCO's, Pascal VOC's and YOLO's."""

from __future__ import annotations

import math
import os
from collections import Counter
from dataclasses import dataclass, field, replace

from torch import Tensor

from vitreous.data.decode.images import displayed_size, shown, size_mismatch
from vitreous.data.formats.files import FileSource
from vitreous.data.formats.instance_table import TableRows
from vitreous.data.formats.instances import (
    ROUNDING,
    ROUNDING_NORMALISED,
    Annotation,
    PlacedBoxes,
    check_corners,
    joined,
    place,
)
from vitreous.data.source import IGNORED, Problem, Sample
from vitreous.errors import DataError, naming
from vitreous.labels import External
from vitreous.wording import counted

EDGE = 1.0
"""Pixels over the edge that come from counting from 0 or from 1. They are counted, not listed."""


@dataclass
class AnnotatedSource(FileSource):
    """A sample's target is the path below `root` of the file that has its objects, or "" where it
    has none; behind the path of COCO's file stand # and the number of the image."""

    annotations: dict[str, Annotation] = field(default_factory=dict, kw_only=True, repr=False)
    """By the sample's id."""
    classes: dict[External, int] = field(default_factory=dict, kw_only=True, repr=False)
    """Of each category, or IGNORED."""
    image_ids: dict[str, int] = field(default_factory=dict, kw_only=True, repr=False)
    """By the sample's id, the number that COCO's file gives to the image."""

    def record(self, sample: Sample, name: str) -> str:
        """What messages call an object."""
        shared = self._shared_file(sample)
        file = shown(os.path.normpath(os.path.join(self.root, shared))) if shared else sample.target
        return f"{file or sample.id}, {name}"

    def files(self, sample: Sample) -> dict[str, str]:
        return super().files(sample) | self._own_file(sample)

    def where_wrong(self, sample: Sample) -> str:
        """An error about objects begins with the file that has to be changed."""
        return shown(next(iter(self._own_file(sample).values()), self.file(sample)))

    def size(self, sample: Sample) -> tuple[int, int]:
        """Height and width of an image whose annotation can be used."""
        annotation, shared = self.annotations[sample.id], self._shared_file(sample)
        if annotation.errors:
            raise DataError(f"{self.where_wrong(sample)}: {joined(annotation.errors)}")
        height, width, turned = displayed_size(self.file(sample), max_pixels=self.max_pixels)
        what = f"its objects{f' in {shared}' if shared else ''} are for"
        if mismatch := size_mismatch(annotation.size, (height, width), turned, what):
            raise DataError(f"{self.where_wrong(sample)}: {mismatch}")
        return height, width

    def _shared_file(self, sample: Sample) -> str:
        """Below `root`: COCO's file, which has the objects of many images."""
        return str(sample.target).rpartition("#")[0] if sample.id in self.image_ids else ""

    def _own_file(self, sample: Sample) -> dict[str, str]:
        """The file that has the objects of this image alone, by its path below `root`."""
        own = sample.target and sample.id not in self.image_ids
        return {sample.target: self.path(sample.target)} if own else {}

    def note_empty(self) -> None:
        for split, samples in self.splits.items():
            found = [self.annotations[sample.id] for sample in samples]
            if empty := sum(not each.instances and not each.errors for each in found):
                self.notes.append(f"{split}: without objects: {counted(empty, 'image')}")


@dataclass
class BoxSource(AnnotatedSource):
    normalised: bool = field(default=False, kw_only=True)
    """Boxes are in 0..1 of the image's width and height, not in pixels."""

    def truth(self, sample: Sample) -> dict[str, Tensor]:
        return self.placed(sample).truth

    def placed(self, sample: Sample) -> PlacedBoxes:
        """The boxes of an image, and which of them were cut off at its edge."""
        size = self.size(sample)
        with naming(self.where_wrong(sample)):
            boxes = self.annotations[sample.id].instances
            return place(boxes, self.classes, *size, normalised=self.normalised)

    def cut_off(self, sample: Sample, placed: PlacedBoxes) -> list[Problem]:
        """The boxes that reach over the edge of the image by more than the usual pixel."""
        boxes = self.annotations[sample.id].instances
        return [
            Problem(
                self.record(sample, box.name),
                f"its box reaches {far:.4g} pixels over the edge of the image: cut off there",
                fatal=False,
            )
            for box, far in zip(boxes, placed.over, strict=True)
            if far > EDGE
        ]

    def check_boxes(self) -> BoxSource:
        """Leaves only boxes that can be used, and reports the others. A format calls it once."""
        ignored: Counter[External] = Counter()
        for sample in (sample for samples in self.splits.values() for sample in samples):
            annotation, boxes = self.annotations[sample.id], []
            if isinstance(rows := annotation.instances, TableRows) and rows.all_sound(self.classes):
                continue
            errors = list(annotation.errors)
            for box in annotation.instances:
                if box.category not in self.classes:
                    last = self.labels.external[-1]
                    what = f"class {box.category} has no name, the last one is {last}"
                    errors.append(f"{box.name}: {what}")
                elif self.classes[box.category] == IGNORED:
                    ignored[box.category] += 1
                else:
                    boxes.append(box)
            checked = check_corners(boxes, normalised=self.normalised)
            self.annotations[sample.id] = replace(
                annotation, instances=checked.kept, errors=errors + checked.errors
            )
            self.problems += [Problem(sample.target, what, False) for what in annotation.remarks]
            self.problems += [
                Problem(self.record(sample, box.name), what, False) for box, what in checked.remarks
            ]
        self.notes += [
            f"ignored: {counted(count, 'object')} of {category}: the names file has null"
            for category, count in ignored.items()
        ]
        self._note_splits()
        return self

    def _note_splits(self) -> None:
        self.note_empty()
        for split, samples in self.splits.items():
            bad = [sample.id for sample in samples if self.annotations[sample.id].errors]
            good = [each for s in samples if not (each := self.annotations[s.id]).errors]
            if over := sum(map(self._over, good)):
                what = "over the edge of their image, and cut off there"
                self.notes.append(f"{split}: {what}: {counted(over, 'box')}")
            if bad:
                images = counted(len(bad), "image")
                self.notes.append(
                    f"{split}: with boxes that cannot be used: {images}, like {bad[0]}"
                )

    def _over(self, annotation: Annotation) -> int:
        """How many boxes reach over the edge, as far as the size of the image is known."""
        height, width = (1, 1) if self.normalised else annotation.size or (math.inf, math.inf)
        slack = ROUNDING_NORMALISED if self.normalised else ROUNDING
        if isinstance(rows := annotation.instances, TableRows):
            ends = (width + slack, height + slack)
            return int(((rows.boxes[:, :2] < -slack) | (rows.boxes[:, 2:] > ends)).any(1).sum())
        return sum(
            left < -slack or top < -slack or right > width + slack or bottom > height + slack
            for left, top, right, bottom in (
                box.corners for box in annotation.instances if box.corners
            )
        )
