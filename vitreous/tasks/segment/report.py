"""The part of the training report that is about segmentation."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from vitreous.data.loader import Batch
from vitreous.labels import IGNORED
from vitreous.pages.charts import confusion_table, swatch
from vitreous.pages.draw import Colour, coloured, colours_of
from vitreous.pages.findings import Findings
from vitreous.pages.pictures import as_picture, data_url
from vitreous.predict import Predictor
from vitreous.tasks.segment.task import confusion
from vitreous.tasks.segment.truth import resized_mask
from vitreous.tasks.task import ratio

SHOWN = 12
"""Images on the page."""
SIDE = 400
"""Pixels that the longer side of a picture has at most."""


@dataclass
class Shot:
    """An image beside what it shows and what the model says that it shows."""

    id: str
    miou: float
    image: Image.Image
    truth: Tensor
    """(h, w), small, with IGNORED"""
    said: Tensor


class WorstMasks(Findings):
    """The images with the smallest mean IoU of their own."""

    primary = ("mean IoU", "mean of the classes' IoU")

    def __init__(self, predictor: Predictor) -> None:
        super().__init__(predictor)
        self.shots: list[Shot] = []

    def see(self, batch: Batch, output: Any, targets: Any) -> None:
        """output `Answer`s, targets masks (h, w), both at the images' own sizes."""
        for i, (answer, mask) in enumerate(zip(output, targets, strict=True)):
            miou = image_miou(answer.classes, mask, len(self.predictor.labels))
            full = len(self.shots) == SHOWN
            if miou is None or (full and miou >= self.shots[-1].miou):
                continue
            size = _small(mask.shape[0], mask.shape[1])
            shot = Shot(
                batch.ids[i],
                miou,
                as_picture(self.predictor.preprocess.restore(_resized(batch.images[i], size))),
                resized_mask(mask, size),
                resized_mask(answer.classes, size),
            )
            self.shots = sorted([*self.shots, shot], key=lambda each: each.miou)[:SHOWN]

    def tiles(self, result: dict[str, Any], split: str) -> dict[str, str]:
        return {
            f"mean IoU, {split}": f"{100 * result['miou']:.2f} %",
            "pixel accuracy": f"{100 * result['pixel_accuracy']:.2f} %",
            "mean accuracy": f"{100 * result['mean_accuracy']:.2f} %",
            "images": f"{result['samples']:,}",
        }

    def sections(self, result: dict[str, Any]) -> str:
        names = list(result["classes"])
        colours = dict(zip(names, colours_of(self.predictor.task.labels.external), strict=True))
        shots = "".join(_shot(shot, list(colours.values())) for shot in self.shots)
        legend = _legend(colours, self.shots)
        drawn = f'{legend}<div class="trios">{shots}</div>' if shots else "<p>None.</p>"
        return f"""<h2>Classes, the hardest first</h2><div class="wide"><table><tr><th>class</th>
<th class=num>pixels</th><th class=num>IoU</th><th class=num>accuracy</th>
<th class=num>precision</th></tr>
{_class_rows(result["classes"], colours)}</table></div>
<p class="soft">IoU: of the pixels that are the class or are said to be, the part that is both.
Accuracy: of those that are, the part that is found. Precision: of those that are said to be, the
part that is. A class that is nowhere has none of them.</p>
<h2>What is taken for what</h2><p class="soft">Rows: truth. Columns: what the model says. Numbers:
percent of the truth's pixels.</p>
<div class="wide">{confusion_table(names, result["confusion"], shares=True)}</div>
<h2>Worst images</h2><p class="soft">By their own mean IoU. Each: the image, the truth, what the
model says.</p>{drawn}"""


def image_miou(said: Tensor, mask: Tensor, classes: int) -> float | None:
    """Of one image: over the classes that it has, or is said to have; None where all is ignored."""
    table = confusion(said, mask, classes).double()
    if not table.any():
        return None
    true, either = table.diagonal(), table.sum(dim=0) + table.sum(dim=1) - table.diagonal()
    return ratio(true, either)[either > 0].mean().item()


def _small(height: int, width: int) -> tuple[int, int]:
    factor = min(SIDE / max(height, width), 1.0)
    return max(round(height * factor), 1), max(round(width * factor), 1)


def _resized(image: Tensor, size: tuple[int, int]) -> Tensor:
    """(c, h, w) as the model takes it, small."""
    return F.interpolate(image[None], size, mode="bilinear", antialias=True)[0]


def _class_rows(classes: dict[str, dict[str, Any]], colours: dict[str, Colour]) -> str:
    """Classes without an IoU last: nobody has seen them."""

    def hardness(item: tuple[str, dict[str, Any]]) -> tuple[bool, float]:
        return item[1]["iou"] is None, item[1]["iou"] or 0.0

    def number(value: float | None) -> str:
        return f"<td class=num>{'–' if value is None else f'{value:.3f}'}</td>"

    return "".join(
        f"<tr><td>{swatch(colours[name])}{html.escape(name)}</td>"
        f"<td class=num>{row['pixels']:,}</td>"
        + "".join(number(row[key]) for key in ("iou", "accuracy", "precision"))
        + "</tr>"
        for name, row in sorted(classes.items(), key=hardness)
    )


def _legend(colours: dict[str, Colour], shots: list[Shot]) -> str:
    """The colours of the classes that the pictures have, and the hatching if there is any."""
    there = set().union(*(set(mask.unique().tolist()) for s in shots for mask in (s.truth, s.said)))
    entries = [
        f"<span>{swatch(colour)}{html.escape(name)}</span>"
        for number, (name, colour) in enumerate(colours.items())
        if number in there
    ]
    if IGNORED in there:
        entries.append('<span><i class="swatch hatched"></i>ignored</span>')
    return f'<p class="legend">{"".join(entries)}</p>'


def _shot(shot: Shot, colours: list[Colour]) -> str:
    drawn = [Image.fromarray(coloured(mask.numpy(), colours)) for mask in (shot.truth, shot.said)]
    urls = [data_url(shot.image), *(data_url(picture, exact=True) for picture in drawn)]
    fine = ' class="fine"' if max(shot.truth.shape) > SIDE // 2 else ""  # not to be enlarged
    words = ("image", "truth", "what the model says")
    pictures = "".join(
        f'<img src="{url}" alt="{word}"{fine}>' for word, url in zip(words, urls, strict=True)
    )
    return (
        f"<figure><div>{pictures}</div><figcaption>mean IoU {shot.miou:.3f} "
        f"<span class=soft>{html.escape(shot.id)}</span></figcaption></figure>"
    )
