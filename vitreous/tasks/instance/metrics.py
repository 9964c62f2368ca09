"""COCO's average precision and recall of masks, and of boxes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vitreous.data.instance_masks import overlaps
from vitreous.mask_parts import MaskPart, MaskParts, Runs, area, encoded
from vitreous.tasks.objects.boxes import nms
from vitreous.tasks.objects.metrics import (
    COLUMNS,
    NUMBERS,
    OVERLAPPING,
    BoxPrediction,
    BoxRows,
    DetectMetrics,
    measured,
    resampled_precisions,
)


class InstancePrediction(NamedTuple):
    """Of one image: as `BoxPrediction`, with masks."""

    boxes: Tensor
    """(queries, 4): left, top, right, bottom in pixels of the image as it is stored"""
    labels: Tensor
    scores: Tensor
    queries: Tensor
    """(queries,) each, the most confident first"""
    size: tuple[int, int]
    """height and width of the image as it is stored"""
    masks: Sequence[MaskParts]
    """of each query, in half precision, as the model gives them"""

    @classmethod
    def of(cls, found: BoxPrediction, logits: Tensor) -> InstancePrediction:
        """logits (queries, h', w') of masks in all of the image"""
        boxes, labels, scores, queries, size = found
        masks = [(MaskPart.whole(each, size),) for each in logits.half().cpu().numpy()]
        return cls(boxes, labels, scores, queries, size, masks)

    def suppressed(self, most: float) -> InstancePrediction:
        """Without what has a box whose IoU with a more confident one of its class is larger."""
        return self.take(nms(self.boxes, self.labels, most))

    def take(self, which: Tensor) -> InstancePrediction:
        """Some of them, (queries,) of bool."""
        boxes, labels, scores, queries = (column[which] for column in self[:4])
        masks = [self.masks[i] for i in which.nonzero().flatten().tolist()]
        return InstancePrediction(boxes, labels, scores, queries, self.size, masks)

    def runs(self) -> list[Runs]:
        """The masks in the image as it is stored, made one by one."""
        return [encoded(parts, self.size) for parts in self.masks]


def mask_overlaps(answer: Any, target: Any, runs: Sequence[Runs]) -> Tensor:
    """(n, m): of masks `runs` with the objects of a target, 0 where classes differ; see
    `judge_overlaps`."""
    found = overlaps(runs, target["masks"].encoded(), target["crowd"].tolist())
    return found.masked_fill(answer.labels[:, None] != target["labels"], 0.0)


class InstanceMetrics(DetectMetrics):
    """The numbers of masks have COCO's names, those of boxes begin with box_.

    Masks are not kept, but how they overlap: a row of the table for each pair of one class that
    does, with image, number of the answer, number of the object, and their IoU.
    """

    def update(self, output: Sequence[Any], targets: Any) -> None:
        for answer, target in zip(output, targets, strict=True):
            self.add_masks(answer, target, answer.runs())

    def add_masks(self, answer: Any, target: Any, runs: Sequence[Runs]) -> None:
        """Of one image, with the masks of the answers."""
        pairs = mask_overlaps(answer, target, runs)
        places = pairs.nonzero()
        rows = torch.zeros(len(places), len(COLUMNS), dtype=torch.float64)
        rows[:, 0], rows[:, 1] = OVERLAPPING, self.images
        rows[:, 2:4] = places
        rows[:, 4] = pairs[places[:, 0], places[:, 1]]
        self.rows.append(rows)
        areas = torch.tensor([area(each) for each in runs], dtype=torch.float64)
        self.add(answer, target, areas)

    def compute(self, counts: Tensor | None = None) -> dict[str, Any]:
        counts = self.counts() if counts is None else counts
        masks, boxes = (
            measured(self.names, self.threshold, BoxRows.of(counts, by_boxes=by_boxes))
            for by_boxes in (False, True)
        )
        for name, row in masks["classes"].items():
            row["box_ap"] = boxes["classes"][name]["ap"]
        return masks | {f"box_{name}": boxes[name] for name in NUMBERS}

    def resampled(self) -> Iterator[dict[str, Tensor]]:
        counts = self.counts()
        for masks, boxes in zip(
            *(
                resampled_precisions(len(self.names), BoxRows.of(counts, by_boxes=by_boxes))
                for by_boxes in (False, True)
            ),
            strict=True,
        ):
            yield masks | {f"box_{name}": values for name, values in boxes.items()}
