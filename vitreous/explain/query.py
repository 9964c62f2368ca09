"""What is asked about an image, by task: whose attention is shown, and what class maps are for."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from vitreous.errors import ConfigError
from vitreous.explain.attention import Reader, head_reader, pixel_reader
from vitreous.explain.class_maps import Wanted
from vitreous.predict import Predictor, Prepared, View

Pixel = tuple[int, int]
"""y and x"""


class Asked(NamedTuple):
    """The pixel that is asked about, and what is said around it."""

    pixel: Pixel
    """In the image as given."""
    at: Pixel
    """In what the model sees."""
    chosen: bool
    """By the user, not for being in the middle: then class maps are for this pixel alone."""
    said: Tensor
    """(h, w): the class of each pixel of what the model sees, without the filling."""


class Question:
    """About one image, (c, h, w) as `Predictor.read` gives it."""

    view: View
    read: Reader
    """The tokens whose attention is shown and followed back."""
    own = True
    """Whether what they kept of themselves counts."""

    def __init__(self, predictor: Predictor, image: Tensor, name: str) -> None:
        self.predictor, self.image, self.name = predictor, image, name

    def likeliest(self, output: Tensor, count: int) -> list[int]:
        """At most so many classes to make maps for; output: the model's, of one image."""
        raise NotImplementedError

    def wanted(self, output: Tensor, number: int) -> Wanted:
        """What the map of a class is made for."""
        raise NotImplementedError

    def result(self, output: Tensor) -> Any:
        """What the task says of the image."""
        raise NotImplementedError

    def asked(self, output: Tensor) -> Asked | None:
        """Where in the image the question is about."""
        return None


class OfImage(Question):
    """Why does it show this class? For classification: the tokens that the head reads."""

    def __init__(self, predictor: Predictor, image: Tensor, name: str) -> None:
        super().__init__(predictor, image, name)
        self.view = predictor.view(image, name)
        self.read = head_reader(predictor.model)

    def likeliest(self, output: Tensor, count: int) -> list[int]:
        return output[0].argsort(descending=True, stable=True)[:count].tolist()

    def wanted(self, output: Tensor, number: int) -> Wanted:
        return Wanted(lambda logits: logits[0, number], self.read)

    def result(self, output: Tensor) -> Any:
        return self.predictor.task.decode(output.cpu(), [self.name])[0]


class OfPixel(Question):
    """Why is this pixel of this class? For segmentation: the patch in which it lies.

    Class maps are for the score of the class at that pixel if it was chosen, and else for its mean
    over all pixels that are said to show the class; or over all, where none is.
    """

    own = False

    def __init__(
        self, predictor: Predictor, image: Tensor, name: str, pixel: Pixel | None = None
    ) -> None:
        super().__init__(predictor, image, name)
        height, width = image.shape[1:]
        self.chosen = pixel is not None
        self.pixel = (height // 2, width // 2) if pixel is None else pixel
        check_inside(self.pixel, image, name)
        self.view = predictor.view(image, name, self.pixel)
        self.at = self.view.place(*self.pixel)
        self.pixels = torch.zeros(self.view.values.shape[1:])
        self.pixels[self.at] = 1
        self.read = pixel_reader(self.pixels)

    def likeliest(self, output: Tensor, count: int) -> list[int]:
        if self.chosen:
            scores = output[0, :, self.at[0], self.at[1]]
            return scores.argsort(descending=True, stable=True)[:count].tolist()
        areas = self._said(output).flatten().bincount(minlength=output.shape[1])
        largest = areas.argsort(descending=True, stable=True)[:count]
        return largest[areas[largest] > 0].tolist()

    def wanted(self, output: Tensor, number: int) -> Wanted:
        pixels = self.pixels if self.chosen else self._showing(output, number)
        share = (pixels / pixels.sum()).to(output.device)
        return Wanted(lambda logits: (logits[0, number] * share).sum(), pixel_reader(pixels))

    def result(self, output: Tensor) -> Any:
        """Of the whole image, of which the model may see only a part at once."""
        values = self.predictor.prepare(self.image, self.name)
        size = (self.image.shape[1], self.image.shape[2])
        return self.predictor.answer([Prepared(values, self.name, size)])[0]

    def asked(self, output: Tensor) -> Asked:
        return Asked(self.pixel, self.at, self.chosen, self._said(output))

    def _said(self, output: Tensor) -> Tensor:
        height, width = self.view.inside
        return output[0, :, :height, :width].argmax(dim=0).cpu()

    def _showing(self, output: Tensor, number: int) -> Tensor:
        """(h, w): 1 where the class is said to be, or, if nowhere, wherever the image is."""
        there = self._said(output) == number
        found = torch.zeros_like(self.pixels)
        found[: there.shape[0], : there.shape[1]] = there if there.any() else 1.0
        return found


def check_inside(pixel: Pixel, image: Tensor, name: str) -> None:
    height, width = image.shape[1:]
    if not (0 <= pixel[0] < height and 0 <= pixel[1] < width):
        raise ConfigError(
            f"pixel = {pixel}: {name} is {height}x{width} (height x width): y goes from 0 to "
            f"{height - 1}, x from 0 to {width - 1}"
        )


def ask(predictor: Predictor, image: Tensor, name: str, pixel: Pixel | None) -> Question:
    """The question that fits the task."""
    if predictor.task.name == "segment":
        return OfPixel(predictor, image, name, pixel)
    return OfImage(predictor, image, name)
