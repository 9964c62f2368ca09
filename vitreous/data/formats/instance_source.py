"""The source of objects with masks that are drawn from outlines: COCO's and YOLO's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from vitreous.data.formats.box_source import BoxSource
from vitreous.data.formats.coco_json import in_pixels, outline_corners, runs_of
from vitreous.data.formats.instances import Instance, PlacedBoxes, joined
from vitreous.data.instance_masks import InstanceMasks
from vitreous.data.source import Problem, Sample
from vitreous.errors import DataError, naming

LEAST_OVERLAP = 0.5
"""IoU of an object's box with the box around its mask, below which one of them is wrong."""


@dataclass
class InstanceSource(BoxSource):
    """Masks are drawn when they are asked for; until then there are the file's outlines."""

    def truth(self, sample: Sample) -> dict[str, Any]:
        return self.with_masks(sample, self.placed(sample))

    def with_masks(self, sample: Sample, placed: PlacedBoxes) -> dict[str, Any]:
        """An object whose mask has no pixel is left out."""
        things, size = self.annotations[sample.id].instances, self.size(sample)
        with naming(self.where_wrong(sample)):
            drawn = [runs_of(in_pixels(t, *size, self.normalised), *size) for t in things]
        masks = InstanceMasks(tuple(each["counts"] for each in drawn), size)
        own = masks.areas()
        known = [o if t.area is None else t.area for t, o in zip(things, own.tolist(), strict=True)]
        truth: dict[str, Any] = {**placed.truth, "masks": masks}
        truth["area"] = torch.tensor(known, dtype=torch.float64)
        return {name: values[own > 0] for name, values in truth.items()}

    def odd_masks(self, sample: Sample, placed: PlacedBoxes) -> Iterator[Problem]:
        """Objects without pixels, and those whose box is not around their mask."""
        things, size = self.annotations[sample.id].instances, self.size(sample)
        for thing, corners in zip(things, placed.truth["boxes"], strict=True):
            runs = runs_of(in_pixels(thing, *size, self.normalised), *size)
            masks = InstanceMasks((runs["counts"],), size)
            record, (around,) = self.record(sample, thing.name), masks.boxes()
            if not masks.areas()[0]:
                yield Problem(record, "its mask has no pixel in the image: left out", fatal=False)
            elif (share := _iou(corners.tolist(), around.tolist())) < LEAST_OVERLAP:
                what = f"its box and the box around its mask have an IoU of only {share:.2f}"
                yield Problem(record, f"{what}: is one of them another object's?", fatal=False)

    def check_outlines(self) -> InstanceSource:
        """Leaves only objects that can be used, and reports the others. A format calls it once."""
        for sample in (sample for samples in self.splits.values() for sample in samples):
            annotation, kept, errors = self.annotations[sample.id], [], []
            for thing in annotation.instances:
                if thing.outline is None:
                    errors.append(f"{thing.name} has no outline to draw a mask from")
                elif not len(thing.outline):
                    what = "its outline encloses nothing: left out"
                    self.problems.append(Problem(self.record(sample, thing.name), what, False))
                else:
                    kept.append(self._with_corners(thing, errors))
            if errors:
                errors = [joined(errors)]
            self.annotations[sample.id] = replace(
                annotation, instances=kept, errors=annotation.errors + errors
            )
        self.check_boxes()
        return self

    def _with_corners(self, thing: Instance, errors: list[str]) -> Instance:
        """The box around its outline, where the file has none."""
        if thing.corners is not None:
            return thing
        try:
            return thing._replace(corners=outline_corners(thing))
        except DataError as error:
            errors.append(f"{thing.name}: {error}")
            return thing._replace(corners=(0, 0, 1, 1))


def _iou(a: list[float], b: list[float]) -> float:
    """Of two boxes, left, top, right, bottom."""
    wide, tall = (min(a[i + 2], b[i + 2]) - max(a[i], b[i]) for i in (0, 1))
    common = max(wide, 0) * max(tall, 0)
    both = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (a, b))
    return common / max(both - common, 1e-9)
