"""The source of images with annotated objects. Its ground truth is their boxes or, drawn from their
outlines, masks: one for the image, or one for each object.

In the mask of an image the smaller object lies on the larger where objects overlap: a cup on a
table is a cup. Crowds are neither learned nor counted.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitreous.data.decode.images import displayed_size, shown, size_mismatch
from vitreous.data.decode.pixels import ImageSize
from vitreous.data.formats.files import FileSource
from vitreous.data.instance_masks import InstanceMasks, decode
from vitreous.data.objects.outlines import outline_corners, runs_of
from vitreous.data.objects.overlap import iou
from vitreous.data.objects.table import (
    ROUNDING,
    ROUNDING_NORMALISED,
    UNKNOWN,
    Annotation,
    CutBoxes,
    ObjectTable,
    check_corners,
    cut_to_image,
    errors_in_line,
)
from vitreous.data.source import IGNORED, CheckedTruth, Problem, Sample
from vitreous.errors import DataError, naming
from vitreous.labels import External
from vitreous.mask_parts import Runs, Size
from vitreous.wording import counted

BACKGROUND = "background"
"""The class of pixels that belong to no object."""
EDGE = 1.0
"""Pixels over the edge that come from counting from 0 or from 1. They are counted, not listed."""
LEAST_OVERLAP = 0.5
"""IoU of an object's box with the box around its mask, below which one of them is wrong."""


@dataclass
class ObjectSource(FileSource):
    """A sample's target is the path below `root` of the file that has its objects, or "" where it
    has none; behind the path of COCO's file stand # and the number of the image."""

    table: ObjectTable = field(default_factory=lambda: ObjectTable(""), kw_only=True, repr=False)
    annotations: dict[str, Annotation] = field(default_factory=dict, kw_only=True, repr=False)
    """By the sample's id."""
    image_ids: dict[str, int] = field(default_factory=dict, kw_only=True, repr=False)
    """By the sample's id, the number that COCO's file gives to the image."""
    normalised: bool = field(default=False, kw_only=True)
    """Boxes and polygons are in 0..1 of the image's width and height, not in pixels."""
    background: int = field(default=IGNORED, kw_only=True)
    """In masks, the class of pixels that belong to no object."""

    def truth(self, sample: Sample, size: ImageSize | None = None) -> Any:
        if self.truth_kind == "mask":
            return self._mask(sample, self._size(sample, size))
        if self.truth_kind == "boxes":
            return self._boxes(sample, self._size(sample, size)).truth
        return self._instances(sample, self._size(sample, size))[0]

    def checked_truth(self, sample: Sample, size: ImageSize | None = None) -> CheckedTruth:
        """Of instances without their masks, and with objects whose mask has no pixel."""
        if self.truth_kind == "mask":
            return super().checked_truth(sample, size)
        sides, odd = self._size(sample, size), list[Problem]()
        if self.truth_kind == "boxes":
            boxes = self._boxes(sample, sides)
        else:
            _, boxes, masks = self._instances(sample, sides)
            odd = list(self._odd_masks(sample, boxes, masks))
        annotation = self.annotations[sample.id]
        names = tuple(map(self.table.name, range(annotation.start, annotation.stop)))
        records = tuple(self._record(sample, name) for name in names)
        cut_off = [
            Problem(
                record,
                f"its box reaches {far:.4g} pixels over the edge of the image: cut off there",
                fatal=False,
            )
            for record, far in zip(records, boxes.over, strict=True)
            if far > EDGE
        ]
        cut = sum(far > 0 for far in boxes.over)
        return CheckedTruth(boxes.truth, (*cut_off, *odd), names, records, cut)

    def _size(self, sample: Sample, size: ImageSize | None) -> Size:
        """Height and width of an image whose annotation can be used."""
        annotation, shared = self.annotations[sample.id], self._shared_file(sample)
        if annotation.errors:
            raise DataError(f"{self._where_wrong(sample)}: {errors_in_line(annotation.errors)}")
        size = size or displayed_size(self.file(sample), max_pixels=self.max_pixels)
        what = f"its objects{f' in {shared}' if shared else ''} are for"
        if mismatch := size_mismatch(annotation.size, size, what):
            raise DataError(f"{self._where_wrong(sample)}: {mismatch}")
        return size.height, size.width

    def _boxes(self, sample: Sample, size: Size) -> CutBoxes:
        with naming(self._where_wrong(sample)):
            annotation = self.annotations[sample.id]
            return cut_to_image(self.table, annotation, size, normalised=self.normalised)

    def _runs(self, sample: Sample, size: Size) -> list[Runs]:
        """The pixels of each object."""
        rows, table = self.annotations[sample.id], self.table
        return [
            runs_of(table.outline(row), size, table.name(row), normalised=self.normalised)
            for row in range(rows.start, rows.stop)
        ]

    def _mask(self, sample: Sample, size: Size) -> Tensor:
        with self.naming(sample):
            drawn = [decode(runs) for runs in self._runs(sample, size)]
        rows = self.annotations[sample.id].rows
        values = np.where(self.table.crowd[rows], IGNORED, self.table.labels[rows]).tolist()
        mask = np.full(size, self.background, np.int16)
        for pixels, value in sorted(
            zip(drawn, values, strict=True), key=lambda each: -int(each[0].sum())
        ):
            mask[pixels] = value
        return torch.from_numpy(mask)

    def _instances(
        self, sample: Sample, size: Size
    ) -> tuple[dict[str, Any], CutBoxes, InstanceMasks]:
        """The ground truth, without objects whose mask has no pixel; and all boxes and masks."""
        boxes = self._boxes(sample, size)
        with naming(self._where_wrong(sample)):
            drawn = self._runs(sample, size)
        masks = InstanceMasks(tuple(each["counts"] for each in drawn), size)
        own, known = masks.areas(), self.table.areas[self.annotations[sample.id].rows]
        truth: dict[str, Any] = {**boxes.truth, "masks": masks}
        truth["area"] = torch.from_numpy(np.where(np.isnan(known), own.numpy(), known))
        return {name: values[own > 0] for name, values in truth.items()}, boxes, masks

    def _odd_masks(
        self, sample: Sample, boxes: CutBoxes, masks: InstanceMasks
    ) -> Iterator[Problem]:
        """Objects without pixels, and those whose box is not around their mask."""
        shares = iou(boxes.truth["boxes"], masks.boxes()).tolist()
        pairs = zip(masks.areas().tolist(), shares, strict=True)
        for row, (area, share) in enumerate(pairs, self.annotations[sample.id].start):
            record = self._record(sample, self.table.name(row))
            if not area:
                yield Problem(record, "its mask has no pixel in the image: left out", fatal=False)
            elif share < LEAST_OVERLAP:
                what = f"its box and the box around its mask have an IoU of only {share:.2f}"
                yield Problem(record, f"{what}: is one of them another object's?", fatal=False)

    # ---- files

    def files(self, sample: Sample) -> dict[str, str]:
        return super().files(sample) | self._own_file(sample)

    def _record(self, sample: Sample, name: str) -> str:
        """What messages call an object."""
        shared = self._shared_file(sample)
        file = shown(os.path.normpath(os.path.join(self.root, shared))) if shared else sample.target
        return f"{file or sample.id}, {name}"

    def _where_wrong(self, sample: Sample) -> str:
        """An error about objects begins with the file that has to be changed."""
        return shown(next(iter(self._own_file(sample).values()), self.file(sample)))

    def _shared_file(self, sample: Sample) -> str:
        """Below `root`: COCO's file, which has the objects of many images."""
        return str(sample.target).rpartition("#")[0] if sample.id in self.image_ids else ""

    def _own_file(self, sample: Sample) -> dict[str, str]:
        """The file that has the objects of this image alone, by its path below `root`."""
        own = sample.target and sample.id not in self.image_ids
        return {sample.target: self.path(sample.target)} if own else {}

    # ---- what can be used

    def checked(self) -> ObjectSource:
        """Leaves only objects that can be used, and reports the others. A format calls it once."""
        if self.truth_kind == "mask":
            self._note_masks()
        else:
            if self.truth_kind == "instances":
                self._check_outlines()
            self._check_boxes()
            self._note_boxes()
        return self

    def _samples(self) -> Iterator[tuple[Sample, Annotation]]:
        """Each once, also one that is in two splits."""
        every = {sample.id: sample for samples in self.splits.values() for sample in samples}
        for sample in every.values():
            yield sample, self.annotations[sample.id]

    def _check_outlines(self) -> None:
        """An object without an outline is an error; one without a box has that around it."""
        table, kinds = self.table, self.table.outline_kinds()
        odd = (kinds < 1) | np.isnan(table.boxes[:, 0])
        for sample, annotation in self._samples():
            errors = []
            for row in (annotation.start + np.flatnonzero(odd[annotation.rows])).tolist():
                name, outline = table.name(row), table.outline(row)
                if outline is None:
                    errors.append(f"{name} has no outline to draw a mask from")
                elif not len(outline):
                    what = "its outline encloses nothing: left out"
                    self.problems.append(Problem(self._record(sample, name), what, False))
                else:
                    try:
                        table.boxes[row] = outline_corners(outline, name)
                    except DataError as error:
                        errors.append(f"{name}: {error}")
                        table.boxes[row] = 0, 0, 1, 1
            annotation.errors += [errors_in_line(errors)] if errors else []
        table.keep(kinds == 1)

    def _check_boxes(self) -> None:
        table, ignored = self.table, Counter[External]()
        sound = table.find_sound(normalised=self.normalised)
        kept = sound.copy()
        for sample, annotation in self._samples():
            self.problems += [Problem(sample.target, what, False) for what in annotation.remarks]
            if sound[annotation.rows].all():
                continue
            boxes = []
            for row, box in enumerate(table.objects(annotation), annotation.start):
                if table.labels[row] == UNKNOWN:
                    last = self.labels.external[-1]
                    what = f"class {box.category} has no name, the last one is {last}"
                    annotation.errors.append(f"{box.name}: {what}")
                elif table.labels[row] == IGNORED:
                    ignored[box.category] += 1
                else:
                    boxes.append((row, box))
            verdicts = check_corners((box for _, box in boxes), normalised=self.normalised)
            for (row, box), verdict in zip(boxes, verdicts, strict=True):
                kept[row] = verdict.kept
                if verdict.error:
                    annotation.errors.append(verdict.error)
                if verdict.remark:
                    record = self._record(sample, box.name)
                    self.problems.append(Problem(record, verdict.remark, False))
        table.keep(kept)
        self.notes += [
            f"ignored: {counted(count, 'object')} of {category}: the names file has null"
            for category, count in ignored.items()
        ]

    def _note_empty(self) -> None:
        for split, samples in self.splits.items():
            found = [self.annotations[sample.id] for sample in samples]
            if empty := sum(each.start == each.stop and not each.errors for each in found):
                self.notes.append(f"{split}: without objects: {counted(empty, 'image')}")

    def _note_boxes(self) -> None:
        self._note_empty()
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
        boxes, ends = self.table.boxes[annotation.rows], (width + slack, height + slack)
        return int(((boxes[:, :2] < -slack) | (boxes[:, 2:] > ends)).any(axis=1).sum())

    def _note_masks(self) -> None:
        if self.background == IGNORED:
            self.notes.append("pixels of no object are ignored")
        else:
            name, id = (of[self.background] for of in (self.labels.names, self.labels.external))
            what = f'are the class {name!r}; {{"{id}": null}} in a names file ignores them'
            self.notes.append(f"pixels of no object {what}")
        self.notes.append("smaller objects lie on larger ones in masks; crowds are ignored")
        self._note_empty()
