"""Which boxes are right and which objects are found; COCO's average precision and recall."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from vitreous.data.objects.overlap import SMALLEST, area, intersection, iou
from vitreous.labels import LabelMap
from vitreous.mask_parts import MaskPart, MaskParts, Runs, encoded
from vitreous.mask_parts import area as runs_area
from vitreous.tasks.bootstrap import draws
from vitreous.tasks.metric import USUAL, best_threshold
from vitreous.tasks.objects.boxes import nms, to_pixels
from vitreous.tasks.task import TaskMetrics

NUMBERS = (
    *("ap", "ap50", "ap75", "ap_small", "ap_medium", "ap_large"),
    *("ar1", "ar10", "ar100", "ar_small", "ar_medium", "ar_large"),
)
"""The twelve of COCO, in its order."""
MOST_DRAWS, MOST_DRAWN = 200, 2_000_000
"""Draws for intervals, and boxes in all of them."""
OVERLAP = 0.5
"""IoU of two boxes from which one counts as the other."""


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
    masks: Sequence[MaskParts] | None = None
    """of each query, in half precision, where the model gives them"""

    def with_masks(self, logits: Tensor) -> BoxPrediction:
        """logits (queries, h', w') of masks in all of the image"""
        masks = [(MaskPart.whole(each, self.size),) for each in logits.half().cpu().numpy()]
        return self._replace(masks=masks)

    def runs(self) -> list[Runs]:
        """The masks in the image as it is stored, made one by one."""
        return [encoded(parts, self.size) for parts in self.masks or ()]

    def suppressed(self, most: float) -> BoxPrediction:
        """Without boxes whose IoU with a more confident one of their class is larger than this."""
        return self.take(nms(self.boxes, self.labels, most))

    def take(self, which: Tensor) -> BoxPrediction:
        """Some of them, (queries,) of bool."""
        boxes, labels, scores, queries = (column[which] for column in self[:4])
        chosen = which.nonzero().flatten().tolist()
        masks = None if self.masks is None else [self.masks[i] for i in chosen]
        return BoxPrediction(boxes, labels, scores, queries, self.size, masks)


class Judged(NamedTuple):
    """Which objects of an image are found, and which of the predicted boxes are right."""

    found: Tensor
    """(objects,)"""
    right: Tensor
    """(boxes,)"""
    counted: Tensor
    """(boxes,): not those inside a crowd, which may be right or wrong"""
    objects: int
    """Without crowds."""

    @property
    def missed(self) -> int:
        return self.objects - int(self.found.sum())

    @property
    def false(self) -> int:
        return int((self.counted & ~self.right).sum())

    @property
    def f1(self) -> float | None:
        """From 0 to 1; None if there are no objects and no predictions."""
        right = int(self.right.sum())
        all_ = 2 * right + self.missed + self.false
        return 2 * right / all_ if all_ else None


def judge(boxes: Tensor, labels: Tensor, truth: Tensor, classes: Tensor, crowd: Tensor) -> Judged:
    """boxes (n, 4) with classes `labels` (n,), the most confident first, against truth (m, 4) with
    `classes` (m,), of which `crowd` (m,) are; left, top, right, bottom.

    Each object is found by the most confident box of its class that covers it, and by no other.
    """
    alike = labels[:, None] == classes
    common, own = intersection(boxes[:, None], truth), area(boxes)[:, None].clamp(min=SMALLEST)
    overlap = torch.where(crowd, common / own, iou(boxes[:, None], truth))
    return judge_overlaps(overlap.masked_fill(~alike, 0.0), crowd)


def judge_overlaps(overlap: Tensor, crowd: Tensor) -> Judged:
    """overlap (n, m): of what is predicted, the most confident first, with objects of its class the
    IoU, and with crowds (m,) the part that is inside of them; 0 where classes differ."""
    covers, inside = overlap.masked_fill(crowd, 0.0), overlap.masked_fill(~crowd, 0.0)
    found = torch.zeros(len(crowd), dtype=torch.bool)
    right = torch.zeros(len(overlap), dtype=torch.bool)
    for number in (covers >= OVERLAP).any(dim=1).nonzero().flatten().tolist():
        row = covers[number].masked_fill(found, 0.0)
        if row.max() >= OVERLAP:
            found[row.argmax()] = right[number] = True
    counted = right | ~(inside >= OVERLAP).any(dim=1)
    return Judged(found, right, counted, int((~crowd).sum()))


IMAGE, OBJECT, FOUND, OVERLAPPING = range(4)
COLUMNS = ("kind", "image", "class", "score", "left", "top", "width", "height", "area")


class DetectMetrics(TaskMetrics):
    """COCO's average precision and recall, of every query, whatever its score.

    They need all objects and answers at once. Both are kept as rows of one table: what an image
    has, what a model has found in it, and the image itself, which may have neither.
    """

    def __init__(self, labels: LabelMap, threshold: float = USUAL) -> None:
        self.names, self.threshold = labels.names, threshold
        self.rows: list[Tensor] = []
        self.images = 0

    def update(self, output: Sequence[BoxPrediction], targets: Any) -> None:
        for answer, target in zip(output, targets, strict=True):
            self.add(answer, target)

    def add(self, answer: BoxPrediction, target: Any, runs: Sequence[Runs] | None = None) -> None:
        """Of one image; `runs`: the masks of the answers, whose areas count in place of boxes'."""
        areas = None if runs is None else torch.tensor([runs_area(each) for each in runs]).double()
        boxes = to_pixels(target["boxes"].double().cpu(), answer.size)
        crowd = target.get("crowd", torch.zeros(len(boxes)))
        self._add(IMAGE, torch.zeros(1, 4), torch.zeros(1), torch.zeros(1))
        self._add(OBJECT, boxes, target["labels"], crowd, target.get("area"))
        self._add(FOUND, answer.boxes, answer.labels, answer.scores, areas)
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
        return measured(self.names, self.threshold, BoxRows.of(counts))

    def resampled(self) -> Iterator[dict[str, Tensor]]:
        return resampled_precisions(len(self.names), BoxRows.of(self.counts()))

    def each(self) -> Tensor:
        return image_f1(BoxRows.of(self.counts()), self.threshold)


class BoxRows(NamedTuple):
    """The rows of a table, by their kind. The images of all of them follow each other."""

    images: Tensor
    objects: Tensor
    found: Tensor
    overlaps: Tensor | None = None
    """Rows of image, number of an answer and of an object in it, and how much they overlap, where
    that is not by their boxes: for crowds the part of the answer that is inside."""

    @classmethod
    def of(cls, counts: Tensor, *, by_boxes: bool = True) -> BoxRows:
        images, objects, found = (counts[counts[:, 0] == kind] for kind in range(OVERLAPPING))
        pairs = counts[counts[:, 0] == OVERLAPPING, 1:5]
        return cls(images, objects, found, None if by_boxes else pairs)

    def by_image(self) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        """Of each image the objects, the answers, and how they overlap (answers, objects)."""
        count = len(self.images)
        pairs = None if self.overlaps is None else _by_image(self.overlaps, count, 0)
        both = zip(_by_image(self.objects, count), _by_image(self.found, count), strict=True)
        for number, (objects, found) in enumerate(both):
            matrix = None
            if pairs is not None:
                matrix = found.new_zeros(len(found), len(objects))
                _, answer, object_, overlap = pairs[number].unbind(1)
                matrix[answer.long(), object_.long()] = overlap
            yield objects, found, matrix


def measured(names: Sequence[str], threshold: float, rows: BoxRows) -> dict[str, Any]:
    """Every number, by name."""
    evaluated = _evaluator(len(names), rows)
    evaluated.run()
    # (thresholds of IoU, steps of recall, classes) and (thresholds, classes), for all sizes and up
    # to a hundred answers
    precision, recall = (evaluated.eval[each][..., 0, -1] for each in ("precision", "recall"))
    stats = zip(NUMBERS, evaluated.stats[: len(NUMBERS)], strict=True)
    numbers = {name: _known(value) for name, value in stats}
    single = rows.objects[rows.objects[:, 3] == 0]  # no crowd
    boxes = judged_boxes(rows)
    best = best_threshold(boxes.scores, boxes.right, len(single))
    per_class = torch.bincount(single[:, 2].long(), minlength=len(names)).tolist()
    return {
        **numbers,
        "ap": numbers["ap"] or 0.0,
        **at_threshold(boxes, len(single), threshold),
        "best_threshold": best,
        "best_f1": at_threshold(boxes, len(single), best)["f1"],
        "samples": len(rows.images),
        "objects": len(single),
        "classes": {
            name: {
                "ap": _known(precision[:, :, i].mean()),
                "ap50": _known(precision[0, :, i].mean()),
                "ap75": _known(precision[5, :, i].mean()),
                "ar100": _known(recall[:, i].mean()),
                "objects": per_class[i],
            }
            for i, name in enumerate(names)
        },
        "curves": {
            "recall": evaluated.params.recThrs.tolist(),
            "precision": {
                name: None if precision[0, 0, i] < 0 else precision[0, :, i].tolist()
                for i, name in enumerate(names)
            },
        },
    }


def resampled_precisions(classes: int, rows: BoxRows) -> Iterator[dict[str, Tensor]]:
    """By the evaluator's own accumulation over the images of each draw; there are fewer draws where
    there are many boxes, since it takes 10 ms for 16,000."""
    if not len(rows.objects) or not len(rows.found):
        return
    count = max(min(MOST_DRAWS, MOST_DRAWN // len(rows.found)), 100)
    for precision in drawn_precisions(classes, rows, count):
        parts = {"ap": precision, "ap50": precision[0], "ap75": precision[5]}
        yield {name: torch.tensor([_mean(part)]) for name, part in parts.items()}


class JudgedBoxes(NamedTuple):
    """All answers that count, without those inside crowds."""

    scores: Tensor
    right: Tensor


def judged_images(rows: BoxRows, least: float = 0.0) -> Iterator[tuple[Tensor, Judged]]:
    """Of each image the scores of the answers that have at least this one, and what they are."""
    for real, given, overlap in rows.by_image():
        shown = given[:, 3] >= least
        given = given[shown]
        if overlap is not None:
            judged = judge_overlaps(overlap[shown], real[:, 3].bool())
        else:
            boxes, true = (
                torch.cat((r[:, 4:6], r[:, 4:6] + r[:, 6:8]), dim=1) for r in (given, real)
            )
            judged = judge(boxes, given[:, 2], true, real[:, 2], real[:, 3].bool())
        yield given[:, 3], judged


def judged_boxes(rows: BoxRows) -> JudgedBoxes:
    scores, right = [rows.found.new_zeros(0)], [torch.zeros(0, dtype=torch.bool)]
    for given, judged in judged_images(rows):
        scores.append(given[judged.counted])
        right.append(judged.right[judged.counted])
    return JudgedBoxes(torch.cat(scores), torch.cat(right))


def image_f1(rows: BoxRows, threshold: float) -> Tensor:
    """(images,): the F1 of what `predict` shows of each; 1 where there is nothing, and nothing is
    predicted."""
    each = (judged.f1 for _, judged in judged_images(rows, threshold))
    return torch.tensor([1.0 if f1 is None else f1 for f1 in each])


def _by_image(rows: Tensor, images: int, column: int = 1) -> tuple[Tensor, ...]:
    rows = rows[rows[:, column].argsort(stable=True)]
    return rows.split(torch.bincount(rows[:, column].long(), minlength=images).tolist())


def at_threshold(boxes: JudgedBoxes, objects: int, threshold: float) -> dict[str, float]:
    """Precision, recall and F1 of what `predict` shows, at an IoU of 0.5."""
    above = boxes.scores >= threshold
    right, shown = int(boxes.right[above].sum()), int(above.sum())
    return {
        "precision": right / max(shown, 1),
        "recall": right / max(objects, 1),
        "f1": 2 * right / max(shown + objects, 1),
        "threshold": threshold,
    }


def _mean(precision: Any) -> float:
    """Over what there was to find."""
    known = precision[precision > -1]
    return float(known.mean()) if known.size else math.nan


def _known(value: float) -> float | None:
    """A number of COCO's; -1 means that there was nothing to find."""
    return None if value < 0 else float(value)


def drawn_precisions(classes: int, rows: BoxRows, count: int) -> Iterator[Any]:
    """`precision` as in `measured`, for each of `count` draws of the images."""
    from faster_coco_eval.faster_eval_api_cpp import (  # type: ignore[import-untyped,unused-ignore]
        COCOevalAccumulate,
    )

    evaluated = _evaluator(classes, rows, separate_eval=True)
    wanted = evaluated.params
    wanted.areaRng, wanted.areaRngLbl = wanted.areaRng[:1], wanted.areaRngLbl[:1]
    wanted.maxDets = wanted.maxDets[-1:]
    evaluated.evaluate()
    # of each class and image, class by class: what was matched at each threshold
    matched, total = evaluated._evalImgs_cpp, len(rows.images)
    for drawn in draws(total, count):
        chosen = [matched[first + i] for first in range(0, len(matched), total) for i in drawn]
        precision = np.asarray(COCOevalAccumulate(evaluated._paramsEval, chosen)["precision"])
        yield precision[..., 0, -1]


def _evaluator(classes: int, rows: BoxRows, **options: Any) -> Any:
    """COCO's, for boxes; or for what overlaps as the rows say."""
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
        for number, (_, image, label, crowd, *box, area) in enumerate(
            rows.objects.tolist(), start=1
        )
    ]
    answers = [
        {"image_id": int(image), "category_id": int(label), "bbox": box, "score": score}
        for _, image, label, score, *box, _ in rows.found.tolist()
    ]
    everything = COCO(
        {
            "images": [{"id": int(image)} for image in rows.images[:, 1].tolist()],
            "categories": [{"id": number} for number in range(classes)],
            "annotations": truth,
        }
    )
    found = everything.loadRes(answers)
    if rows.overlaps is None:
        return COCOeval_faster(everything, found, "bbox", **options)
    areas = rows.found[:, 8].tolist()
    for answer, pixels in zip(found.dataset["annotations"], areas, strict=True):
        answer["area"] = pixels
    overlaps = _by_ids(rows)

    class ByOverlaps(COCOeval_faster):  # type: ignore[misc,unused-ignore]
        """With the overlaps that are known, instead of those of boxes."""

        def computeIoU(self, image: int, label: int) -> Any:  # noqa: N802
            real, given = (
                data.get_instances([image], [label], True)[0][0]
                for data in (self.gt_dataset, self.dt_dataset)
            )
            given = sorted(given, key=lambda answer: -answer["score"])[: self.params.maxDets[-1]]
            if not real or not given:
                return []
            return np.array([[overlaps.get((a["id"], r["id"]), 0.0) for r in real] for a in given])

    return ByOverlaps(everything, found, "bbox", **options)


def _by_ids(rows: BoxRows) -> dict[tuple[int, int], float]:
    """How answers and objects overlap, by their numbers in all images, counted from 1."""
    assert rows.overlaps is not None
    firsts = [
        torch.bincount(each[:, 1].long(), minlength=len(rows.images)).cumsum(0).tolist()
        for each in (rows.found, rows.objects)
    ]
    found = {}
    for image, answer, object_, overlap in rows.overlaps.tolist():
        before = [first[int(image) - 1] if image else 0 for first in firsts]
        found[before[0] + int(answer) + 1, before[1] + int(object_) + 1] = overlap
    return found
