"""Channels of an image: gray, colour, colour with alpha, and any other number of them."""

from __future__ import annotations

import torch
from torch import Tensor

from vitreous.data.decode.pixels import over_white
from vitreous.errors import DataError


def as_channels(image: Tensor, channels: int) -> Tensor:
    """(c, h, w) to (channels, h, w): gray to RGB by repeating, RGB to gray by luminance.

    Luminance is that of ITU-R 601, as everywhere: 0.299 R + 0.587 G + 0.114 B.
    """
    have = image.shape[0]
    if have == channels:
        return image
    if have == 1 and channels == 3:
        return image.expand(3, -1, -1)
    if have == 3 and channels == 1:
        weights = torch.tensor([0.299, 0.587, 0.114], device=image.device).view(3, 1, 1)
        gray = (image.to(torch.float32) * weights).sum(0, keepdim=True)
        return gray if image.is_floating_point() else gray.round().to(image.dtype)
    raise DataError(other_channels(have, channels))


def can_be(have: int, channels: int) -> bool:
    """Whether `as_channels` can convert one into the other."""
    return have == channels or {have, channels} == {1, 3}


def other_channels(have: int, channels: int) -> str:
    """The error for an image that `as_channels` cannot convert."""
    return (
        f"has {have} channels, expected {channels}: only 1 and 3 can be converted into each other"
    )


def without_alpha(image: Tensor) -> Tensor:
    """(4, h, w) of whole numbers with alpha, as seen on white: (3, h, w)."""
    pixels = over_white(image.permute(1, 2, 0).numpy())
    return torch.from_numpy(pixels).permute(2, 0, 1)
