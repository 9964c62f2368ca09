"""COCO's average precision and recall."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vitreous.labels import LabelMap
from vitreous.tasks.detect.boxes import to_pixels
from vitreous.tasks.task import Metrics

NUMBERS = (
    "ap",
    "ap50",
    "ap75",
    "ap_small",
    "ap_medium",
    "ap_large",
    "ar1",
    "ar10",
    "ar100",
    "ar_small",
    "ar_medium",
    "ar_large",
)
"""The twelve of COCO, in its order."""


class BoxPrediction(NamedTuple):
    """Of one image: every query with its most likely class, the most confident first."""

    boxes: Tensor
    """(queries, 4): left, top, right, bottom in pixels of the image as it is stored"""
    labels: Tensor
    """(queries,): classes, "no object" not among them"""
    scores: Tensor
    """(queries,): their probabilities"""
    queries: Tensor
    """(queries,): which query each one is"""
    size: tuple[int, int]
    """height and width of the image as it is stored"""


IMAGE, OBJECT, FOUND = range(3)
COLUMNS = ("kind", "image", "class", "score", "left", "top", "width", "height", "area")


class DetectMetrics(Metrics):
    """COCO's average precision and recall, of every query, whatever its score.

    They need all objects and answers at once. Both are kept as rows of one table: what an image
    has, what a model has found in it, and the image itself, which may have neither.
    """

    def __init__(self, labels: LabelMap) -> None:
        self.names = labels.names
        self.rows: list[Tensor] = []
        self.images = 0

    def update(self, output: list[BoxPrediction], targets: Any) -> None:
        for answer, target in zip(output, targets, strict=True):
            boxes = to_pixels(target["boxes"].double().cpu(), answer.size)
            crowd = target.get("crowd", torch.zeros(len(boxes)))
            self._add(IMAGE, torch.zeros(1, 4), torch.zeros(1), torch.zeros(1))
            self._add(OBJECT, boxes, target["labels"], crowd, target.get("area"))
            self._add(FOUND, answer.boxes, answer.labels, answer.scores)
            self.images += 1

    def _add(
        self, kind: int, boxes: Tensor, labels: Tensor, scores: Tensor, area: Tensor | None = None
    ) -> None:
        """`boxes` left, top, right, bottom; `scores` are an object's crowd."""
        boxes = boxes.double().cpu()
        sides = boxes[:, 2:] - boxes[:, :2]
        place = torch.tensor([kind, self.images]).double().expand(len(boxes), 2)
        columns = (labels, scores, sides.prod(dim=1) if area is None else area)
        label, score, area = (column.double().cpu()[:, None] for column in columns)
        self.rows.append(torch.cat((place, label, score, boxes[:, :2], sides, area), dim=1))

    def counts(self) -> Tensor:
        """(rows, 9), by `COLUMNS`."""
        empty = torch.zeros(0, len(COLUMNS), dtype=torch.float64)
        return torch.cat([empty, *self.rows])

    def merge(self, parts: Sequence[Tensor]) -> Tensor:
        """Tables one below the other; images count on."""
        merged, images = [], 0
        for part in parts:
            part = part.clone()
            part[:, 1] += images
            images += int((part[:, 0] == IMAGE).sum())
            merged.append(part)
        return torch.cat(merged)

    def compute(self, counts: Tensor | None = None) -> dict[str, Any]:
        counts = self.counts() if counts is None else counts
        images, objects, found = (counts[counts[:, 0] == kind] for kind in range(3))
        stats, precision, recall, steps = coco_numbers(len(self.names), images, objects, found)
        numbers = {name: _known(value) for name, value in zip(NUMBERS, stats, strict=True)}
        single = objects[objects[:, 3] == 0]  # no crowd
        per_class = torch.bincount(single[:, 2].long(), minlength=len(self.names)).tolist()
        return {
            **numbers,
            "ap": numbers["ap"] or 0.0,
            "samples": len(images),
            "objects": len(single),
            "classes": {
                name: {
                    "ap": _known(precision[:, :, i].mean()),
                    "ap50": _known(precision[0, :, i].mean()),
                    "ap75": _known(precision[5, :, i].mean()),
                    "ar100": _known(recall[:, i].mean()),
                    "objects": per_class[i],
                }
                for i, name in enumerate(self.names)
            },
            "curves": {
                "recall": steps.tolist(),
                "precision": {
                    name: None if precision[0, 0, i] < 0 else precision[0, :, i].tolist()
                    for i, name in enumerate(self.names)
                },
            },
        }


def _known(value: float) -> float | None:
    """A number of COCO's; -1 means that there was nothing to find."""
    return None if value < 0 else float(value)


def coco_numbers(
    classes: int, images: Tensor, objects: Tensor, found: Tensor
) -> tuple[Any, Any, Any, Any]:
    """The twelve numbers; precision (thresholds of IoU, steps of recall, classes) and recall
    (thresholds, classes) for all sizes and up to a hundred answers; and the steps of recall."""
    from faster_coco_eval import COCO, COCOeval_faster  # type: ignore[import-untyped,unused-ignore]

    truth = [
        {
            "id": number,
            "image_id": int(image),
            "category_id": int(label),
            "bbox": box,
            "area": area,
            "iscrowd": int(crowd),
        }
        for number, (_, image, label, crowd, *box, area) in enumerate(objects.tolist(), start=1)
    ]
    answers = [
        {"image_id": int(image), "category_id": int(label), "bbox": box, "score": score}
        for _, image, label, score, *box, _ in found.tolist()
    ]
    everything = COCO(
        {
            "images": [{"id": int(image)} for image in images[:, 1].tolist()],
            "categories": [{"id": number} for number in range(classes)],
            "annotations": truth,
        }
    )
    measured = COCOeval_faster(everything, everything.loadRes(answers), "bbox")
    measured.run()
    precision, recall = measured.eval["precision"], measured.eval["recall"]
    return (
        measured.stats[: len(NUMBERS)],
        precision[..., 0, -1],
        recall[..., 0, -1],
        measured.params.recThrs,
    )
