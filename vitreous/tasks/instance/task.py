"""Instance segmentation: a box, a class and a mask for each object (RF-DETR)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from vitreous.data.instance_masks import overlaps
from vitreous.data.loader import Batch
from vitreous.data.source import Source
from vitreous.errors import ConfigError
from vitreous.mask_parts import Runs
from vitreous.models.model import Model
from vitreous.tasks.instance.losses import instance_loss
from vitreous.tasks.instance.merge import merge_masks
from vitreous.tasks.instance.truth import InstancesTruth
from vitreous.tasks.metric import Metric
from vitreous.tasks.objects.boxes import normalised
from vitreous.tasks.objects.defaults import ObjectDefaults
from vitreous.tasks.objects.metrics import (
    COLUMNS,
    NUMBERS,
    OVERLAPPING,
    BoxPrediction,
    BoxRows,
    DetectMetrics,
    image_f1,
    measured,
    resampled_precisions,
)
from vitreous.tasks.objects.object_task import ObjectTask, learnt
from vitreous.tasks.objects.verdict import ConstantBoxes
from vitreous.tasks.task import Log, Sizes
from vitreous.tasks.tiles import Tile
from vitreous.tasks.verdict import Baseline

SIDE = 64
"""Height and width of the maps on which ellipses are drawn."""


class InstanceDefaults(ObjectDefaults):
    example = "one like 'rf-detr-seg-n', or 'rf-detr' with --set masks=true --set backbone=…"
    scratch_model = "rf-detr-seg-mini"
    scratch_fields = ("mask_pixels=2",)
    fine_tuning_gain = (
        "they know photographs, and from random weights only generated shapes were tried "
        "(docs/instances.md)"
    )


class ConstantEllipses(ConstantBoxes):
    """The same boxes for every image, filled with ellipses."""

    name = "the best constant ellipses"

    def answer(self, batch: Batch) -> list[BoxPrediction]:
        return [
            each.with_masks(ellipses(normalised(each.boxes, each.size)))
            for each in super().answer(batch)
        ]


def ellipses(boxes: Tensor) -> Tensor:
    """(n, 4), normalised cxcywh -> (n, SIDE, SIDE) in half precision, above 0 inside."""
    places = (torch.arange(SIDE) + 0.5) / SIDE
    x, y, width, height = (each[:, None, None] for each in boxes.clamp(min=1e-3).unbind(1))
    across, down = 2 * (places - x) / width, 2 * (places[:, None] - y) / height
    return (1 - across**2 - down**2).clamp(-100, 100).half()


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
    has_masks = True
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
        self, output: Any, targets: Any, teacher: Tensor | None = None, count: float | None = None
    ) -> dict[str, Tensor]:
        """output `RFDETROutput` with masks, targets a list of b; the terms by name. `count` as for
        boxes."""
        targets = [learnt(target, ("labels", "boxes", "masks")) for target in targets]
        return self.learned(instance_loss(output, targets, count))

    def predictions(self, output: Any, sizes: Sizes) -> list[BoxPrediction]:
        masks = output.masks[-1]
        return [
            each.with_masks(masks[i][each.queries.to(masks.device)])
            for i, each in enumerate(super().predictions(output, sizes))
        ]

    def merge(self, outputs: Iterable[BoxPrediction], tiles: Sequence[Tile]) -> BoxPrediction:
        return merge_masks(outputs, tiles, self.same_object)

    def metrics(self) -> InstanceMetrics:
        return InstanceMetrics(self.labels, self.threshold)

    def baselines(self) -> list[Baseline]:
        return [ConstantEllipses()]


def mask_overlaps(answer: BoxPrediction, target: Any, runs: Sequence[Runs]) -> Tensor:
    """(n, m): of masks `runs` with the objects of a target, 0 where classes differ; see
    `judge_overlaps`."""
    found = overlaps(runs, target["masks"].encoded(), target["crowd"].tolist())
    return found.masked_fill(answer.labels[:, None] != target["labels"], 0.0)


class InstanceMetrics(DetectMetrics):
    """The numbers of masks have COCO's names, those of boxes begin with box_.

    Masks are not kept, but how they overlap: a row of the table for each pair of one class that
    does, with image, number of the answer, number of the object, and their IoU.
    """

    def add(self, answer: BoxPrediction, target: Any, runs: Sequence[Runs] | None = None) -> None:
        runs = answer.runs() if runs is None else runs
        pairs = mask_overlaps(answer, target, runs)
        places = pairs.nonzero()
        rows = torch.zeros(len(places), len(COLUMNS), dtype=torch.float64)
        rows[:, 0], rows[:, 1] = OVERLAPPING, self.images
        rows[:, 2:4] = places
        rows[:, 4] = pairs[places[:, 0], places[:, 1]]
        self.rows.append(rows)
        super().add(answer, target, runs)

    def compute(self, counts: Tensor | None = None) -> dict[str, Any]:
        masks, boxes = (
            measured(self.names, self.threshold, rows) for rows in self._rows_of(counts)
        )
        for name, row in masks["classes"].items():
            row["box_ap"] = boxes["classes"][name]["ap"]
        return masks | {f"box_{name}": boxes[name] for name in NUMBERS}

    def resampled(self) -> Iterator[dict[str, Tensor]]:
        both = (resampled_precisions(len(self.names), rows) for rows in self._rows_of(None))
        for masks, boxes in zip(*both, strict=True):
            yield masks | {f"box_{name}": values for name, values in boxes.items()}

    def each(self) -> Tensor:
        return image_f1(self._rows_of(None)[0], self.threshold)

    def _rows_of(self, counts: Tensor | None) -> tuple[BoxRows, BoxRows]:
        """By masks, by boxes."""
        counts = self.counts() if counts is None else counts
        return BoxRows.of(counts, by_boxes=False), BoxRows.of(counts)


TASK = SegmentInstances
