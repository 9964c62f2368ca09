"""Detection: a box and a class for each object (DETR, sections 3.1 and 4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.labels import LabelMap
from vitreous.models.model import Model
from vitreous.results import Detection
from vitreous.tasks.detect.boxes import corners, giou, to_pixels
from vitreous.tasks.detect.matching import Matches, Target, match
from vitreous.tasks.task import Metrics, Task

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


class Answer(NamedTuple):
    """What a model says of one image: every query with its likeliest class, the surest first."""

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


class Detect(Task):
    """Matching, then cross-entropy for the classes, L1 and GIoU for the boxes of what matches.

    A target is {"labels": (n,), "boxes": (n, 4) in parts}. It may have "crowd" (n,), True for a
    region of objects that were not told apart, which nothing is learnt from and no metric counts;
    and "area" (n,) in pixels, where an object's area is not its box's.
    """

    name = "detect"
    primary = "ap"

    def __init__(
        self,
        labels: LabelMap,
        *,
        box_weight: float = 5.0,
        giou_weight: float = 2.0,
        no_object: float = 0.1,
        threshold: float = 0.5,
    ) -> None:
        super().__init__(labels)
        self.box_weight, self.giou_weight = box_weight, giou_weight
        self.no_object, self.threshold = no_object, threshold

    def count_of(self, targets: Any) -> int:
        return sum(len(target["labels"]) for target in map(learnt, targets))

    def loss(
        self,
        output: Any,
        targets: Any,
        teacher: Tensor | None = None,
        count: float | None = None,
    ) -> dict[str, Tensor]:
        """output `DETROutput`, targets a list of b; the terms of the last decoder layer by name,
        and the sums of the others' as aux_….

        `count` is the mean number of objects per process and part of the batch; with it, the loss
        does not depend on how samples are divided. Without it, the objects given are all there are.
        """
        logits, boxes = output.logits.float(), output.boxes.float()
        targets = [learnt(target) for target in targets]
        found = match(logits, boxes, targets, box_cost=self.box_weight, giou_cost=self.giou_weight)
        truth = torch.cat([target["boxes"] for target in targets]).float()[found.target]
        said = boxes[found.layer, found.image, found.query]
        objects = max(self.count_of(targets) if count is None else count, 1.0)

        def by_layer(each: Tensor) -> Tensor:
            return each.unflatten(0, (len(logits), -1)).sum(dim=1) / objects

        apart = (said - truth).abs().sum(dim=1)
        missed = 1 - giou(corners(said), corners(truth))
        terms = {
            "class": self._class_loss(logits, targets, found, count),
            "box": self.box_weight * by_layer(apart),
            "giou": self.giou_weight * by_layer(missed),
        }  # (layers,) each
        last = {name: term[-1] for name, term in terms.items()}
        others = {f"aux_{name}": term[:-1].sum() for name, term in terms.items()}
        return last | (others if len(logits) > 1 else {})

    def _class_loss(
        self, logits: Tensor, targets: Sequence[Target], found: Matches, count: float | None
    ) -> Tensor:
        """(layers,): cross-entropy in the mean over queries, those without an object counting less,
        because most are (section 4, "down-weight by a factor of 10")."""
        labels = torch.cat([target["labels"] for target in targets])
        nothing = logits.shape[-1] - 1
        classes = torch.full(logits.shape[:3], nothing, device=logits.device)
        classes[found.layer, found.image, found.query] = labels[found.target]
        weights = torch.ones(nothing + 1, device=logits.device)
        weights[-1] = self.no_object
        each = F.cross_entropy(
            logits.flatten(0, 2), classes.flatten(), weights, reduction="none"
        ).view_as(classes)
        if count is None:
            whole = weights[classes[0]].sum()  # every layer has as many of both
            return each.sum(dim=(1, 2)) / whole
        queries = classes[0].numel()
        return each.sum(dim=(1, 2)) / (count + self.no_object * (queries - count))

    @torch.inference_mode()
    def infer(self, model: Model, images: Any, sizes: Sequence[tuple[int, int]]) -> list[Answer]:
        """images (b, c, h, w), or a list of (c, h, w) of different sizes.

        Those go one by one: filled up, an image would be said to show something else, as far as the
        backbone's norms and convolutions see the filling.
        """
        if not isinstance(images, Tensor):
            pairs = zip(images, sizes, strict=True)
            return [self.infer(model, image[None], [size])[0] for image, size in pairs]
        output = model(images)
        chances, labels = output.logits[-1].float().softmax(dim=-1)[..., :-1].max(dim=-1)
        scores, order = chances.sort(dim=1, descending=True, stable=True)
        boxes = output.boxes[-1].float().cpu()
        labels, scores, order = labels.cpu(), scores.cpu(), order.cpu()
        return [
            Answer(to_pixels(boxes[i], size)[each], labels[i][each], scores[i], each, size)
            for i, (each, size) in enumerate(zip(order, sizes, strict=True))
        ]

    def renamed(self, targets: Any, here: Sequence[int]) -> Any:
        classes = torch.tensor(here)
        return [{**target, "labels": classes[target["labels"]]} for target in targets]

    def metrics(self) -> DetectMetrics:
        return DetectMetrics(self.labels)

    def decode(self, output: list[Answer], images: list[str]) -> list[Detection]:
        return [
            Detection(
                answer.boxes.numpy(),
                answer.labels.numpy(),
                answer.scores.numpy(),
                answer.queries.numpy(),
                self.labels.names,
                self.labels.external,
                answer.size,
                self.threshold,
                image,
            )
            for answer, image in zip(output, images, strict=True)
        ]


def learnt(target: Target) -> Target:
    """What of a target is learnt: its objects, without crowds."""
    if "crowd" not in target:
        return target
    single = ~target["crowd"].bool()
    return {name: target[name][single] for name in ("labels", "boxes")}


IMAGE, OBJECT, FOUND = range(3)
COLUMNS = ("kind", "image", "class", "score", "left", "top", "width", "height", "area")


class DetectMetrics(Metrics):
    """COCO's average precision and recall, of every query: no threshold has a say in them.

    They need all objects and answers at once. Both are kept as rows of one table: what an image
    has, what a model has found in it, and the image itself, which may have neither.
    """

    def __init__(self, labels: LabelMap) -> None:
        self.names = labels.names
        self.rows: list[Tensor] = []
        self.images = 0

    def update(self, output: list[Answer], targets: Any) -> None:
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
        numbers = {name: _said(value) for name, value in zip(NUMBERS, stats, strict=True)}
        single = objects[objects[:, 3] == 0]  # no crowd
        per_class = torch.bincount(single[:, 2].long(), minlength=len(self.names)).tolist()
        return {
            **numbers,
            "ap": numbers["ap"] or 0.0,
            "samples": len(images),
            "objects": len(single),
            "classes": {
                name: {
                    "ap": _said(precision[:, :, i].mean()),
                    "ap50": _said(precision[0, :, i].mean()),
                    "ap75": _said(precision[5, :, i].mean()),
                    "ar100": _said(recall[:, i].mean()),
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


def _said(value: float) -> float | None:
    """A number of COCO's; -1 says that there was nothing to find."""
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


TASK = Detect
