"""Random changes to training images, and to the ground truth that belongs to them.

What happens to a sample is a function of (seed, epoch, position in the epoch, sample) and of
nothing else: not of the worker, the rank or the batch it travels in.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.config import choice, fraction, pair
from vitreous.data.decode.pixels import MAX_PIXELS, as_channels
from vitreous.data.preprocess import Preprocess
from vitreous.data.truth import Truth
from vitreous.errors import ConfigError, DataError, advice

CROPS = ("resized", "window", "shift", "none")
LONGEST_SIDE = 4 / 3
"""Of a part that is cut out, against its other side."""
TRIALS = 10
"""To find a part that fits into an image."""


class Cut(NamedTuple):
    """A part that is cut out of an image, in its pixels."""

    stored: tuple[int, int]
    """Height and width of the image."""
    top: int
    left: int
    height: int
    width: int

    def enough(self, size: tuple[int, int]) -> tuple[int, int]:
        """The height and width that the image must have, such that the part need not be enlarged
        to `size`."""
        (h, w), (height, width) = self.stored, size
        return -(-h * height // self.height), -(-w * width // self.width)

    def inside(self, size: tuple[int, int]) -> tuple[int, int, int, int]:
        """top, left, height and width of the part where the image has this size."""
        if size == self.stored:
            return self[1:]
        y, x = size[0] / self.stored[0], size[1] / self.stored[1]
        top, left = round(self.top * y), round(self.left * x)
        bottom, right = round((self.top + self.height) * y), round((self.left + self.width) * x)
        return top, left, max(bottom - top, 1), max(right - left, 1)


@dataclass(frozen=True)
class Augment:
    """Which changes, and how strong."""

    crop: str = "resized"
    """resized (a random part, at the model's size), window (resized by a random factor, then a
    window of the model's size from anywhere), shift (a few pixels), or none."""
    scale: float = 0.35
    """With resized: the smallest part of the image's area that is cut out."""
    zoom: tuple[float, float] = (0.5, 2.0)
    """With window: the smallest and the largest factor."""
    flip: bool = True
    """Flip every second image horizontally."""
    randaugment: int = 0
    """Magnitude of two random operations (RandAugment, Cubuk et al. 2020), 0 to 30; 0: none."""
    jitter: float = 0.0
    """Strength of random brightness, contrast and saturation."""
    erase: float = 0.0
    """Chance to overwrite a rectangle with noise (Zhong et al. 2020)."""
    mixup: float = 0.0
    """Alpha of Mixup: the image and its label are blended with another's."""
    cutmix: float = 0.0
    """Alpha of CutMix: a rectangle comes from another image. With both, each takes every second."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "crop", choice("crop", self.crop, CROPS))
        fraction(self, "erase")
        if not 0 < self.zoom[0] <= self.zoom[1] <= 16:
            raise ConfigError(f"zoom = {self.zoom}: expected two factors, the smaller one first")
        if not 0 < self.scale <= 1:
            raise ConfigError(f"scale = {self.scale}: expected a part, above 0 and up to 1")
        if not 0 <= self.randaugment <= 30:
            raise ConfigError(f"randaugment = {self.randaugment}: expected 0 (none) to 30")
        for name in ("jitter", "mixup", "cutmix"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} = {getattr(self, name)}: expected 0 or more")

    def check_channels(self, channels: int) -> None:
        """Changes of colour are defined for gray and for red, green and blue."""
        for name in ("randaugment", "jitter"):
            if getattr(self, name) and channels not in (1, 3):
                raise ConfigError(
                    f"{name} = {getattr(self, name)} needs images of 1 or 3 channels, not "
                    f"{channels}: leave it at 0"
                )

    @property
    def mixes(self) -> bool:
        return self.mixup > 0 or self.cutmix > 0

    @property
    def changes(self) -> list[str]:
        """The options by which an image looks different in each epoch."""
        random = [] if self.crop == "none" else ["crop"]
        others = ("flip", "randaugment", "jitter", "erase", "mixup", "cutmix")
        return [*random, *(name for name in others if getattr(self, name))]

    @property
    def needs_torchvision(self) -> bool:
        return bool(self.randaugment or self.jitter or self.erase)

    def __call__(
        self,
        image: Tensor,
        truth: Any,
        preprocess: Preprocess,
        moves: Truth,
        max_pixels: int = MAX_PIXELS,
        cut: Cut | None = None,
        *,
        pixels: bool = False,
    ) -> tuple[Tensor, Any]:
        """(c, h, w) as stored -> (channels, *image_size), normalised, and the truth moved with it.

        Where the truth allows any size, the crop `window` may give a smaller image. Draws from
        torch's RNG. cut: what `draw` has drawn for an image that then may have been decoded
        smaller. pixels: an image of bytes need not be normalised, if that is the last thing to do.
        """
        image = as_channels(image, preprocess.channels)
        moving = _Moving(image, truth, preprocess, moves, max_pixels)
        self._place(moving, cut)
        image, truth = moving.image, moving.truth
        if self.flip and torch.rand(()) < 0.5:
            image, truth = image.flip(-1), moves.hflip(truth, moving.size)
        if self.randaugment:
            image = transforms().RandAugment(num_ops=2, magnitude=self.randaugment)(image)
        if self.jitter:
            image = transforms().ColorJitter(self.jitter, self.jitter, self.jitter)(image)
        if pixels and image.dtype == torch.uint8 and not (self.erase or self.crop == "window"):
            return image, truth
        values = preprocess.normalise(image)
        if self.erase:
            values = transforms().RandomErasing(p=self.erase, value="random")(values)
        if self.crop == "window" and not moves.any_size:
            height, width = pair("image_size", preprocess.image_size)
            right, bottom = width - values.shape[2], height - values.shape[1]
            values = F.pad(values, (0, right, 0, bottom))  # with the mean colour
            truth = moves.pad(truth, right, bottom)
        return values, truth

    def draw(self, stored: tuple[int, int]) -> Cut:
        """What the crop `resized` cuts out of an image of this size. Draws from torch's RNG."""
        return random_part(stored, self.scale)

    def _place(self, moving: _Moving, cut: Cut | None) -> None:
        """What is seen of an image and how large; with window it may still be too small."""
        preprocess, size = moving.preprocess, pair("image_size", moving.preprocess.image_size)
        if self.crop == "resized":
            moving.crop(*(cut or self.draw(moving.size)).inside(moving.size))
            moving.resize(size)
            return
        if self.crop == "window":
            low, high = (math.log(factor) for factor in self.zoom)
            factor = math.exp(low + (high - low) * float(torch.rand(())))
            working = preprocess.working_size(*moving.size)
            zoomed = (max(1, round(working[0] * factor)), max(1, round(working[1] * factor)))
            moving.resize(zoomed)
            free = [max(have - want, 0) for have, want in zip(zoomed, size, strict=True)]
            top, left = (int(torch.randint(0, room + 1, ())) for room in free)
            moving.crop(top, left, *size)
            return
        if preprocess.whole:
            moving.resize(preprocess.working_size(*moving.size))
        else:
            moving.image = preprocess.fit(moving.image, moving.max_pixels)
        if moving.size != size and not moving.moves.any_size:
            sizes = "x".join(map(str, moving.size)), "x".join(map(str, size))
            raise DataError(
                f"is {sizes[0]} pixels large where {sizes[1]} are trained on: with crop = "
                f"{self.crop!r} nothing is cut out"
                f"{advice('; pass ', crop='window', resize='square')}"
            )
        if self.crop == "shift":
            moving.shift()

    def mix(self, first: Tensor, second: Tensor) -> tuple[Tensor, float]:
        """Two normalised images blended, and the share that the first one has."""
        both = self.mixup > 0 and self.cutmix > 0
        cut = self.cutmix > 0 and (not both or bool(torch.rand(()) < 0.5))
        alpha = self.cutmix if cut else self.mixup
        share = float(torch.distributions.Beta(alpha, alpha).sample())
        if not cut:
            return share * first + (1 - share) * second, share
        height, width = first.shape[1:]
        h, w = round(height * (1 - share) ** 0.5), round(width * (1 - share) ** 0.5)
        top = int(torch.randint(0, height - h + 1, ()))
        left = int(torch.randint(0, width - w + 1, ()))
        mixed = first.clone()
        mixed[:, top : top + h, left : left + w] = second[:, top : top + h, left : left + w]
        return mixed, 1 - h * w / (height * width)


class OwnAugment:
    """An augmentation from Python: `function(image)` or `function(image, truth)`, with an image
    (c, h, w) as it is stored, and the same back; ours follow. The truth is that of
    `Source.truth`; whoever moves what is in the image must move it too.

    Torch's, numpy's and Python's generators depend on the seed and the sample alone, so that a run
    that is resumed goes on as if it had not been stopped.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise ConfigError(f"augment = {function!r}: expected a function of an image")
        self.function = function
        self.name = getattr(function, "__qualname__", type(function).__name__)
        self.takes_truth = _needed(function) > 1

    def __call__(self, image: Tensor, truth: Any) -> tuple[Tensor, Any]:
        """Draws from torch's RNG, which `random_by` has seeded."""
        seed = int(torch.randint(2**32, ()))
        states = random.getstate(), np.random.get_state()
        random.seed(seed)
        np.random.seed(seed)
        try:
            found = self.function(image, truth) if self.takes_truth else self.function(image)
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])
        changed, truth = found if self.takes_truth else (found, truth)
        if not isinstance(changed, Tensor) or changed.ndim != 3:
            got = tuple(changed.shape) if isinstance(changed, Tensor) else type(changed).__name__
            raise ConfigError(f"augment: {self.name} gave {got}: expected an image (c, h, w)")
        if changed.dtype != image.dtype:
            raise ConfigError(
                f"augment: {self.name} made {changed.dtype} of {image.dtype}: convert it back, so "
                "that it is clear which value is white"
            )
        return changed, truth


def _needed(function: Callable[..., Any]) -> int:
    """How many arguments a function must be given; modules of torch hide theirs and take one."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 1
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in positional and p.default is inspect.Parameter.empty for p in parameters)


def seed_of(*parts: int | str) -> int:
    """A number for the random generator that depends on all parts and nothing else."""
    text = "/".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1


@contextmanager
def random_by(*parts: int | str) -> Iterator[None]:
    """Inside, torch's RNG on the CPU is a function of `parts`; outside, it is as if not touched."""
    generator = torch.default_generator
    state = generator.get_state()
    generator.manual_seed(seed_of(*parts))
    try:
        yield
    finally:
        generator.set_state(state)


def rescaled(images: Tensor, factor: float, pixels: int) -> Tensor:
    """(b, c, h, w) -> (b, c, h', w'): sides times `factor`, as multiples of `pixels`."""
    size = [max(round(side * factor / pixels), 1) * pixels for side in images.shape[2:]]
    return F.interpolate(images, size, mode="bilinear", align_corners=False, antialias=True)


def random_part(stored: tuple[int, int], scale: float) -> Cut:
    """A part of an image with `scale` to 1 of its area, about square (Szegedy et al. 2015, section
    6, with the sides that torchvision draws: importing it takes as long as importing torch)."""
    height, width = stored
    for area, shape, down, right in torch.rand(TRIALS, 4).tolist():
        area = height * width * (scale + area * (1 - scale))
        ratio = LONGEST_SIDE ** (2 * shape - 1)
        h, w = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
        if 0 < h <= height and 0 < w <= width:
            return Cut(stored, int(down * (height - h + 1)), int(right * (width - w + 1)), h, w)
    # a strip: as much of its centre as has an allowed shape
    h, w = min(height, round(width * LONGEST_SIDE)), min(width, round(height * LONGEST_SIDE))
    return Cut(stored, (height - h) // 2, (width - w) // 2, h, w)


@dataclass
class _Moving:
    """An image (c, h, w) and its ground truth, which is moved with it."""

    image: Tensor
    truth: Any
    preprocess: Preprocess
    moves: Truth
    max_pixels: int

    @property
    def size(self) -> tuple[int, int]:
        return self.image.shape[1], self.image.shape[2]

    def crop(self, top: int, left: int, height: int, width: int) -> None:
        self.truth = self.moves.crop(self.truth, self.size, top, left, height, width)
        self.image = self.image[:, top : top + height, left : left + width]

    def resize(self, size: tuple[int, int]) -> None:
        self.truth = self.moves.resize(self.truth, self.size, size)
        self.image = self.preprocess.resized(self.image, size, self.max_pixels)

    def shift(self) -> None:
        """By up to an eighth of the size; the pixels at the border are repeated."""
        height, width = self.size
        dy, dx = height // 8, width // 8
        down = int(torch.randint(-dy, dy + 1, ())) if dy else 0
        right = int(torch.randint(-dx, dx + 1, ())) if dx else 0
        rows = torch.arange(height).sub_(down).clamp_(0, height - 1)
        columns = torch.arange(width).sub_(right).clamp_(0, width - 1)
        self.image = self.image[:, rows][:, :, columns]
        self.truth = self.moves.shift(self.truth, rows, columns)


def transforms() -> Any:
    """torchvision's transforms. Importing them takes as long as importing torch: only if needed."""
    from torchvision.transforms import v2

    return v2
