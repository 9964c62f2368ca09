"""How segmentations are printed, drawn, reported and explained."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from vitreous.data.loader import Batch
from vitreous.explain.attention import pixel_reader
from vitreous.explain.class_maps import ExplainedScore
from vitreous.explain.explanation import MapExplanation, Pixel
from vitreous.explain.query import Query, check_inside, mark_pixel
from vitreous.labels import IGNORED, LabelMap
from vitreous.mask_parts import encode, in_text
from vitreous.pages import charts, maps
from vitreous.pages.colours import Colour, class_colours
from vitreous.pages.content import (
    CaptionedImage,
    Number,
    Section,
    class_table,
    measured,
    percent,
    picture,
)
from vitreous.pages.maps import Panel
from vitreous.pages.pictures import as_picture, png_base64
from vitreous.pages.words import Message
from vitreous.predict import Predictor, Prepared
from vitreous.results import Segmentation
from vitreous.tasks.segment import draw
from vitreous.tasks.segment.draw import coloured, overlaid
from vitreous.tasks.segment.metrics import confusion, image_miou, pixel_counts
from vitreous.tasks.segment.truth import resized_mask
from vitreous.tasks.show import SCALE, Show, TaskReport, inputs

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image

SIDE = 400
"""Pixels that the longer side of a picture has at most."""
NOTE = """IoU: intersection over union of a class's pixels and the predicted ones. Accuracy: the
share of the class's pixels that is found. Precision: the share of the predicted pixels that is
right. A class that is nowhere has none of them."""


class SegmentReport(TaskReport):
    """Confusion of pixels, and the images with the smallest mean IoU of their own."""

    curves = {"miou": "mean IoU"}  # noqa: RUF012

    def see(self, batch: Batch, output: Any, targets: Any) -> None:
        """output `MaskPrediction`s, targets masks (h, w), both at the images' own sizes."""
        for i, (answer, mask) in enumerate(zip(output, targets, strict=True)):
            table = confusion(answer.classes, mask, len(self.predictor.labels))
            miou = image_miou(pixel_counts(table))
            if not math.isnan(miou) and self.worst.wants(miou):
                self.worst.add(miou, self._example(batch, i, answer.classes, mask, miou))

    def _example(
        self, batch: Batch, i: int, classes: Tensor, mask: Tensor, miou: float
    ) -> tuple[CaptionedImage, set[int]]:
        """An image on the page, and the classes that its pictures show."""
        from PIL import Image

        factor = min(SIDE / max(mask.shape), 1.0)
        size = (max(round(mask.shape[0] * factor), 1), max(round(mask.shape[1] * factor), 1))
        shown: set[int] = set()
        pictures = [picture(self.picture(batch, i, SIDE), "input")]
        for each, name in ((mask, "ground truth"), (classes, "prediction")):
            small = resized_mask(each, size)
            shown |= set(small.unique().tolist())
            drawn = Image.fromarray(coloured(small.numpy(), list(self.colours.values())))
            pictures.append(picture(drawn, name, exact=True))
        return CaptionedImage(pictures, batch.ids[i], f"mean IoU {miou:.3f}"), shown

    def headline(self, result: Mapping[str, Any]) -> dict[str, Number]:
        return {
            "mean IoU": measured(result, "miou", 2),
            "pixel accuracy": measured(result, "pixel_accuracy", 2),
            "mean accuracy": measured(result, "mean_accuracy", 2),
        }

    def sections(self, result: Mapping[str, Any]) -> list[Section]:
        columns = {key: key for key in ("pixels", "iou", "accuracy", "precision")} | {"iou": "IoU"}
        table = class_table(result["classes"], columns, "iou", self.colours)
        matrix = charts.confusion_matrix(list(result["classes"]), result["confusion"])
        shown = set[int]().union(*(classes for _, classes in self.worst.found))
        legend: dict[str, Colour | None] = {
            name: colour for i, (name, colour) in enumerate(self.colours.items()) if i in shown
        }
        if IGNORED in shown:
            legend["ignored"] = None
        return [
            Section("Confusion matrix", figures=[(matrix, "")], half=True),
            Section("Classes, the hardest first", NOTE, table=table, half=True),
            Section(
                "Worst images",
                "By their own mean IoU: the input, the ground truth, the prediction.",
                legend=legend,
                examples=[example for example, _ in self.worst.found],
            ),
        ]


@dataclass(frozen=True, kw_only=True)
class PixelExplanation(MapExplanation):
    """Attention and rollout of the patch in which one pixel lies."""

    result: Segmentation
    pixel: Pixel
    at: Pixel
    prediction: Tensor
    """(h, w): the predicted class of each pixel of what the model sees, without padding."""


class PixelQuery(Query):
    """Why is this pixel of this class? About the patch in which it lies.

    Class maps are for the score of the class at that pixel if it was chosen, and else for its mean
    over all pixels that are predicted to show the class; or over all, where none is.
    """

    kind = PixelExplanation
    own = False

    def __init__(
        self, predictor: Predictor, image: Tensor, name: str, pixel: Pixel | None = None
    ) -> None:
        self.predictor, self.image, self.name = predictor, image, name
        height, width = image.shape[1:]
        self.chosen = pixel is not None
        self.pixel = (height // 2, width // 2) if pixel is None else pixel
        check_inside(self.pixel, image, name)
        self.view = predictor.view(image, name, self.pixel)
        self.at, self.pixels = mark_pixel(self.view, self.pixel)
        self.read = pixel_reader(self.pixels)

    def most_likely(self, output: Tensor, count: int) -> list[int]:
        if self.chosen:
            scores = output[0, :, self.at[0], self.at[1]]
            return scores.argsort(descending=True, stable=True)[:count].tolist()
        areas = self._prediction(output).flatten().bincount(minlength=output.shape[1])
        largest = areas.argsort(descending=True, stable=True)[:count]
        return largest[areas[largest] > 0].tolist()

    def wanted(self, output: Tensor, number: int) -> ExplainedScore:
        pixels = self.pixels if self.chosen else self._showing(output, number)
        share = (pixels / pixels.sum()).to(output.device)
        return ExplainedScore(
            lambda logits: (logits[0, number] * share).sum(), pixel_reader(pixels)
        )

    def result(self, output: Tensor) -> Any:
        """Of the whole image, of which the model may see only a window."""
        values = self.predictor.prepare(self.image, self.name)
        size = (self.image.shape[1], self.image.shape[2])
        return self.predictor.answer([Prepared(values, self.name, size)])[0]

    def fields(self, output: Tensor) -> dict[str, Any]:
        asked = {"pixel": self.pixel, "at": self.at, "chosen": self.chosen}
        return {**asked, "prediction": self._prediction(output)}

    def _prediction(self, output: Tensor) -> Tensor:
        height, width = self.view.inside
        return output[0, :, :height, :width].argmax(dim=0).cpu()

    def _showing(self, output: Tensor, number: int) -> Tensor:
        """(h, w): 1 where the class is predicted, or, if nowhere, wherever the image is."""
        there = self._prediction(output) == number
        found = torch.zeros_like(self.pixels)
        found[: there.shape[0], : there.shape[1]] = there if there.any() else 1.0
        return found


class SegmentShow(Show):
    headings = ("size", "largest", "share>", "then")
    endings = draw.ENDINGS
    page_answer = "mask"
    takes_pixel = True
    mask_formats = ("png", "rle")
    has_picture = True
    report = SegmentReport

    def row(self, result: Segmentation, top: int) -> tuple[str, ...]:
        height, width = result.mask.shape
        best, *others = list(result.areas.items())[:top]
        rest = ", ".join(f"{name} {percent(share)}" for name, share in others)
        return f"{height}x{width}", best[0], percent(best[1]), rest

    def write(
        self, result: Segmentation, image: Tensor, folder: Path, name: str, predictor: Predictor
    ) -> None:
        draw.write(result, image, folder, name)

    def served(self, result: Segmentation, top: int | None, masks: str | None) -> dict[str, Any]:
        """The mask as the picture that `predict --out` writes, or each class's as run lengths."""
        found = self.record(result, 5)
        if masks == "png":
            found["mask"] = {"png": png_base64(draw.mask_picture(result))}
        elif masks == "rle":
            for each in found["classes"]:
                each["segmentation"] = in_text(encode(result.where(each["label"])))
        return found

    def picture(self, result: Segmentation, image: Tensor) -> Image:
        return draw.frame(image, result)

    def target_panel(self, image: Tensor, target: Any, labels: LabelMap) -> Panel:
        return Panel(overlaid(image, target, labels.external))

    def words(self, result: Segmentation) -> str:
        return _largest(result.areas)

    def truth_words(self, target: Tensor, labels: LabelMap) -> str:
        counts = target[target != IGNORED].long().bincount(minlength=len(labels))
        shares = (counts / counts.sum().clamp(min=1)).tolist()
        return _largest({labels.names[i]: share for i, share in enumerate(shares) if share})

    def conflict(self, result: Segmentation, other: Segmentation) -> float:
        """Over all pixels the mean of the smaller probability where classes differ, else of 0."""
        both = np.minimum(result.confidence, other.confidence).astype(np.float64)
        return float((both * ~result.same_classes(other)).mean())

    def beside(
        self, image: Tensor, target: Any, results: Sequence[Any], labels: LabelMap
    ) -> list[Image]:
        size, truth = (image.shape[1], image.shape[2]), (target, labels.external)
        masks = [truth, *((torch.from_numpy(each.mask), each.ids) for each in results)]
        drawn = (overlaid(image / 255, resized_mask(mask, size), ids) for mask, ids in masks)
        return [as_picture(each) for each in drawn]

    def legend(self, labels: LabelMap) -> Mapping[str, Colour]:
        return class_colours(labels.names, labels.external)

    def figures(self, result: Mapping[str, Any]) -> dict[str, Figure]:
        return {
            "classes": charts.class_scores(result["classes"], "iou", "intersection over union"),
            "confusion": charts.confusion_matrix(list(result["classes"]), result["confusion"]),
        }

    def query(self, predictor: Predictor, image: Any, pixel: Pixel | None) -> PixelQuery:
        return PixelQuery(predictor, *predictor.read(image), pixel)

    def map_figure(self, found: PixelExplanation) -> Figure:
        """The prediction beside the maps."""
        image, pixels, result = found.image, found.pixels, found.result
        colours = list(class_colours(result.names, result.ids).items())
        predicted = dict(colours[i] for i in found.prediction.unique().tolist())
        overlay = overlaid(image, found.prediction, result.ids)
        ring = found.at if found.chosen else None  # else maps are for all pixels of their class
        drawn = [
            *inputs(found),
            Panel(overlay, "prediction", legend=predicted),
            Panel(image, "rollout from the pixel", found.rollout, SCALE, pixels, ring=found.at),
            *(
                Panel(image, f"for {name}", values, SCALE, pixels, ring=ring)
                for name, values in found.class_maps.items()
            ),
        ]
        return maps.grid(maps.wrapped(drawn))

    def answer(self, found: PixelExplanation) -> Message:
        y, x = found.pixel
        result = found.result
        name, score = result.names[result.mask[y, x]], float(result.confidence[y, x])
        return ["pixelIs", y, x, name, percent(score)]


def _largest(shares: Mapping[str, float], most: int = 3) -> str:
    """The classes with the largest shares of an image."""
    best = sorted(shares.items(), key=lambda item: -item[1])[:most]
    return ", ".join(f"{name} {percent(share, 0)}" for name, share in best) or "nothing"


SHOW = SegmentShow()
