"""Detection: a box and a class for each object (DETR, sections 3.1 and 4)."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from vitreous.models.rf_detr import RFDETROutput
from vitreous.tasks.metric import Metric
from vitreous.tasks.objects.boxes import BoxesTruth
from vitreous.tasks.objects.defaults import ObjectDefaults
from vitreous.tasks.objects.losses import quality_loss, set_loss
from vitreous.tasks.objects.object_task import ObjectTask, learnt


class DetectDefaults(ObjectDefaults):
    example = "one like 'rf-detr-n', or 'rf-detr' with --set backbone=…"
    scratch_model = "rf-detr-mini"
    fine_tuning_gain = (
        "from a classifier's, 205 images of blood cells were enough for an AP50 of 0.8 "
        "(docs/detection.md)"
    )


class Detect(ObjectTask):
    """Matching, then a loss for the classes, L1 and GIoU for the boxes of what matches."""

    name = "detect"
    purpose = "a box and a class for each object"
    metric = Metric("ap", "AP")
    other_metrics = (Metric("ap50"), Metric("ap75"))
    truth = BoxesTruth()
    families = ("rf-detr", "lw-detr", "detr")
    defaults = DetectDefaults()

    def loss(
        self, output: Any, targets: Any, teacher: Tensor | None = None, count: float | None = None
    ) -> dict[str, Tensor]:
        """output `DETROutput` or `RFDETROutput`, targets a list of b; the terms by name.

        `count` is the mean number of objects per process and part of the batch; with it, the loss
        does not depend on how samples are divided. Without it, the objects given are all there are.
        """
        targets = [learnt(target) for target in targets]
        if isinstance(output, RFDETROutput):
            return self.learned(quality_loss(output, targets, count))
        return self.learned(set_loss(output, targets, count))


TASK = Detect
