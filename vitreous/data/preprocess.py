"""The one way from an image to what a model takes. It is stored in the run and used everywhere:
training (behind the augmentation), evaluation, prediction, explanation, export and serving.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from vitreous.config import Size, choice, pair, positive
from vitreous.data.decode.pixels import MAX_PIXELS, as_channels, check_enlarged
from vitreous.errors import ConfigError

FULL_SCALE = {torch.uint8: 255.0, torch.uint16: 65535.0}
"""What counts as 1 in an image of whole numbers; floating-point images are taken as they are."""
MIN_CROP = 0.1
"""An image is enlarged by up to the inverse of it before its middle is cut out."""
INTERPOLATIONS = ("bilinear", "bicubic", "nearest")
PILLOW = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


@dataclass(frozen=True)
class Preprocess:
    """(c, h, w) as stored -> (channels, *image_size), normalised."""

    image_size: Size = 224
    channels: int = 3
    resize: str = "shorter"
    """shorter: the shorter side is resized, then the centre is cropped. square: both sides are
    resized, whatever becomes of the proportions. none (with whole): images stay as they are."""
    whole: bool = False
    """Nothing is cut out, for tasks that speak of every place: an image keeps its proportions and
    may be larger than image_size, which is then the window that goes over it."""
    longest: int | None = None
    """With shorter and whole: the longer side does not become longer than this; then the shorter
    one stays below image_size. For models that see an image at once, whatever its proportions."""
    crop: float = 1.0
    """With shorter: the part of the resized shorter side that the cut-out has."""
    interpolation: str = "bilinear"
    antialias: bool = True
    mean: tuple[float, ...] = (0.5,)
    """Per channel, or one for all, in the range 0..1."""
    std: tuple[float, ...] = (0.5,)

    def __post_init__(self) -> None:
        object.__setattr__(self, "image_size", pair("image_size", self.image_size))
        ways = ("shorter", "square", "none") if self.whole else ("shorter", "square")
        object.__setattr__(self, "resize", choice("resize", self.resize, ways))
        known = choice("interpolation", self.interpolation, INTERPOLATIONS)
        object.__setattr__(self, "interpolation", known)
        positive(self, "channels")
        if not MIN_CROP <= self.crop <= 1:
            raise ConfigError(f"crop = {self.crop}: expected a fraction from {MIN_CROP} to 1")
        if self.whole and self.crop < 1:
            raise ConfigError(f"crop = {self.crop}: of a whole image nothing is cut off")
        if self.longest is not None and not (self.whole and self.resize == "shorter"):
            raise ConfigError(
                f"longest = {self.longest}: only for whole images with resize = 'shorter'"
            )
        if self.longest is not None and self.longest < max(pair("", self.image_size)):
            raise ConfigError(
                f"longest = {self.longest} is shorter than a side of image_size {self.image_size}"
            )
        for name in ("mean", "std"):
            values = getattr(self, name)
            if not all(isinstance(v, int | float) and math.isfinite(v) for v in values):
                raise ConfigError(f"{name} = {values}: expected finite numbers")
            if len(values) not in (1, self.channels):
                raise ConfigError(
                    f"{name} = {values}: expected one value, or {self.channels}, one per channel"
                )
        if min(self.std) <= 0:
            raise ConfigError(f"std = {self.std}: expected numbers above 0")

    def described(self) -> str:
        """In one line of words."""
        height, width = pair("image_size", self.image_size)
        size, how = f"{height}x{width}", f"{self.interpolation}"
        if self.resize == "square":
            fit = f"both sides to {size}, {how}"
        elif self.resize == "none":
            fit = f"as they are, in windows of {size}"
        elif self.whole:
            limit = "" if self.longest is None else f", the longer at most {self.longest}"
            fit = f"shorter side to {min(height, width)}{limit}, {how}"
        else:
            shorter = int(min(height, width) / self.crop + 1e-9)
            fit = f"shorter side to {shorter}, {how}, centre crop {size}"
        mean, std = (" ".join(f"{v:g}" for v in values) for values in (self.mean, self.std))
        return f"{fit}, mean {mean}, std {std}"

    @property
    def at_once(self) -> int:
        """How many images to hold at a time unless said: whole ones may be large."""
        return 1 if self.resize == "none" else 8 if self.whole else 64

    def __call__(self, image: Tensor, max_pixels: int = MAX_PIXELS) -> Tensor:
        return self.normalise(self.fit(image, max_pixels))

    def fit(self, image: Tensor, max_pixels: int = MAX_PIXELS) -> Tensor:
        """Channels and size as the model wants them; the values as they are. An image that would be
        enlarged too far is a DataError, see `check_enlarged`."""
        image = as_channels(image, self.channels)
        height, width = pair("image_size", self.image_size)
        if image.shape[1:] == (height, width) and self.crop == 1:
            return image
        if self.whole or self.resize == "square":
            working = self.working_size(image.shape[1], image.shape[2])
            return self.resized(image, working, max_pixels, exact=True)
        (h, w), (top, left) = self._resized_and_cut(image.shape[1], image.shape[2])
        image = self.resized(image, (h, w), max_pixels, exact=True)
        return image[:, top : top + height, left : left + width]

    def working_size(self, h: int, w: int) -> tuple[int, int]:
        """Height and width to which an image of h x w is resized."""
        if self.resize == "square":
            return pair("image_size", self.image_size)
        if self.resize == "none":
            return h, w
        size = self._resized_and_cut(h, w)[0]
        if self.longest is None or max(size) <= self.longest:
            return size
        factor = self.longest / max(h, w)
        return max(round(h * factor), 1), max(round(w * factor), 1)

    def _resized_and_cut(self, h: int, w: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """With shorter: the size to resize to, and top and left of the cut-out in it."""
        height, width = pair("image_size", self.image_size)
        # The smallest size of the image's proportions that covers the cut-out and its margin. Parts
        # of a pixel are left away, first of what is to be covered and then of the longer side, as
        # torchvision and timm do it, and so most who train.
        tall, wide = (int(side / self.crop + 1e-9) for side in (height, width))
        factor = max(tall / h, wide / w)
        resized = max(tall, int(h * factor + 1e-9)), max(wide, int(w * factor + 1e-9))
        return resized, (round((resized[0] - height) / 2), round((resized[1] - width) / 2))

    def region(self, h: int, w: int) -> tuple[float, float, float, float]:
        """top, left, height and width of what a model sees of an image of h x w, in its pixels."""
        if self.whole or self.resize == "square":
            return 0.0, 0.0, float(h), float(w)
        height, width = pair("image_size", self.image_size)
        resized, (top, left) = self._resized_and_cut(h, w)
        y, x = h / resized[0], w / resized[1]
        return top * y, left * x, height * y, width * x

    def check_size(self, h: int, w: int, max_pixels: int = MAX_PIXELS) -> None:
        """An image of h x w that would be enlarged too far is a DataError."""
        if (h, w) != self.image_size:
            self._check_enlarged((h, w), self.working_size(h, w), max_pixels)

    def _check_enlarged(
        self, size: tuple[int, int], resized: tuple[int, int], max_pixels: int
    ) -> None:
        height, width = pair("image_size", self.image_size)
        check_enlarged(size, resized, max_pixels, own=height * width, seen=self.whole)

    def resized(
        self,
        image: Tensor,
        size: tuple[int, int],
        max_pixels: int = MAX_PIXELS,
        *,
        exact: bool = False,
    ) -> Tensor:
        """The image at another size, in its own type of values.

        exact: to the bit as Pillow resizes, with which nearly all public weights were trained and
        measured. torch is several times as fast, and half a percent of the values differ by
        one of 255: enough to change a prediction that is nearly a tie.
        """
        if tuple(image.shape[1:]) == size:
            return image
        self._check_enlarged((image.shape[1], image.shape[2]), size, max_pixels)
        if exact and image.dtype == torch.uint8 and self.antialias and self.interpolation in PILLOW:
            return _resized_by_pillow(image, size, PILLOW[self.interpolation])
        whole = image.dtype == torch.uint16  # which torch cannot resize
        batch = (image.float() if whole else image)[None]
        if is_interleaved(image):
            # As it lies in memory it takes half the time, if a part of an image is copied first.
            batch = image.permute(1, 2, 0).contiguous()[None].permute(0, 3, 1, 2)
        smooth = self.antialias and self.interpolation != "nearest"
        resized = F.interpolate(batch, size, mode=self.interpolation, antialias=smooth)[0]
        return resized.round().clamp(0, 65535).to(torch.uint16) if whole else resized

    def normalise(self, image: Tensor) -> Tensor:
        """Values to 0..1, then mean 0 and standard deviation 1 as far as the numbers are right."""
        values = image.to(torch.float32, memory_format=torch.contiguous_format, copy=True)
        values.div_(FULL_SCALE.get(image.dtype, 1.0))  # in place: memory is what takes time here
        return values.sub_(_column(self.mean)).div_(_column(self.std))

    def translator(self, other: Preprocess, device: torch.device) -> Callable[[Tensor], Tensor]:
        """Normalised batches (b, c, h, w) of this preprocessing into those of another one."""
        if other == self:
            return lambda images: images

        size = pair("image_size", other.image_size)
        mode = other.interpolation

        def translate(images: Tensor) -> Tensor:
            pixels = images * _column(self.std, device) + _column(self.mean, device)
            if self.channels != other.channels:
                pixels = as_channels(pixels.transpose(0, 1).flatten(1, 2), other.channels)
                pixels = pixels.unflatten(1, (len(images), -1)).transpose(0, 1)
            if tuple(pixels.shape[2:]) != size:
                smooth = other.antialias and mode != "nearest"
                pixels = F.interpolate(pixels, size, mode=mode, antialias=smooth)
            return (pixels - _column(other.mean, device)) / _column(other.std, device)

        return translate

    def restore(self, values: Tensor) -> Tensor:
        """What `normalise` made, as a picture in 0..1, to be looked at."""
        return (values * _column(self.std) + _column(self.mean)).clamp(0, 1)


def is_interleaved(image: Tensor) -> bool:
    """Whether the channels of a pixel lie beside each other in memory, as decoders write them."""
    return image.dtype == torch.uint8 and image.shape[:-2] == (3,) and image.stride(0) == 1


def _resized_by_pillow(image: Tensor, size: tuple[int, int], how: Image.Resampling) -> Tensor:
    """(c, h, w), uint8, to (c, *size)"""

    def resize(pixels: Tensor) -> Tensor:
        """(h, w) or (h, w, 3)"""
        resized = Image.fromarray(pixels.contiguous().numpy()).resize(size[::-1], how)
        return torch.from_numpy(np.array(resized))

    if image.shape[0] == 3:
        return resize(image.permute(1, 2, 0)).permute(2, 0, 1)
    return torch.stack([resize(channel) for channel in image])


def _column(values: tuple[float, ...], device: torch.device | None = None) -> Tensor:
    """(c, 1, 1)"""
    return torch.tensor(values, device=device).reshape(-1, 1, 1)
