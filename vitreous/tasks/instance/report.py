"""The part of the training report that is about objects with masks."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from vitreous.results import enlarged_mask
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
        stored = {"masks": target["masks"], "boxes": target["boxes"]}
        true = InstancesTruth().resize(stored, shown.size, size)["masks"].dense()
        return list(true.numpy()), [enlarged_mask(each.numpy(), size) for each in shown.logits]
