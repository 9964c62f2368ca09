"""What knows nothing of objects, and the faults of a detector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from vitreous.data.loader import Batch
from vitreous.data.objects.overlap import iou
from vitreous.labels import LabelMap
from vitreous.tasks.objects.boxes import clipped, cxcywh_to_xyxy, normalised
from vitreous.tasks.objects.losses import Target
from vitreous.tasks.objects.metrics import BoxPrediction
from vitreous.tasks.verdict import Baseline, Finding, Signs, never_predicted

MOST_OBJECTS = 2000
"""Of a class, that constant boxes are chosen for."""
MOST_CANDIDATES = 1000
MOST_BOXES = 100
"""Constant boxes, as many as COCO counts of an image."""
ENOUGH, COMPARED = 5, 200
"""Images whose boxes are compared: fewer say nothing, more are not needed."""
FIRST = 8
"""Boxes of an image that are compared, the most confident ones."""
SAME = 0.7
"""IoU from which two boxes are the same."""
REPEATED = 0.8
"""Share of pairs of images from which the most confident box of one is among the other's."""


class ConstantBoxes(Baseline):
    """The same boxes for every image: those that cover most objects of the training images.

    They are chosen one after the other from the objects' own boxes. Each counts for what it adds
    to COCO's ten thresholds of IoU, and has as its score how often it is right.
    """

    name = "the best constant boxes"

    def __init__(self) -> None:
        self.objects: list[Tensor] = []
        """(n, 5) of each image: class and normalised cxcywh"""
        self.images = 0
        self.chosen: Tensor | None = None

    def learn(self, batch: Batch, targets: Sequence[Target]) -> None:
        for target in targets:
            single = ~target.get("crowd", torch.zeros(len(target["labels"]))).bool()
            labels, boxes = target["labels"][single], target["boxes"][single]
            self.objects.append(torch.cat((labels[:, None].float(), boxes.float()), dim=1))
            self.images += 1

    def answer(self, batch: Batch) -> list[BoxPrediction]:
        if self.chosen is None:
            self.chosen = self._choose()
        labels, scores, boxes = self.chosen.split((1, 1, 4), dim=1)
        label, score, numbers = labels[:, 0].long(), scores[:, 0], torch.arange(len(boxes))
        return [
            BoxPrediction(clipped(boxes, size), label, score, numbers, size) for size in batch.sizes
        ]

    def _choose(self) -> Tensor:
        """(n, 6): class, score and normalised cxcywh, the highest score first."""
        rows = torch.cat([torch.zeros(0, 5), *self.objects])
        found = [torch.zeros(0, 6)]
        for label in rows[:, 0].unique().tolist():
            boxes = rows[rows[:, 0] == label, 1:]
            picked, share = evenly(boxes, MOST_OBJECTS), min(MOST_OBJECTS / len(boxes), 1.0)
            for box, right in covering_boxes(picked):
                score = min(right / share / max(self.images, 1), 1.0)
                found.append(torch.cat((torch.tensor([label, score]), box))[None])
        chosen = torch.cat(found)
        return chosen[chosen[:, 1].argsort(descending=True, stable=True)][:MOST_BOXES]


def covering_boxes(boxes: Tensor) -> list[tuple[Tensor, float]]:
    """Boxes (n, 4), normalised cxcywh -> some of them, each with how many of all it newly covers,
    in the mean over COCO's thresholds; greedily the one that covers most next."""
    candidates = evenly(boxes, MOST_CANDIDATES)
    overlap = iou(cxcywh_to_xyxy(candidates)[:, None], cxcywh_to_xyxy(boxes))
    # 0.1 at an IoU of 0.5, 1 at 0.95
    worth = ((overlap - 0.5) / 0.05 + 1 + 1e-4).floor().clamp(0, 10) / 10
    covered, found = torch.zeros(len(boxes)), []
    for _ in range(MOST_BOXES):
        gain = (worth - covered).clamp(min=0).sum(dim=1)
        best = int(gain.argmax())
        if gain[best] <= 0:
            break
        found.append((candidates[best], gain[best].item()))
        covered = torch.maximum(covered, worth[best])
    return found


def evenly(rows: Tensor, most: int) -> Tensor:
    """At most so many rows, evenly picked."""
    step = -(-len(rows) // most)
    return rows[:: max(step, 1)]


class DetectSigns(Signs):
    """Collapse: the most confident box of one image is among the first of every other one."""

    def __init__(self, labels: LabelMap, threshold: float) -> None:
        self.labels, self.threshold = labels, threshold
        self.answers: list[Tensor] = []
        """Normalised xyxy boxes of each image, the most confident first."""
        self.truth: list[Tensor] = []
        self.shown = torch.zeros(len(labels), dtype=torch.int64)
        """How many boxes of each class reach the threshold."""

    def see(self, output: Sequence[BoxPrediction], targets: Sequence[Target]) -> None:
        for answer, target in zip(output, targets, strict=True):
            labels = answer.labels[answer.scores >= self.threshold]
            self.shown += torch.bincount(labels, minlength=len(self.shown))
            if len(self.answers) < COMPARED and len(answer.boxes) and len(target["boxes"]):
                boxes = normalised(answer.boxes[:FIRST].float(), answer.size)
                self.answers.append(cxcywh_to_xyxy(boxes))
                self.truth.append(cxcywh_to_xyxy(target["boxes"].float()))

    def findings(self, result: Mapping[str, Any]) -> list[Finding]:
        answers, truth = repeated(self.answers), repeated(self.truth)
        if answers >= REPEATED and truth < answers / 2:
            seen = (
                "the detector answers the same for every image: it has learned where objects "
                "usually are, not what they look like"
            )
            return [Finding("bad", seen, "learn")]
        missing = {
            name: row["objects"]
            for (name, row), shown in zip(
                result["classes"].items(), self.shown.tolist(), strict=True
            )
            if not shown
        }
        return never_predicted(missing, "objects")


def repeated(images: Sequence[Tensor]) -> float:
    """The share of pairs of images in which the first box of one has the same place as one of the
    other's; boxes (n, 4), normalised xyxy."""
    if len(images) < ENOUGH:
        return 0.0
    first = torch.stack([boxes[0] for boxes in images])
    hits = torch.stack(
        [(iou(first[:, None], boxes) >= SAME).any(dim=1) for boxes in images], dim=1
    )  # (images, images)
    return ((hits.sum() - hits.diagonal().sum()) / (len(images) * (len(images) - 1))).item()
