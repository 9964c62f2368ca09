"""Random changes to training images.

What happens to a sample is a function of (seed, epoch, sample) and of nothing else: not of the
worker, the rank or the batch it travels in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from vitreous.config import choice, fraction
from vitreous.data.preprocess import Preprocess
from vitreous.errors import ConfigError


@dataclass(frozen=True)
class Augment:
    """Which changes, and how strong."""

    crop: str = "resized"
    """resized (a random part, at the model's size), shift (a few pixels), or none."""
    scale: float = 0.35
    """With resized: the smallest part of the image's area that is cut out."""
    flip: bool = True
    """Mirror every second image."""
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
        object.__setattr__(self, "crop", choice("crop", self.crop, ("resized", "shift", "none")))
        fraction(self, "erase")
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

    def __call__(self, image: Tensor, preprocess: Preprocess) -> Tensor:
        """(c, h, w) as stored -> (channels, *image_size), normalised. Draws from torch's RNG."""
        from torchvision.transforms import v2

        height, width = preprocess.image_size  # type: ignore[misc]
        if self.crop == "resized":
            from vitreous.data.images import as_channels

            image = as_channels(image, preprocess.channels)
            cut = v2.RandomResizedCrop((height, width), scale=(self.scale, 1.0))
            box = cut.make_params([image])
            rows = slice(box["top"], box["top"] + box["height"])
            columns = slice(box["left"], box["left"] + box["width"])
            image = preprocess.resized(image[:, rows, columns], (height, width))
        else:
            image = preprocess.fit(image)
        if self.crop == "shift":
            image = _shifted(image)
        if self.flip and torch.rand(()) < 0.5:
            image = image.flip(-1)
        if self.randaugment:
            image = v2.RandAugment(num_ops=2, magnitude=self.randaugment)(image)
        if self.jitter:
            image = v2.ColorJitter(self.jitter, self.jitter, self.jitter)(image)
        values = preprocess.normalise(image)
        if self.erase:
            values = v2.RandomErasing(p=self.erase, value="random")(values)
        return values

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


def _shifted(image: Tensor) -> Tensor:
    """Moved by up to an eighth of its size; what comes in is what stands at the border."""
    height, width = image.shape[1:]
    dy, dx = height // 8, width // 8
    down = int(torch.randint(-dy, dy + 1, ())) if dy else 0
    right = int(torch.randint(-dx, dx + 1, ())) if dx else 0
    rows = torch.arange(height).sub_(down).clamp_(0, height - 1)
    columns = torch.arange(width).sub_(right).clamp_(0, width - 1)
    return image[:, rows][:, :, columns]
