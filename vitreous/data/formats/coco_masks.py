"""COCO's JSON of objects with outlines, drawn as masks.

Where objects overlap, the smaller lies on the larger: a cup on a table is a cup. Crowds, in which
COCO did not tell objects apart, are ignored. Pixels of no object are the class `background`, unless
the names file says `{"background": null}`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from vitreous.data.decode.images import seen_size, shown
from vitreous.data.decode.masks import unclear_turn
from vitreous.data.formats.box_records import together
from vitreous.data.formats.coco_json import Coco, CocoObject, draw
from vitreous.data.formats.files import FileSource
from vitreous.data.source import IGNORED, Sample
from vitreous.errors import DataError

BACKGROUND = "background"


@dataclass
class CocoMaskSource(FileSource):
    """A sample's target is its file and number there: `annotations/instances_val.json#17`."""

    objects: dict[str, list[CocoObject]] = field(default_factory=dict, kw_only=True, repr=False)
    """By target, what is in the image."""
    classes: dict[str, dict[int, int]] = field(default_factory=dict, kw_only=True)
    """By the file, the class or IGNORED of each category."""
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict, kw_only=True, repr=False)
    """By target, the height and width that the JSON says."""
    spoiled: dict[str, str] = field(default_factory=dict, kw_only=True)
    """By target, why it is not known what the image shows."""
    ground: int = field(default=IGNORED, kw_only=True)
    """The class of pixels that belong to no object."""

    def truth(self, sample: Sample) -> Tensor:
        try:
            return self._mask(sample)
        except DataError as error:
            if str(error).startswith(f"{self.where(sample)}: "):
                raise
            raise DataError(f"{self.where(sample)}: {error}") from None

    def _mask(self, sample: Sample) -> Tensor:
        if sample.target in self.spoiled:
            raise DataError(self.spoiled[sample.target])
        file = self.file(sample)
        height, width, turned = seen_size(file, max_pixels=self.max_pixels)
        part = str(sample.target).rpartition("#")[0]
        said = self.sizes.get(sample.target, (height, width))
        if said != (height, width):
            turn = f" (its EXIF turns it, orientation {turned})" if turned != 1 else ""
            raise DataError(
                f"is {height}x{width} (height x width){turn}, but {part} says {said[0]}x{said[1]}"
            )
        if unclear := unclear_turn(turned, height, width):
            raise DataError(unclear)
        drawn = [(draw(thing, height, width), thing) for thing in self.objects[sample.target]]
        drawn.sort(key=lambda pair: -int(pair[0].sum()))
        mask = np.full((height, width), self.ground, np.int16)
        for where, thing in drawn:
            mask[where] = IGNORED if thing.crowd else self.classes[part][thing.category]
        return torch.from_numpy(mask)


def put_outlines(
    source: CocoMaskSource, part: Coco, samples: dict[int, Sample], classes: dict[int, int]
) -> None:
    """What a file says. samples: by the image's id; classes: of each category, or IGNORED."""
    for id, sample in samples.items():
        source.classes[sample.target.rpartition("#")[0]] = classes
        source.objects[sample.target] = part.objects[id]
        size, faults = part.images[id].size, part.spoiled.get(id)
        if size is not None:
            source.sizes[sample.target] = size
        if faults:
            source.spoiled[sample.target] = together(faults)


def check_outlines_there(part: Coco) -> None:
    if not any(thing.outline for things in part.objects.values() for thing in things):
        raise DataError(
            f"{shown(part.path)}: none of its objects has an outline (segmentation), which it "
            "takes to segment"
        )


def mask_notes(source: CocoMaskSource, parts: dict[str, Coco], background: str | int) -> list[str]:
    """background: what the data calls it."""
    if source.ground == IGNORED:
        notes = ["pixels of no object are ignored"]
    else:
        name = source.labels.names[source.ground]
        null = f'{{"{background}": null}}'
        notes = [f"pixels of no object are the class {name!r}; {null} in a names file ignores them"]
    notes.append("where objects overlap, the smaller lies on the larger; crowds are ignored")
    for split, part in parts.items():
        empty = sum(not things for things in part.objects.values())
        if empty:
            notes.append(f"{split}: {empty} images have no objects")
    return notes
