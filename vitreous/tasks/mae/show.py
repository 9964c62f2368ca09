"""How reconstructions are printed, drawn and reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from vitreous.data.loader import Batch
from vitreous.pages.content import CaptionedImage, Section, picture
from vitreous.predict import Predictor
from vitreous.results import Reconstruction
from vitreous.tasks.mae import draw
from vitreous.tasks.mae.task import MaskedImage
from vitreous.tasks.pretrain.show import PretrainReport, PretrainShow

EXAMPLES, PER_BATCH = 12, 3
NOTE = """The image, what the encoder sees of it, and the decoder's prediction in the hidden
patches. The mask is the same for all images here; in training it is drawn anew every time."""
NORMALISED = """ Pixels are predicted relative to the mean and the standard deviation of their
patch; to draw them, those of the true patch are used, as in the paper: colour and contrast of a
patch are given, its pattern is predicted."""


class MAEReport(PretrainReport):
    """Some images with their reconstructions."""

    def __init__(self, predictor: Predictor) -> None:
        super().__init__(predictor)
        self.examples: list[CaptionedImage] = []

    def see(self, batch: Batch, output: Sequence[MaskedImage], targets: Any) -> None:
        step = max(len(output) // PER_BATCH, 1)
        for i in range(0, len(output), step)[:PER_BATCH]:
            if len(self.examples) < EXAMPLES:
                found, preprocess = output[i], self.predictor.preprocess
                three = draw.panels(batch.images[i], found.pixels, found.mask, preprocess)
                pictures = [
                    picture(each, name, exact=max(batch.images[i].shape[1:]) < draw.SIDE)
                    for each, name in zip(three, draw.NAMES, strict=True)
                ]
                caption = f"loss {found.loss.item():.3f}"
                self.examples.append(CaptionedImage(pictures, batch.ids[i], caption))

    def sections(self, result: Mapping[str, Any]) -> list[Section]:
        normalised = self.predictor.model.config.normalised_pixels
        note = NOTE + (NORMALISED if normalised else "")
        return [Section("Reconstructions", note, examples=self.examples)]


class MAEShow(PretrainShow):
    headings = ("loss>", "hidden patches>")
    endings = draw.ENDINGS

    def row(self, result: Reconstruction, top: int) -> tuple[str, ...]:
        return f"{result.loss:.4f}", f"{int(result.mask.sum())} of {result.mask.size}"

    def write(
        self, result: Reconstruction, image: Tensor, folder: Path, name: str, predictor: Predictor
    ) -> None:
        values = predictor.prepare(image, result.image)
        draw.write(result, values, predictor.preprocess, folder, name)

    def report(self, predictor: Predictor) -> MAEReport:
        return MAEReport(predictor)


SHOW = MAEShow()
