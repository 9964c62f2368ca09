"""Instance segmentation: a box, a class and a mask for each object (RF-DETR)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from vitreous.data.check.boxes import BoxCheck
from vitreous.data.source import Source
from vitreous.errors import ConfigError
from vitreous.models.model import Model
from vitreous.results import InstanceSegmentation
from vitreous.tasks.instance.losses import instance_loss
from vitreous.tasks.instance.merge import merge_masks
from vitreous.tasks.instance.metrics import InstanceMetrics, InstancePrediction
from vitreous.tasks.instance.results_file import measure_results
from vitreous.tasks.instance.truth import InstancesTruth
from vitreous.tasks.instance.verdict import ConstantEllipses
from vitreous.tasks.metric import Metric
from vitreous.tasks.objects.defaults import ObjectDefaults
from vitreous.tasks.objects.object_task import ObjectTask, learnt
from vitreous.tasks.task import Log
from vitreous.tasks.tiles import Tile
from vitreous.tasks.verdict import Baseline


class InstanceDefaults(ObjectDefaults):
    example = "one like 'rf-detr-seg-n', or 'rf-detr' with --set masks=true --set backbone=…"
    scratch_model = "rf-detr-seg-mini"
    scratch_fields = ("mask_pixels=2",)
    fine_tuning_gain = (
        "they know photographs, and from random weights only generated shapes were tried "
        "(docs/instances.md)"
    )


class SegmentInstances(ObjectTask):
    """Matching by class, box and mask, then a loss for each of them.

    A target also has "masks": (n, h, w) of bool for the loss, `InstanceMasks` for the metrics.
    """

    name = "instance"
    purpose = "a box, a class and a mask for each object"
    metric = Metric("ap", "mask AP")
    other_metrics = tuple(map(Metric, ("ap50", "ap75", "box_ap", "box_ap50", "box_ap75")))
    watched = ("box_ap",)
    truth = InstancesTruth()
    families = ("rf-detr", "lw-detr")
    required: ClassVar = {"masks": True}
    checker = BoxCheck
    defaults = InstanceDefaults()

    @classmethod
    def check_model(cls, source: Source, model: Model, log: Log) -> None:
        if not model.config.masks:
            raise ConfigError(
                f"the model {model.name!r} finds boxes without masks: give --set masks=true, or "
                "choose one like 'rf-detr-seg-n'"
            )
        super().check_model(source, model, log)

    def loss(
        self,
        output: Any,
        targets: Any,
        teacher: Tensor | None = None,
        count: float | None = None,
    ) -> dict[str, Tensor]:
        """output `RFDETROutput` with masks, targets a list of b; the terms by name. `count` as for
        boxes."""
        targets = [learnt(target, ("labels", "boxes", "masks")) for target in targets]
        return instance_loss(output, targets, count)

    def predictions(self, output: Any, sizes: Sequence[tuple[int, int]]) -> list[Any]:
        masks = output.masks[-1]
        return [
            InstancePrediction.of(each, masks[i][each.queries.to(masks.device)])
            for i, each in enumerate(super().predictions(output, sizes))
        ]

    def merge(
        self, outputs: Iterable[InstancePrediction], tiles: Sequence[Tile]
    ) -> InstancePrediction:
        return merge_masks(outputs, tiles, self.same_object)

    def measure_results(self, path: Path, source: Source, split: str) -> dict[str, Any]:
        return measure_results(path, source, split)

    def metrics(self) -> InstanceMetrics:
        return InstanceMetrics(self.labels, self.threshold)

    def baselines(self) -> list[Baseline]:
        return [ConstantEllipses()]

    def decode(
        self, output: list[InstancePrediction], images: list[str]
    ) -> list[InstanceSegmentation]:
        return [
            InstanceSegmentation(
                answer.boxes.numpy(),
                answer.labels.numpy(),
                answer.scores.numpy(),
                answer.queries.numpy(),
                self.labels.names,
                self.labels.numbers,
                answer.size,
                self.threshold,
                image,
                masks=tuple(answer.masks),
            )
            for answer, image in zip(output, images, strict=True)
        ]


TASK = SegmentInstances
