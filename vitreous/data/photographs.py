"""Two real photographs that every installation has: scikit-learn's china.jpg and flower.jpg."""

from __future__ import annotations

from importlib.resources import files

import torch
from torch import Tensor

from vitreous.data.decode.images import read_image


def photographs(channels: int = 3) -> list[Tensor]:
    """(channels, 427, 640) each, uint8; more than three channels repeat."""
    folder = files("sklearn.datasets.images")
    images = [read_image(str(folder / name)) for name in ("china.jpg", "flower.jpg")]
    return [image[torch.arange(channels) % 3] for image in images]
