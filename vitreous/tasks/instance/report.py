"""The part of the training report that is about objects with masks."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from vitreous.data.instance_masks import InstanceMasks
from vitreous.tasks.instance.metrics import mask_overlaps
from vitreous.tasks.instance.truth import InstancesTruth
from vitreous.tasks.objects.draw import Masks
from vitreous.tasks.objects.judge import Judged, judge_overlaps
from vitreous.tasks.objects.report import NOTE, ObjectReport


class InstanceReport(ObjectReport):
    """Objects are found by their masks."""

    curves = {"ap": "mask AP", "ap50": "mask AP50", "box_ap": "box AP"}  # noqa: RUF012
    note = f"By masks, but for box AP. {NOTE}"

    def judged(self, shown: Any, target: Any, true: Tensor, crowd: Tensor) -> Judged:
        return judge_overlaps(mask_overlaps(shown, target, shown.runs()), crowd)

    def masks(self, shown: Any, target: Any, size: tuple[int, int]) -> tuple[Masks, Masks]:
        found = InstanceMasks(tuple(runs["counts"] for runs in shown.runs()), shown.size)
        real, drawn = (
            InstancesTruth().resize({"masks": masks, "boxes": boxes}, shown.size, size)["masks"]
            for masks, boxes in ((target["masks"], target["boxes"]), (found, shown.boxes))
        )
        return list(real.dense().numpy()), list(drawn.dense().numpy())
