"""Why a pixel is of its class: the attention of its patch, and class maps for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vitreous.explain.attention import pixel_reader
from vitreous.explain.class_maps import ExplainedScore
from vitreous.explain.explanation import MapExplanation, Pixel
from vitreous.explain.query import Query, check_inside, mark_pixel
from vitreous.predict import Predictor, Prepared
from vitreous.results import Segmentation


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
