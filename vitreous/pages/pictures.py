"""Tensors as small pictures inside pages."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from PIL.Image import Image


LONGEST_WEBP = 16_383


def as_picture(image: Tensor) -> Image:
    """(c, h, w) in 0..1; of two or many channels, the first."""
    from PIL import Image

    shown = image if image.shape[0] in (1, 3) else image[:1]
    array = (shown.clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).cpu().numpy()
    return Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)


def data_url(picture: Image, *, exact: bool = False) -> str:
    """The picture itself as an address: small ones exactly, large ones as WebP unless `exact`, or
    longer than WebP can be."""
    buffer = io.BytesIO()
    exact = exact or not 64 < max(picture.size) <= LONGEST_WEBP
    picture.save(buffer, "PNG" if exact else "WEBP", **({} if exact else {"quality": 90}))
    kind = "png" if exact else "webp"
    return f"data:image/{kind};base64," + base64.b64encode(buffer.getvalue()).decode()


def steps_url(values: Tensor) -> str:
    """(h, w) of whole numbers 0 to 15 as a gray PNG of half a byte each; 15 is white."""
    from PIL import Image

    buffer = io.BytesIO()
    picture = Image.fromarray(values.cpu().numpy().astype(np.uint8))
    picture.putpalette([17 * (i // 3) for i in range(48)])
    picture.save(buffer, "PNG", bits=4, optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def stretched(values: Tensor) -> Tensor:
    """From the smallest to the largest value, as 0..1."""
    low, high = values.min(), values.max()
    return (values - low) / (high - low).clamp(min=1e-12)


def principal_colours(tokens: Tensor, grid: tuple[int, int]) -> Tensor:
    """(patches, d) -> (3, gh, gw) in 0..1: the three strongest directions as red, green, blue.

    Patches that the model holds to be alike look alike.
    """
    centred = (tokens - tokens.mean(dim=0)).float()
    rank = min(3, *centred.shape)
    u, s, _ = torch.linalg.svd(centred, full_matrices=False)
    parts = [stretched(u[:, i] * s[i]) for i in range(rank)]
    parts += [torch.zeros_like(parts[0])] * (3 - rank)
    return torch.stack(parts).unflatten(1, grid)
