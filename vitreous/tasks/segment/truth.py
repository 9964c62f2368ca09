"""A mask, and how it moves with its image."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.data.truth import Size, Truth
from vitreous.labels import IGNORED


class MaskTruth(Truth):
    """(h, w) of int16: the class of each pixel, or IGNORED."""

    def crop(
        self, truth: Tensor, size: Size, top: int, left: int, height: int, width: int
    ) -> Tensor:
        return truth[top : top + height, left : left + width]

    def resize(self, truth: Tensor, size: Size, new: Size) -> Tensor:
        return resized_mask(truth, new)

    def hflip(self, truth: Tensor, size: Size) -> Tensor:
        return truth.flip(-1)

    def shift(self, truth: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        return truth[rows][:, columns]

    def classes(self, truth: Tensor) -> list[int]:
        return [number for number in truth.unique().tolist() if number != IGNORED]

    def pad(self, truth: Tensor, right: int, bottom: int) -> Tensor:
        return F.pad(truth, (0, right, 0, bottom), value=IGNORED)


def resized_mask(mask: Tensor, size: tuple[int, int]) -> Tensor:
    """(h, w) of whole numbers at another size: each pixel takes the nearest one's class.

    Pixels count by their centres, as they do when images are resized; torchvision's masks count by
    their corners, which moves them by up to half a pixel against the image.
    """
    if tuple(mask.shape) == size:
        return mask
    rows, columns = (
        ((torch.arange(new) + 0.5) * (old / new)).long().clamp_(max=old - 1)
        for old, new in zip(mask.shape, size, strict=True)
    )
    return mask[rows][:, columns]
