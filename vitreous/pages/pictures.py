"""Images as pictures: of any type and size, in files and inside pages.

Pictures may be large: they stay whole numbers of 8 bits, and are worked on in bands of rows.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vitreous.atomic_write import replacing

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFont import FreeTypeFont

Pixels = NDArray[np.uint8]
"""(h, w, 3)"""

BAND = 256
"""Rows that are worked on at a time."""
JPEG_SIDE, WEBP_SIDE = 65_500, 16_383
"""The longest sides that these formats can have."""
DATA = ".json"


def as_picture(image: Tensor) -> Image:
    """(c, h, w) in 0..1; of two or many channels, the first."""
    from PIL import Image

    shown = image if image.shape[0] in (1, 3) else image[:1]
    array = (shown.clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).cpu().numpy()
    return Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)


def as_tensor(pixels: Pixels) -> Tensor:
    """(h, w, 3) of 8 bits -> (3, h, w) in 0..1"""
    return torch.from_numpy(pixels.copy()).permute(2, 0, 1) / 255


def in_bands(image: Tensor) -> Iterator[tuple[slice, Pixels]]:
    """An image (c, h, w) as it is stored, some rows after the others, as it is looked at."""
    shown = image if image.shape[0] == 3 else image[:1]  # of two or many channels the first
    darkest, brightest = _range(shown)
    for first in range(0, image.shape[1], BAND):
        rows = slice(first, min(first + BAND, image.shape[1]))
        yield rows, _as_bytes(shown[:, rows], darkest, brightest)


def thumbnail(image: Tensor, most: int = 800) -> Tensor:
    """An image (c, h, w) as it is stored -> (3, h, w) in 0..1, at most so many pixels long."""
    from PIL import Image

    small = Image.fromarray(np.concatenate([pixels for _, pixels in in_bands(image)]))
    small.thumbnail((most, most))
    return as_tensor(np.asarray(small))


def _range(image: Tensor) -> tuple[float, float]:
    """What is drawn black and white: of 16 bits and of floating point, what the image has."""
    if image.dtype == torch.uint8:
        return 0.0, 255.0
    values = image.numpy()  # torch knows no smallest number of uint16
    return float(values.min()), float(values.max())


def _as_bytes(image: Tensor, darkest: float, brightest: float) -> Pixels:
    """(1 or 3, h, w) as stored -> (h, w, 3)"""
    pixels = image.expand(3, -1, -1).permute(1, 2, 0).numpy()
    if pixels.dtype == np.uint8:
        return pixels
    shares = (pixels.astype(np.float32) - darkest) / max(brightest - darkest, 1e-12)
    return (255 * shares).round().astype(np.uint8)


@lru_cache(maxsize=4)
def font(size: int) -> FreeTypeFont:
    """The one that matplotlib brings along: it knows more alphabets than Pillow's own."""
    from matplotlib import get_data_path
    from PIL import ImageFont

    return ImageFont.truetype(str(Path(get_data_path(), "fonts", "ttf", "DejaVuSans.ttf")), size)


def fitting(words: str, letters: FreeTypeFont, room: float) -> str:
    """The words with their middle left out where they are too long."""
    most = len(words)
    while most > 3 and letters.getlength(short(words, most)) > room:
        most -= 1
    return short(words, most)


def short(name: str, most: int = 20) -> str:
    """A name with its middle left out where it is long: the ends are what tells names apart."""
    if len(name) <= most:
        return name
    end = most // 3
    return f"{name[: most - end - 1]}…{name[-end:]}"


def save(drawn: Image, folder: Path, name: str, endings: tuple[str, str]) -> str:
    """As JPEG, or where it is too large for that as PNG, by their endings; the file's name."""
    file = f"{name}{endings[max(drawn.size) > JPEG_SIDE]}"
    options = {} if file.endswith(".png") else {"quality": 92, "subsampling": 0}
    save_picture(drawn, folder / file, **options)
    return file


def save_picture(picture: Image, path: Path, **options: Any) -> None:
    """As the ending says, by Pillow."""
    from PIL import Image

    kind = Image.registered_extensions()[path.suffix.lower()]
    with replacing(path, sync=False) as temporary:
        picture.save(temporary, kind, **options)


def save_data(values: dict[str, Any], folder: Path, name: str) -> None:
    text = json.dumps(values, indent=2) + "\n"
    with replacing(folder / f"{name}{DATA}", sync=False) as temporary:
        temporary.write_text(text, encoding="utf-8")


def data_url(picture: Image, *, exact: bool = False) -> str:
    """The picture itself as an address: small ones exactly, large ones as WebP unless `exact`, or
    longer than WebP can be."""
    buffer = io.BytesIO()
    exact = exact or not 64 < max(picture.size) <= WEBP_SIDE
    picture.save(buffer, "PNG" if exact else "WEBP", **({} if exact else {"quality": 90}))
    return _url("png" if exact else "webp", buffer)


def png_base64(picture: Image) -> str:
    """The picture as a PNG file, in text."""
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def smaller_url(url: str, least: int = 4000) -> str:
    """A PNG's address as one of a WebP, unless it is small anyway."""
    from PIL import Image

    if len(url) < least:
        return url
    with Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))) as picture:
        return min(url, data_url(picture), key=len)


def steps_url(values: Tensor) -> str:
    """(h, w) of whole numbers 0 to 15 as a gray PNG of half a byte each; 15 is white."""
    from PIL import Image

    buffer = io.BytesIO()
    picture = Image.fromarray(values.cpu().numpy().astype(np.uint8))
    picture.putpalette([17 * (i // 3) for i in range(48)])
    picture.save(buffer, "PNG", bits=4, optimize=True)
    return _url("png", buffer)


def _url(kind: str, buffer: io.BytesIO) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def stretched(values: Tensor) -> Tensor:
    """From the smallest to the largest value, as 0..1."""
    low, high = values.min(), values.max()
    return (values - low) / (high - low).clamp(min=1e-12)


def principal_colours(tokens: Tensor, grid: tuple[int, int]) -> Tensor:
    """(patches, d) -> (3, gh, gw) in 0..1: the three strongest principal components as red, green,
    blue. Patches with similar vectors look alike."""
    centred = (tokens - tokens.mean(dim=0)).float()
    rank = min(3, *centred.shape)
    u, s, _ = torch.linalg.svd(centred, full_matrices=False)
    parts = [stretched(u[:, i] * s[i]) for i in range(rank)]
    parts += [torch.zeros_like(parts[0])] * (3 - rank)
    return torch.stack(parts).unflatten(1, grid)
