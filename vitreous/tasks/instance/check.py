"""The data check of objects with masks."""

from __future__ import annotations

from dataclasses import replace

from vitreous.data.formats.instance_source import InstanceSource
from vitreous.data.source import Sample, Source
from vitreous.tasks.objects.check import BoxCheck, InspectedBoxes


class InstanceCheck(BoxCheck):
    """What is checked of boxes, and whether masks have pixels and are where their boxes are."""

    def inspect(self, source: Source, sample: Sample) -> InspectedBoxes:
        found = super().inspect(source, sample)
        if not isinstance(source, InstanceSource):
            return found
        source.truth(sample)  # whose masks can be drawn
        odd = source.odd_masks(sample, source.placed(sample))
        return replace(found, remarks=(*found.remarks, *odd))
