"""What a task advises, from the data and the machine, where neither the recipe nor the weights
decide: the model, image size, batch, epochs and more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

from vitreous.config import Size
from vitreous.data.preprocess import Preprocess
from vitreous.data.source import Source
from vitreous.errors import ConfigError


class Glance(NamedTuple):
    """What some training images, and the machine, look like."""

    height: int
    width: int
    """Medians."""
    channels: int
    """Of most images."""
    same_size: bool
    """Whether all images have one size."""
    on_cpu: bool
    classes: int = 0

    @property
    def small(self) -> bool:
        """Images with nothing to lose: they are used at their own size."""
        return max(self.height, self.width) <= 80

    def whole_patches(self, patch: int) -> tuple[int, int]:
        """The size, rounded up to multiples of `patch`."""
        return -(-self.height // patch) * patch, -(-self.width // patch) * patch


def glance_at(source: Source, on_cpu: bool, count: int = 64) -> Glance:
    """At some training images, evenly picked."""
    samples = source.splits["train"]
    step = max(len(samples) // count, 1)
    shapes = [tuple(source.image(sample).shape) for sample in samples[::step][:count]]
    channels = max({shape[0] for shape in shapes}, key=[shape[0] for shape in shapes].count)
    height, width = (sorted(s[axis] for s in shapes)[len(shapes) // 2] for axis in (1, 2))
    same_size = len({shape[1:] for shape in shapes}) == 1
    return Glance(height, width, channels, same_size, on_cpu, len(source.labels))


TINY = 16
"""Pixels of a side."""


class ModelChoice(NamedTuple):
    """The model to train from scratch where none is named."""

    name: str
    image_size: tuple[int, int]
    fields: tuple[str, ...] = ()
    """Changes to its config."""
    reason: str = ""
    resize: str | None = None
    """How images come to this size, if not as usual for the task."""


class Defaults:
    """Those of a task about whole images: a classifier's."""

    example: str = "one like 'vit-s/16'"
    """A model to choose, for error messages."""
    overfit_epochs: ClassVar[int] = 20
    smoothing: ClassVar[float | None] = None
    """Label smoothing."""
    muon_lr: ClassVar[float] = 3
    """Times AdamW's learning rate: on CIFAR-10 better than 1 and 6 (docs/training.md)."""
    fine_tuning_gain: ClassVar[str] = (
        "on 4,500 images of CIFAR-10 two epochs from ImageNet's weights gave 93 %, training from "
        "random ones 74 % (docs/training.md)"
    )
    """What pre-trained weights have brought, as measured, in the words of a log."""
    preparing: ClassVar[dict[str, Any]] = {}
    """Fields of the preprocessing that are the same for all models."""

    def choose_model(self, source: Source, glance: Glance) -> ModelChoice:
        """A model that learns from scratch on this data and this machine."""
        return classifier_for(glance)

    def choose_around(self, source: Source, glance: Glance, family: str | None) -> dict[str, Any]:
        """Fields of the recipe for a model of this family (None: the usual one) around weights."""
        return {}

    def choose_preprocess(
        self,
        image_size: Size,
        channels: int,
        known: Preprocess | None = None,
        *,
        resize: str | None = None,
        longest: int | None = None,
        interpolation: str | None = None,
    ) -> Preprocess:
        """For a model's input, as the weights were trained (`known`) and as is asked for; mean and
        std are not decided yet."""
        found = replace(
            known or Preprocess(),
            image_size=image_size,
            channels=channels,
            mean=(0.5,),
            std=(0.5,),
            # a limit that came with the weights is for the size that came with them
            longest=known.longest if known and known.image_size == image_size else None,
            **self.preparing,
        )
        if resize is not None:
            found = replace(found, resize=resize, longest=None)
        if interpolation is not None:
            found = replace(found, interpolation=interpolation)
        return self.limited(found, longest)

    def limited(self, preprocess: Preprocess, longest: int | None) -> Preprocess:
        """With a limit of the longer side, where images keep their shape."""
        if longest is not None:
            how = preprocess.resize
            raise ConfigError(f"longest = {longest} has no effect with resize = {how!r}")
        return preprocess

    def choose_batch(self, count: int, *, fine_tunes: bool) -> int:
        """For an epoch of `count` images: a power of two, such that it has at least 16 steps."""
        most = 32 if fine_tunes else 64  # few epochs are many steps then
        return max(8, min(most, 1 << (count // 16).bit_length() >> 1))

    def overfit_batch(self, images: int) -> int:
        return images

    def effort(self, glance: Glance, *, fine_tunes: bool) -> tuple[int, int, int]:
        """How long to train: the fewest epochs, the most, and between them how many images in all;
        on a CPU what takes some minutes."""
        if fine_tunes:
            return 2, 30, 12_000 if glance.on_cpu else 400_000
        return 5, 100, (150_000 if glance.small else 80_000) if glance.on_cpu else 3_000_000

    def scratch_lr(self, small: bool) -> float:
        return 2e-3 if small else 1e-3

    def scratch_optimizer(self, glance: Glance, model: str) -> str:
        """Without weights to start from. Tiny images are learned as well by AdamW, whose steps are
        shorter (digits: 99.4 %, by Muon 98.6)."""
        return "adamw" if max(glance.height, glance.width) <= TINY else "muon"

    def crop_for(self, small: bool, fits: bool) -> str:
        """fits: every image has the model's own size."""
        return "shift" if small else "resized"

    def choose_class_weights(self, *, fine_tunes: bool) -> str:
        return "none"


class DenseDefaults(Defaults):
    """Those of a task that predicts positions in the image: nothing may be cropped away, and one
    image costs as much as several of a classifier."""

    cost: ClassVar[int] = 8
    """So many."""
    preparing: ClassVar[dict[str, Any]] = {"whole": True, "crop": 1.0}

    def choose_batch(self, count: int, *, fine_tunes: bool) -> int:
        """Around weights, steps count for more than what each one sees: BCCD (205 images) has AP
        0.27 on val after twelve epochs in batches of eight, 0.37 in batches of four; street scenes
        a mean IoU of 0.51 after four epochs in batches of 16, 0.56 in batches of four
        (docs/segmentation.md)."""
        if fine_tunes:
            return max(4, min(16, 1 << (count // 64).bit_length() >> 1))
        return max(8, min(16, 1 << (count // 16).bit_length() >> 1))

    def effort(self, glance: Glance, *, fine_tunes: bool) -> tuple[int, int, int]:
        cost = 1 if glance.small else self.cost
        if fine_tunes:
            return 2, 30, (12_000 if glance.on_cpu else 400_000) // cost
        return 5, 100, (80_000 if glance.on_cpu else 3_000_000) // cost

    def scratch_optimizer(self, glance: Glance, model: str) -> str:
        """Batches of few images are learned as well by AdamW."""
        return "adamw"


def classifier_for(glance: Glance) -> ModelChoice:
    """A model that learns from scratch on little data: few blocks behind residual convolutions. On
    small images they learn more than patches do (docs/training.md); photographs follow from that,
    and were not measured."""
    if not glance.small:
        name, side = ("vit-c-mini/16", 128) if glance.on_cpu else ("cpvt-ti/16-gap", 224)
        return ModelChoice(name, (side, side), reason=f"{name}, to learn from random weights")
    name = "vit-c-mini/2" if max(glance.height, glance.width) <= TINY else "vit-c-mini/8"
    size = glance.height, glance.width
    return ModelChoice(name, size, reason=f"{name}, to learn small images from random weights")
