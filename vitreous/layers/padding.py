"""Images of several sizes in one batch: padded with zeros at the bottom and right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.layers.resample import Grid

Images = Tensor | Sequence[Tensor]
"""(b, c, h, w), or (c, h, w) each, of any sizes."""


class Padding(NamedTuple):
    """What of a padded batch is image."""

    sizes: Tensor
    """(b, 2): height and width of each image,"""
    padded: Grid
    """and of all with their padding."""

    def on(self, grid: Grid) -> tuple[Tensor, Tensor]:
        """Which positions of a map are image, (b, gh, gw), and how many rows and columns, (b, 2).

        A row is image if the pixel nearest to its beginning is, as in DETR's code; the first is.
        """
        rows, columns = (
            (torch.arange(length, device=self.sizes.device) * (whole / length)).floor() < inside
            for length, whole, inside in zip(
                grid, self.padded, self.sizes.T[..., None], strict=True
            )
        )
        inside = rows[:, :, None] & columns[:, None]
        return inside, torch.stack((rows.sum(dim=1), columns.sum(dim=1)), dim=1)


def pad(images: Images) -> tuple[Tensor, Padding | None]:
    """(c, h, w) each -> (b, c, h, w), and what of it is image: None if all of it is."""
    if isinstance(images, Tensor):
        return images, None
    sizes = [(image.shape[1], image.shape[2]) for image in images]
    height, width = (max(side) for side in zip(*sizes, strict=True))
    batch = torch.stack([F.pad(i, (0, width - i.shape[2], 0, height - i.shape[1])) for i in images])
    if len(set(sizes)) == 1:
        return batch, None
    return batch, Padding(torch.tensor(sizes, device=batch.device), (height, width))
