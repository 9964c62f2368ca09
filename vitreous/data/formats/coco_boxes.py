"""COCO's JSON of objects with boxes, the usual data to detect.

The classes are all categories of the file, also those of which there is no object, in the order of
their ids. Crowds are kept as crowds: they are neither learned nor counted.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from vitreous.data.decode.images import shown
from vitreous.data.formats.box_records import Box
from vitreous.data.formats.box_source import BoxSource
from vitreous.data.formats.coco_json import Coco, CocoObject
from vitreous.data.formats.files import FileSource
from vitreous.data.source import IGNORED, Sample
from vitreous.errors import DataError


@dataclass
class CocoBoxSource(BoxSource):
    """A sample's target is its file and number there: `annotations/instances_val.json#17`.

    `image_ids` has the numbers alone, and `labels.external` the ids of the categories.
    """

    def annotation(self, sample: Sample) -> str:
        return str(sample.target).rpartition("#")[0]

    def record(self, sample: Sample, name: str) -> str:
        path = os.path.normpath(os.path.join(self.root, self.annotation(sample)))
        return f"{shown(path)}, {name}"

    def files(self, sample: Sample) -> dict[str, str]:
        return FileSource.files(self, sample)

    def _begin(self, sample: Sample) -> str:
        return self.where(sample)

    def _elsewhere(self, sample: Sample) -> str:
        return self.annotation(sample)


def put_boxes(
    source: CocoBoxSource, part: Coco, samples: dict[int, Sample], classes: dict[int, int]
) -> None:
    """What a file says. samples: by the image's id; classes: of each category, or IGNORED."""
    for id, sample in samples.items():
        size = part.images[id].size
        if size is not None:
            source.sizes[sample.id] = size
        wrong, boxes = list(part.spoiled.get(id, ())), []
        for thing in part.objects[id]:
            label = classes[thing.category]
            if label == IGNORED:
                source.unused[part.categories[thing.category]] += 1
            elif thing.box is None:
                wrong.append(f"{thing.name} has no box (bbox) that can be used")
            else:
                boxes.append(_box(thing, label))
        source.put(sample, boxes, wrong)
        source.image_ids[sample.id] = id


def _box(thing: CocoObject, label: int) -> Box:
    assert thing.box is not None
    left, top, width, height = thing.box
    corners = (left, top, left + width, top + height)
    return Box(thing.name, label, corners, thing.crowd, thing.area)


def check_boxes_there(part: Coco) -> None:
    things = [thing for things in part.objects.values() for thing in things]
    if things and not any(thing.box for thing in things):
        raise DataError(
            f"{shown(part.path)}: none of its objects has a box (bbox), which it takes to detect: "
            "--task segment uses their outlines"
        )
