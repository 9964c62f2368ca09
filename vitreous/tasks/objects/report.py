"""The part of the training report that is about objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitreous.data.loader import Batch
from vitreous.pages import charts
from vitreous.pages.content import (
    CaptionedImage,
    Number,
    Section,
    class_table,
    measured,
    percent,
    picture,
)
from vitreous.pages.maps import BoxMark
from vitreous.predict import Predictor
from vitreous.tasks.objects.boxes import to_pixels
from vitreous.tasks.objects.draw import Masks, boxed, moved
from vitreous.tasks.objects.metrics import OVERLAP, BoxPrediction, Judged, judge
from vitreous.tasks.objects.object_task import ObjectTask
from vitreous.tasks.show import TaskReport
from vitreous.wording import counted

SIDE = 512
"""Pixels that the longer side of a picture has at most."""
LETTERS = 1.6
"""Pictures are shown small here."""
GRAY = (150, 150, 150)
"""The colour of what is not counted."""
NOTE = """A box counts as an object if it is of its class and their IoU is large enough. AP50:
average precision at an IoU of 0.5; AP75: at 0.75; AP: mean from 0.5 to 0.95. AR: recall with up to
100 boxes, mean over the same. A class without objects has none of them."""


CURVES = "IoU 0.5; in brackets: AP50"


class ObjectReport(TaskReport):
    """Precision over recall, and the images with the smallest F1 of their own, at the threshold
    that `predict` has."""

    curves = {"ap": "AP", "ap50": "AP50", "ap75": "AP75"}  # noqa: RUF012
    note = NOTE

    def __init__(self, predictor: Predictor) -> None:
        super().__init__(predictor)
        assert isinstance(predictor.task, ObjectTask)
        self.threshold = predictor.task.threshold

    def see(self, batch: Batch, output: Any, targets: Any) -> None:
        """output `BoxPrediction`s in pixels, targets with normalised cxcywh boxes."""
        for i, (answer, target) in enumerate(zip(output, targets, strict=True)):
            shown = answer.take(answer.scores >= self.threshold)
            true = to_pixels(target["boxes"], answer.size)
            crowd = target.get("crowd", torch.zeros(len(true))).bool()
            judged = self.judged(shown, target, true, crowd)
            if judged.f1 is None or judged.f1 == 1:
                continue
            badness = (judged.f1, -judged.missed - judged.false)
            if not self.worst.wants(badness):
                continue
            objects = self._marks(true, target["labels"], judged.found | crowd)
            truth = [
                mark._replace(words=f"{mark.words}, not counted", colour=GRAY) if is_crowd else mark
                for mark, is_crowd in zip(objects, crowd.tolist(), strict=True)
            ]
            predicted = self._marks(shown.boxes, shown.labels, judged.right, shown.scores)
            image = self.picture(batch, i, SIDE)
            size = (image.height, image.width)
            drawn = torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1)
            masks = self.masks(shown, target, size)
            pictures = [
                picture(boxed(drawn, moved(marks, answer.size, size), LETTERS, of), name)
                for name, marks, of in zip(
                    ("ground truth", "prediction"), (truth, predicted), masks, strict=True
                )
            ]
            note = f"{int(judged.found.sum())} of {judged.objects} found"
            note += f", {judged.false} false" if judged.false else ""
            note += "" if len(shown.scores) else f"; {self._next(answer)}"
            self.worst.add(
                badness, CaptionedImage(pictures, batch.ids[i], f"F1 {judged.f1:.2f}", note)
            )

    def judged(self, shown: BoxPrediction, target: Any, true: Tensor, crowd: Tensor) -> Judged:
        """Predictions above the threshold; `true` (n, 4) are the boxes of objects in pixels."""
        return judge(shown.boxes, shown.labels, true, target["labels"], crowd)

    def masks(self, shown: Any, target: Any, size: tuple[int, int]) -> tuple[Masks, Masks]:
        """Of objects and predictions, in a picture of this size; None: they have none."""
        return None, None

    def _marks(
        self, boxes: Tensor, labels: Tensor, right: Tensor, scores: Tensor | None = None
    ) -> list[BoxMark]:
        """What was missed, or is not there, is dashed."""
        names = [self.predictor.labels[label] for label in labels.tolist()]
        words = [f" {score:.2f}" for score in scores] if scores is not None else [""] * len(names)
        return [
            BoxMark(tuple(box), name + more, self.colours[name], not is_right)
            for box, name, more, is_right in zip(
                boxes.tolist(), names, words, right.tolist(), strict=True
            )
        ]

    def _next(self, answer: BoxPrediction) -> str:
        """What is nearest to the threshold."""
        label, score = self.predictor.labels[answer.labels[0]], float(answer.scores[0])
        return f"no score reaches {self.threshold:g}, {label} comes next with {score:.2f}"

    def headline(self, result: Mapping[str, Any]) -> dict[str, Number]:
        notes = [
            f"precision {percent(result['precision'])}, recall {percent(result['recall'])} of "
            f"{counted(result['objects'], 'object')}",
            *(f"{n}: {percent(o['best_f1'])}" for n, o in result.get("baselines", {}).items()),
        ]
        return {
            **{name: measured(result, key) for key, name in self.curves.items()},
            f"F1 at {self.threshold:g}, as predict shows": Number(
                percent(result["f1"]), "\n".join(notes)
            ),
        }

    def sections(self, result: Mapping[str, Any]) -> list[Section]:
        columns = {"objects": "objects", **self.curves, "ar100": "AR"}
        table = class_table(result["classes"], columns, "ap", self.colours)
        drawn = charts.precision_recall(result["curves"], self.colours, title=CURVES)
        return [
            Section("Precision and recall", figures=[(drawn, "")], half=True),
            Section(
                "Classes, the hardest first",
                f"{self.note} By size: {_sizes(result)}.",
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


def _sizes(result: Mapping[str, Any]) -> str:
    """COCO's three: up to 32x32 pixels, up to 96x96, and larger."""
    parts = {
        "small (below 32x32)": "ap_small",
        "medium": "ap_medium",
        "large (above 96x96)": "ap_large",
    }
    return ", ".join(f"{words} {percent(result[key])}" for words, key in parts.items())
