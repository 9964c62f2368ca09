"""How reconstructions are printed, drawn and reported: an image, what the encoder saw of it, and
what the decoder made of that, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from vitreous.data.loader import Batch
from vitreous.data.preprocess import Preprocess
from vitreous.pages.content import CaptionedImage, Section, picture
from vitreous.pages.pictures import DATA, as_picture, save_data, save_picture
from vitreous.predict import Predictor
from vitreous.results import Reconstruction
from vitreous.tasks.mae.task import MaskedImage
from vitreous.tasks.pretrain.show import PretrainReport, PretrainShow

if TYPE_CHECKING:
    from PIL.Image import Image

EXAMPLES, PER_BATCH = 12, 3
NOTE = """The image, what the encoder sees of it, and the decoder's prediction in the hidden
patches. The mask is the same for all images here; in training it is drawn anew every time."""
NORMALISED = """ Pixels are predicted relative to the mean and the standard deviation of their
patch; to draw them, those of the true patch are used, as in the paper: colour and contrast of a
patch are given, its pattern is predicted."""
ENDING = "-reconstruction.png"
NAMES = ("image", "masked", "reconstruction")
HIDDEN = 0.5
"""The gray of hidden patches."""
SIDE = 128
"""Smaller pictures are enlarged, without smoothing, to at least this."""


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
                three = panels(batch.images[i], found.pixels, found.mask, preprocess)
                pictures = [
                    picture(each, name, exact=max(batch.images[i].shape[1:]) < SIDE)
                    for each, name in zip(three, NAMES, strict=True)
                ]
                caption = f"loss {found.loss.item():.3f}"
                self.examples.append(CaptionedImage(pictures, batch.ids[i], caption))

    def sections(self, result: Mapping[str, Any]) -> list[Section]:
        normalised = self.predictor.model.config.normalised_pixels
        note = NOTE + (NORMALISED if normalised else "")
        return [Section("Reconstructions", note, examples=self.examples)]


class MAEShow(PretrainShow):
    headings = ("loss>", "hidden patches>")
    endings = (ENDING, DATA)
    report = MAEReport

    def row(self, result: Reconstruction, top: int) -> tuple[str, ...]:
        return f"{result.loss:.4f}", f"{int(result.mask.sum())} of {result.mask.size}"

    def write(
        self, result: Reconstruction, image: Tensor, folder: Path, name: str, predictor: Predictor
    ) -> None:
        """The three pictures in one file."""
        from PIL import Image

        values = predictor.prepare(image, result.image)
        found = torch.from_numpy(result.pixels), torch.from_numpy(result.mask)
        three = panels(values, *found, predictor.preprocess)
        width, height = three[0].size
        gap = max(width // 32, 2)
        together = Image.new("RGB", (3 * (width + gap) - gap, height), "white")
        for number, each in enumerate(three):
            together.paste(each, (number * (width + gap), 0))
        save_picture(together, folder / f"{name}{ENDING}")
        save_data(result.to_dict() | {"reconstruction": f"{name}{ENDING}"}, folder, name)


def panels(values: Tensor, pixels: Tensor, mask: Tensor, preprocess: Preprocess) -> list[Image]:
    """values, pixels (c, h, w): the input and the prediction, normalised; mask (gh, gw)."""
    height, width = values.shape[1:]
    ph, pw = height // mask.shape[0], width // mask.shape[1]
    hidden = mask.bool().repeat_interleave(ph, dim=0).repeat_interleave(pw, dim=1)
    image, predicted = preprocess.restore(values), preprocess.restore(pixels)
    masked = torch.where(hidden, torch.full_like(image, HIDDEN), image)
    filled = torch.where(hidden, predicted, image)
    times = -(-SIDE // max(height, width))
    return [
        as_picture(each).resize((width * times, height * times), resample=0)
        for each in (image, masked, filled)
    ]


SHOW = MAEShow()
