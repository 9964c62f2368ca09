"""The part of the training report that is about detection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.data.loader import Batch
from vitreous.pages import charts
from vitreous.pages.colours import colours_of
from vitreous.pages.content import Example, Section, class_table, percent, picture
from vitreous.pages.figure import svg
from vitreous.pages.maps import Mark
from vitreous.predict import Predictor
from vitreous.tasks.detect.boxes import SMALLEST, area, intersection, iou, to_pixels
from vitreous.tasks.detect.draw import boxed, moved
from vitreous.tasks.detect.metrics import BoxPrediction
from vitreous.tasks.detect.task import Detect
from vitreous.tasks.show import TaskReport, Worst

WORST = 12
"""Images in the report."""
SIDE = 512
"""Pixels that the longer side of a picture has at most."""
OVERLAP = 0.5
"""IoU of two boxes from which one counts as the other."""
LETTERS = 1.6
"""Pictures are shown small here."""
GRAY = (150, 150, 150)
"""The colour of what is not counted."""
NOTE = """A box counts as an object if it is of its class and their IoU is large enough. AP50:
average precision at an IoU of 0.5; AP75: at 0.75; AP: mean from 0.5 to 0.95. AR: recall with up to
100 boxes, mean over the same. A class without objects has none of them."""


CURVES = "IoU 0.5; in brackets: AP50"


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
    covers = iou(boxes[:, None], truth).masked_fill(~alike | crowd, 0.0)
    own = area(boxes)[:, None].clamp(min=SMALLEST)
    inside = (intersection(boxes[:, None], truth) / own).masked_fill(~(alike & crowd), 0.0)
    found = torch.zeros(len(truth), dtype=torch.bool)
    right = torch.zeros(len(boxes), dtype=torch.bool)
    for number, row in enumerate(covers):
        row = row.masked_fill(found, 0.0)
        if len(row) and row.max() >= OVERLAP:
            found[row.argmax()] = right[number] = True
    counted = right | ~(inside >= OVERLAP).any(dim=1)
    return Judged(found, right, counted, int((~crowd).sum()))


class DetectReport(TaskReport):
    """Precision over recall, and the images with the smallest F1 of their own, at the threshold
    that `predict` has."""

    curves = {"ap": "AP", "ap50": "AP50", "ap75": "AP75"}  # noqa: RUF012

    def __init__(self, predictor: Predictor) -> None:
        super().__init__(predictor)
        assert isinstance(predictor.task, Detect)
        labels = predictor.task.labels
        self.threshold = predictor.task.threshold
        self.colours = dict(zip(labels.names, colours_of(labels.external), strict=True))
        self.worst = Worst[Example](WORST)

    def see(self, batch: Batch, output: Any, targets: Any) -> None:
        """output `BoxPrediction`s in pixels, targets with normalised cxcywh boxes."""
        for i, (answer, target) in enumerate(zip(output, targets, strict=True)):
            kept = answer.scores >= self.threshold
            kept = answer._replace(
                boxes=answer.boxes[kept], labels=answer.labels[kept], scores=answer.scores[kept]
            )
            boxes = to_pixels(target["boxes"], answer.size)
            crowd = target.get("crowd", torch.zeros(len(boxes))).bool()
            judged = judge(kept.boxes, kept.labels, boxes, target["labels"], crowd)
            if judged.f1 is None or judged.f1 == 1:
                continue
            badness = (judged.f1, -judged.missed - judged.false)
            if not self.worst.wants(badness):
                continue
            image = _small(self.predictor.preprocess.restore(batch.images[i]))
            truth = self._truth(boxes, target["labels"], crowd, judged.found)
            pictures = [
                picture(boxed(image, moved(marks, answer.size, image.shape[1:]), LETTERS), name)
                for name, marks in (
                    ("ground truth", truth),
                    ("prediction", self._predicted(kept, judged.right)),
                )
            ]
            note = f"{int(judged.found.sum())} of {judged.objects} found"
            note += f", {judged.false} false" if judged.false else ""
            note += "" if len(kept.scores) else f"; {self._next(answer)}"
            example = Example(pictures, batch.ids[i], f"F1 {judged.f1:.2f}", note)
            self.worst.add(badness, example)

    def _truth(self, boxes: Tensor, labels: Tensor, crowd: Tensor, found: Tensor) -> list[Mark]:
        """What was missed is dashed, what is not counted is gray."""
        names, marks = self.predictor.labels, []
        for box, label, is_crowd, is_found in zip(
            boxes.tolist(), labels.tolist(), crowd.tolist(), found.tolist(), strict=True
        ):
            if is_crowd:
                marks.append(Mark(tuple(box), f"{names[label]}, not counted", GRAY))
            else:
                colour = self.colours[names[label]]
                marks.append(Mark(tuple(box), names[label], colour, not is_found))
        return marks

    def _predicted(self, answer: BoxPrediction, right: Tensor) -> list[Mark]:
        """What is not there is dashed."""
        names = [self.predictor.labels[label] for label in answer.labels.tolist()]
        rows = (each.tolist() for each in (answer.boxes, answer.scores, right))
        return [
            Mark(tuple(box), f"{name} {score:.2f}", self.colours[name], not is_right)
            for name, box, score, is_right in zip(names, *rows, strict=True)
        ]

    def _next(self, answer: BoxPrediction) -> str:
        """What is nearest to the threshold."""
        label, score = self.predictor.labels[answer.labels[0]], float(answer.scores[0])
        return f"no score reaches {self.threshold:g}, {label} comes next with {score:.2f}"

    def headline(self, result: Mapping[str, Any]) -> dict[str, str]:
        return {
            "AP": percent(result["ap"]),
            "AP50": percent(result["ap50"]),
            "AP75": percent(result["ap75"]),
            "objects": f"{result['objects']:,}",
        }

    def sections(self, result: Mapping[str, Any]) -> list[Section]:
        keys = ("objects", "ap", "ap50", "ap75", "ar100")
        columns = dict(zip(keys, ("objects", "AP", "AP50", "AP75", "AR"), strict=True))
        table = class_table(result["classes"], columns, "ap", self.colours)
        drawn = charts.precision_recall(result["curves"], self.colours, title=CURVES)
        return [
            Section("Precision and recall", figures=[(svg(drawn), "")], half=True),
            Section(
                "Classes, the hardest first",
                f"{NOTE} By size: {_sizes(result)}.",
                table=table,
                half=True,
            ),
            Section(
                "Worst images",
                f"By their own F1, with scores of at least {self.threshold:g} and an IoU of "
                f"{OVERLAP:g}. Left: ground truth; dashed: missed. Right: prediction; dashed: "
                "false, or found already.",
                examples=self.worst.found,
            ),
        ]


def _small(image: Tensor) -> Tensor:
    """(c, h, w) in 0..1 as 8 bits, at most SIDE long."""
    height, width = image.shape[1:]
    factor = min(SIDE / max(height, width), 1.0)
    if factor < 1:
        size = (max(round(height * factor), 1), max(round(width * factor), 1))
        image = F.interpolate(image[None], size, mode="bilinear", antialias=True)[0]
    return (255 * image).round().clamp(0, 255).to(torch.uint8)


def _sizes(result: Mapping[str, Any]) -> str:
    """COCO's three: up to 32x32 pixels, up to 96x96, and larger."""
    parts = {
        "small (below 32x32)": "ap_small",
        "medium": "ap_medium",
        "large (above 96x96)": "ap_large",
    }
    return ", ".join(f"{words} {percent(result[key])}" for words, key in parts.items())
