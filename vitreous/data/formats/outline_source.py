"""The source of masks that are drawn from the outlines of objects: COCO's and YOLO's.

The smaller object lies on the larger where objects overlap: a cup on a table is a cup.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from vitreous.data.formats.box_source import AnnotatedSource
from vitreous.data.formats.coco_json import draw, in_pixels
from vitreous.data.source import IGNORED, Sample

BACKGROUND = "background"
"""The class of pixels that belong to no object."""


@dataclass
class OutlineSource(AnnotatedSource):
    background: int = field(default=IGNORED, kw_only=True)
    """The class of pixels that belong to no object."""
    normalised: bool = field(default=False, kw_only=True)
    """Outlines are in 0..1 of the image's width and height, not in pixels."""

    def truth(self, sample: Sample) -> Tensor:
        size = self.size(sample)
        with self.naming(sample):
            things = self.annotations[sample.id].instances
            drawn = [
                (draw(in_pixels(thing, *size, self.normalised), *size), thing) for thing in things
            ]
        drawn.sort(key=lambda each: -int(each[0].sum()))
        mask = np.full(size, self.background, np.int16)
        for where, thing in drawn:
            mask[where] = IGNORED if thing.crowd else self.classes[thing.category]
        return torch.from_numpy(mask)

    def add_notes(self) -> OutlineSource:
        if self.background == IGNORED:
            self.notes.append("pixels of no object are ignored")
        else:
            name, id = (of[self.background] for of in (self.labels.names, self.labels.external))
            what = f'are the class {name!r}; {{"{id}": null}} in a names file ignores them'
            self.notes.append(f"pixels of no object {what}")
        self.notes.append("smaller objects lie on larger ones in masks; crowds are ignored")
        self.note_empty()
        return self
