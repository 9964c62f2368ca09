"""An image, what the encoder saw of it, and what the decoder made of that, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from vitreous.data.preprocess import Preprocess
from vitreous.pages.pictures import DATA, as_picture, save_data, save_picture
from vitreous.results import Reconstruction

if TYPE_CHECKING:
    from PIL.Image import Image

ENDING = "-reconstruction.png"
ENDINGS = (ENDING, DATA)
NAMES = ("image", "masked", "reconstruction")
HIDDEN = 0.5
"""The gray of hidden patches."""
SIDE = 128
"""Smaller pictures are enlarged, without smoothing, to at least this."""


def panels(values: Tensor, pixels: Tensor, mask: Tensor, preprocess: Preprocess) -> list[Image]:
    """values, pixels (c, h, w): the input and the prediction, normalised; mask (gh, gw)."""
    height, width = values.shape[1:]
    ph, pw = height // mask.shape[0], width // mask.shape[1]
    hidden = mask.bool().repeat_interleave(ph, dim=0).repeat_interleave(pw, dim=1)
    image, predicted = preprocess.restore(values), preprocess.restore(pixels)
    masked = torch.where(hidden, torch.full_like(image, HIDDEN), image)
    filled = torch.where(hidden, predicted, image)
    return [_enlarged(as_picture(each)) for each in (image, masked, filled)]


def _enlarged(picture: Image) -> Image:
    factor = -(-SIDE // max(picture.size))
    return picture.resize((picture.width * factor, picture.height * factor), resample=0)


def write(
    result: Reconstruction, values: Tensor, preprocess: Preprocess, folder: Path, name: str
) -> None:
    """The three pictures in one file; `values` as the model takes them."""
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    three = panels(
        values, torch.from_numpy(result.pixels), torch.from_numpy(result.mask), preprocess
    )
    gap = max(three[0].width // 32, 2)
    together = Image.new("RGB", (sum(p.width + gap for p in three) - gap, three[0].height), "white")
    for number, picture in enumerate(three):
        together.paste(picture, (number * (picture.width + gap), 0))
    save_picture(together, folder / f"{name}{ENDING}")
    save_data(result.to_dict() | {"reconstruction": f"{name}{ENDING}"}, folder, name)
