"""The part of the training report that is about detection."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.data.loader import Batch
from vitreous.pages.charts import line_chart, swatch
from vitreous.pages.draw import Colour, colours_of
from vitreous.pages.figures import precision_lines
from vitreous.pages.findings import Findings
from vitreous.pages.pictures import data_url
from vitreous.predict import Predictor
from vitreous.tasks.detect.boxes import SMALLEST, area, intersection, iou, to_pixels
from vitreous.tasks.detect.draw import Mark, boxed, moved
from vitreous.tasks.detect.metrics import BoxPrediction as Answer
from vitreous.tasks.detect.task import Detect

SHOWN = 12
"""Images on the page."""
SIDE = 512
"""Pixels that the longer side of a picture has at most."""
OVERLAP = 0.5
"""Of two boxes, above which one counts as the other."""
LETTERS = 1.6
"""Pictures are shown small here."""
GRAY = (150, 150, 150)
"""The colour of what is not counted."""


class Judged(NamedTuple):
    """Which objects of an image are found, and which of the boxes that are said are right."""

    found: Tensor
    """(objects,)"""
    right: Tensor
    """(boxes,)"""
    counted: Tensor
    """(boxes,): not those that lie in a crowd, of which nobody knows"""
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
        """From 0, nothing is right, to 1, all is; None where there is nothing and nothing said."""
        right = int(self.right.sum())
        all_ = 2 * right + self.missed + self.false
        return 2 * right / all_ if all_ else None


def judge(boxes: Tensor, labels: Tensor, truth: Tensor, classes: Tensor, crowd: Tensor) -> Judged:
    """boxes (n, 4) with classes `labels` (n,), the surest first, against truth (m, 4) with
    `classes` (m,), of which `crowd` (m,) are; left, top, right, bottom.

    Each object is found by the surest box of its class that covers it, and by no other.
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


@dataclass
class Shot:
    """An image with the boxes that it has, and with those that the model says."""

    id: str
    f1: float
    words: str
    image: Tensor
    """(c, h, w), small, of 8 bits"""
    truth: list[Mark]
    said: list[Mark]


class WorstBoxes(Findings):
    """The images with the smallest F1 of their own, at the threshold that `predict` has."""

    primary = ("AP", "average precision")
    beside = {"ap50": "AP50", "ap75": "AP75"}  # noqa: RUF012

    def __init__(self, predictor: Predictor) -> None:
        super().__init__(predictor)
        assert isinstance(predictor.task, Detect)
        self.threshold = predictor.task.threshold
        self.colours = colours_of(predictor.task.labels.external)
        self.shots: list[tuple[tuple[float, int], Shot]] = []
        """Each behind what it is sorted by: F1, and then how much is wrong."""

    def see(self, batch: Batch, output: Any, targets: Any) -> None:
        """output `Answer`s in pixels, targets with boxes in parts of the image."""
        for i, (answer, target) in enumerate(zip(output, targets, strict=True)):
            sure = answer.scores >= self.threshold
            said = answer._replace(
                boxes=answer.boxes[sure], labels=answer.labels[sure], scores=answer.scores[sure]
            )
            boxes = to_pixels(target["boxes"], answer.size)
            crowd = target.get("crowd", torch.zeros(len(boxes))).bool()
            judged = judge(said.boxes, said.labels, boxes, target["labels"], crowd)
            if judged.f1 is None or judged.f1 == 1:
                continue
            bad = (judged.f1, -judged.missed - judged.false)
            if len(self.shots) == SHOWN and bad >= self.shots[-1][0]:
                continue
            image = _small(self.predictor.preprocess.restore(batch.images[i]))
            truth = self._truth(boxes, target["labels"], crowd, judged.found)
            both = (truth, self._said(said, judged.right))
            marks = (moved(each, answer.size, image.shape[1:]) for each in both)
            words = (
                _words(judged) if len(said.scores) else f"{_words(judged)}; {self._next(answer)}"
            )
            shot = Shot(batch.ids[i], judged.f1, words, image, *marks)
            self.shots = sorted([*self.shots, (bad, shot)], key=lambda each: each[0])[:SHOWN]

    def _truth(self, boxes: Tensor, labels: Tensor, crowd: Tensor, found: Tensor) -> list[Mark]:
        """What is there; what was missed is dashed, what is not counted is gray."""
        names, marks = self.predictor.labels, []
        for box, label, is_crowd, is_found in zip(
            boxes.tolist(), labels.tolist(), crowd.tolist(), found.tolist(), strict=True
        ):
            if is_crowd:
                marks.append(Mark(tuple(box), f"{names[label]}, not counted", GRAY))
            else:
                marks.append(Mark(tuple(box), names[label], self.colours[label], not is_found))
        return marks

    def _said(self, said: Answer, right: Tensor) -> list[Mark]:
        """What the model says; what is not there is dashed."""
        names = self.predictor.labels
        return [
            Mark(tuple(box), f"{names[label]} {score:.2f}", self.colours[label], not is_right)
            for box, label, score, is_right in zip(
                *(each.tolist() for each in (said.boxes, said.labels, said.scores, right)),
                strict=True,
            )
        ]

    def _next(self, answer: Answer) -> str:
        """What is nearest to being said."""
        label, score = self.predictor.labels[answer.labels[0]], float(answer.scores[0])
        return f"nothing is as sure as {self.threshold:g}, {label} comes next with {score:.2f}"

    def tiles(self, result: dict[str, Any], split: str) -> dict[str, str]:
        return {
            f"AP, {split}": _percent(result["ap"]),
            "AP50": _percent(result["ap50"]),
            "AP75": _percent(result["ap75"]),
            "images": f"{result['samples']:,}",
            "objects": f"{result['objects']:,}",
        }

    def sections(self, result: dict[str, Any]) -> str:
        colours = dict(zip(result["classes"], self.colours, strict=True))
        shots = "".join(_shot(shot) for _, shot in self.shots)
        drawn = f'<div class="pairs">{shots}</div>' if shots else "<p>None.</p>"
        return f"""<h2>Classes, the hardest first</h2><div class="wide"><table><tr><th>class</th>
<th class=num>objects</th><th class=num>AP</th><th class=num>AP50</th><th class=num>AP75</th>
<th class=num>AR</th></tr>
{_class_rows(result["classes"], colours)}</table></div>
<p class="soft">A box counts as an object if it is of its class and their IoU, the part of their
common area that both have, is large enough. AP50: average precision with an IoU of at least 0.5.
AP75: of 0.75. AP: mean from 0.5 to 0.95. AR: the part that is found with up to 100 boxes, mean over
the same. A class without objects has none of them. By size: {_sizes(result)}.</p>
<h2>Right and found</h2><div class="charts">{_precision(result["curves"], colours)}</div>
<h2>Worst images</h2><p class="soft">By their own F1, with boxes of at least {self.threshold:g} and
an IoU of {OVERLAP:g}. Left: the truth; dashed: missed. Right: what the model says; dashed: not
there, or there already.</p>{drawn}"""


def _small(image: Tensor) -> Tensor:
    """(c, h, w) in 0..1 as 8 bits, at most SIDE long."""
    height, width = image.shape[1:]
    factor = min(SIDE / max(height, width), 1.0)
    if factor < 1:
        size = (max(round(height * factor), 1), max(round(width * factor), 1))
        image = F.interpolate(image[None], size, mode="bilinear", antialias=True)[0]
    return (255 * image).round().clamp(0, 255).to(torch.uint8)


def _words(judged: Judged) -> str:
    found = int(judged.found.sum())
    words = f"F1 {judged.f1:.2f}: {found} of {judged.objects} found"
    return f"{words}, {judged.false} false" if judged.false else words


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _class_rows(classes: dict[str, dict[str, Any]], colours: dict[str, Colour]) -> str:
    """Classes without an AP last: there was nothing to find."""

    def hardness(item: tuple[str, dict[str, Any]]) -> tuple[bool, float]:
        return item[1]["ap"] is None, item[1]["ap"] or 0.0

    def number(value: float | None) -> str:
        return f"<td class=num>{'–' if value is None else f'{value:.3f}'}</td>"

    return "".join(
        f"<tr><td>{swatch(colours[name])}{html.escape(name)}</td>"
        f"<td class=num>{row['objects']:,}</td>"
        + "".join(number(row[key]) for key in ("ap", "ap50", "ap75", "ar100"))
        + "</tr>"
        for name, row in sorted(classes.items(), key=hardness)
    )


def _sizes(result: dict[str, Any]) -> str:
    """COCO's three: up to 32x32 pixels, up to 96x96, and larger."""
    parts = {
        "small (below 32x32)": "ap_small",
        "medium": "ap_medium",
        "large (above 96x96)": "ap_large",
    }
    return ", ".join(f"{words} {_percent(result[key])}" for words, key in parts.items())


def _precision(curves: dict[str, Any], colours: dict[str, Colour]) -> str:
    """A line for each class, in the colours of the table, or their mean."""
    lines = precision_lines(curves)
    inks = [colours[name] for name in lines] if all(name in colours for name in lines) else []
    points = {name: list(zip(curves["recall"], line, strict=True)) for name, line in lines.items()}
    return line_chart(
        "precision over recall, IoU 0.5",
        points,
        "recall: how much is found",
        "precision: how much is right",
        inks=inks,
        ends=(0.0, 1.0),
    )


def _shot(shot: Shot) -> str:
    pictures = "".join(
        f'<img class="fine" src="{data_url(boxed(shot.image, marks, LETTERS))}" alt="{word}">'
        for word, marks in (("truth", shot.truth), ("what the model says", shot.said))
    )
    return (
        f"<figure><div>{pictures}</div><figcaption>{html.escape(shot.words)} "
        f"<span class=soft>{html.escape(shot.id)}</span></figcaption></figure>"
    )
