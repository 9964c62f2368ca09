"""Segmentation: one class for each pixel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.data.check.masks import MaskCheck
from vitreous.data.source import Sample, Source
from vitreous.labels import IGNORED, LabelMap
from vitreous.models import configure
from vitreous.results import Segmentation
from vitreous.tasks.defaults import DenseDefaults, Glance, ModelChoice
from vitreous.tasks.metric import Metric
from vitreous.tasks.segment.metrics import (
    ClassPerPosition,
    MaskPrediction,
    SegmentMetrics,
    SegmentSigns,
)
from vitreous.tasks.segment.truth import MaskTruth
from vitreous.tasks.segment.windows import Grid, bands, enlarged_rows
from vitreous.tasks.task import Engine, Task, check_two_classes
from vitreous.tasks.verdict import Baseline

AT_ONCE = 1 << 24
"""Numbers that are computed at a time when scores are brought to an image's own size."""
MASKS_COUNTED = 500
"""How many masks are read to know how rare classes are."""
WINDOW = 224
"""Pixels of a side that are seen at once, on a CPU."""
IMAGES_PER_CLASS, FEWEST_CLASSES = 650, 5
"""How many images fine-tuning sees for each class, and classes below which it needs no fewer."""
MOST_ON_CPU = 8_000
"""About ten minutes on two cores."""


class SegmentDefaults(DenseDefaults):
    example = "one like 'segmenter-s/16', or 'segmenter' with --set encoder=…"
    smoothing = 0.0
    fine_tuning_gain = (
        "on 80 street scenes two CPU minutes from ImageNet's weights gave a mean IoU of 0.45, "
        "three from random ones 0.36 (docs/segmentation.md)"
    )

    def choose_model(self, source: Source, glance: Glance) -> ModelChoice:
        """With convolutions before its blocks a model learns masks several times as fast as with
        patches alone; larger images on a CPU are learned fastest by convolutions alone."""
        side = 192 if glance.on_cpu else 512
        size = glance.whole_patches(8) if glance.small else (side, side)
        if glance.small or glance.on_cpu:
            name = "segmenter-mini/8" if glance.small else "segmenter-mini/4"
            return ModelChoice(name, size, reason=f"{name}, to learn from random weights")
        fields = ("encoder=cpvt-s/16", "encoder.drop_path=0.1")
        return ModelChoice("segmenter-s/16", size, fields, "segmenter-s/16 over cpvt-s/16")

    def choose_around(self, source: Source, glance: Glance, family: str | None) -> dict[str, Any]:
        """On a CPU, windows of 224 pixels, or four times a small image: those of 512 that a
        Segmenter has take five times as long."""
        if not glance.on_cpu:
            return {}
        side = min(WINDOW, -(-4 * max(glance.height, glance.width) // 16) * 16)
        return {"image_size": (side, side)}

    def choose_class_weights(self, *, fine_tunes: bool) -> str:
        """Street scenes: mean IoU 0.51 after four epochs, without them 0.42, where signs, fences
        and cyclists are not found (docs/segmentation.md, batches of 16)."""
        return "auto" if fine_tunes else "none"

    def effort(self, glance: Glance, *, fine_tunes: bool) -> tuple[int, int, int]:
        """Fine-tuning: the more classes, the more images, but on a CPU what takes ten minutes. 367
        street scenes of 11 classes, in batches of 16 without class weights: mean IoU on test 0.398
        after 4 epochs, 0.496 after 8, 0.527 after 24."""
        if not fine_tunes or glance.small:
            return super().effort(glance, fine_tunes=fine_tunes)
        images = IMAGES_PER_CLASS * max(glance.classes, FEWEST_CLASSES)
        return 3, 60, min(images, MOST_ON_CPU) if glance.on_cpu else 5 * images

    def crop_for(self, small: bool, fits: bool) -> str:
        return "shift" if small and fits else "window"


class Segment(Task):
    """Cross-entropy over pixels, weighted if asked, and the Dice loss beside it if asked."""

    name = "segment"
    purpose = "one class per pixel"
    metric = Metric("miou", "mean IoU")
    other_metrics = (Metric("pixel_accuracy"), Metric("mean_accuracy"))
    truth = MaskTruth()
    families = ("segmenter",)
    options = frozenset(("smoothing", "class_weights", "dice", "zoom"))
    crops = ("resized", "window", "shift", "none")
    resizes = ("shorter", "square", "none")
    windows = True
    checker = MaskCheck
    defaults = SegmentDefaults()

    def __init__(
        self,
        labels: LabelMap,
        *,
        smoothing: float = 0.0,
        class_weights: Tensor | None = None,
        dice: float = 0.0,
    ) -> None:
        super().__init__(labels)
        self.smoothing, self.class_weights, self.dice = smoothing, class_weights, dice

    @classmethod
    def for_training(cls, recipe: Any, source: Source, samples: Sequence[Sample]) -> Self:
        weights = None
        if recipe.class_weights == "auto":
            # Of pixels the rarest are a thousand times rarer than the commonest, and learning would
            # see nothing else: so by the root of their number.
            counts = class_pixels(source, samples).clamp(min=1)
            rarity = counts.rsqrt()
            weights = (rarity * counts.sum() / (rarity * counts).sum()).float()
        smoothing = recipe.smoothing or 0.0
        return cls(source.labels, smoothing=smoothing, class_weights=weights, dice=recipe.dice)

    @classmethod
    def check_trainable(cls, source: Source) -> None:
        check_two_classes(source)

    @classmethod
    def around(
        cls, model: str, fields: dict[str, Any], family: str | None = None
    ) -> tuple[str, dict[str, Any]]:
        family, found = super().around(model, fields, family)
        pyramid = configure(model)[0] in ("swin", "resnet")
        return family, found | ({"decoder": "pyramid"} if pyramid else {})

    def loss(self, output: Any, targets: Any, teacher: Tensor | None = None) -> dict[str, Tensor]:
        """output (b, classes, h, w), targets (b, h, w) with IGNORED.

        The mean is over all pixels, ignored ones as zeros: divided by the pixels that count, it
        would depend on how samples are divided among processes.
        """
        logits, targets = output.float(), targets.long()
        weights = None if self.class_weights is None else self.class_weights.to(logits.device)
        each = F.cross_entropy(
            logits,
            targets,
            weights,
            reduction="none",
            ignore_index=IGNORED,
            label_smoothing=self.smoothing,
        )
        terms = {"loss": each.mean()}
        if self.dice:
            terms["dice"] = self.dice * dice_loss(logits, targets)
        return terms

    @torch.inference_mode()
    def infer(self, engine: Engine, images: Any, sizes: Sequence[Grid]) -> list[MaskPrediction]:
        """images (b, c, h, w) or a list of (c, h, w), of any sizes; windows go over large ones."""
        window = engine.image_size
        if isinstance(images, Tensor) and tuple(images.shape[2:]) == window:
            outputs = engine(images)  # what `bands` would do one by one
            return [at_size([o], window, size) for o, size in zip(outputs, sizes, strict=True)]
        return [
            at_size(bands(engine, image, window), (image.shape[1], image.shape[2]), size)
            for image, size in zip(images, sizes, strict=True)
        ]

    def metrics(self) -> SegmentMetrics:
        return SegmentMetrics(self.labels)

    def baselines(self) -> list[Baseline]:
        return [ClassPerPosition(len(self.labels))]

    def signs(self) -> SegmentSigns:
        return SegmentSigns(self.labels)

    def decode(self, output: list[MaskPrediction], images: list[str]) -> list[Segmentation]:
        return [
            Segmentation(
                answer.classes.numpy(),
                answer.confidence.numpy(),
                self.labels.names,
                self.labels.external,
                image,
            )
            for answer, image in zip(output, images, strict=True)
        ]


def at_size(parts: Iterable[Tensor], working: Grid, size: Grid) -> MaskPrediction:
    """Bands of scores (classes, rows, w) that make up `working`, as an answer of `size`.

    Where both are the same, each band is done with when the next one comes.
    """
    if working == size:
        answers = [_decided(scores) for scores in parts]
    else:
        scores = torch.cat(list(parts), dim=1)
        rows = max(AT_ONCE // (scores.shape[0] * size[1]), 1)
        answers = [
            _decided(enlarged_rows(scores, size, first, min(first + rows, size[0])))
            for first in range(0, size[0], rows)
        ]
    classes, confidence = zip(*answers, strict=True)
    return MaskPrediction(torch.cat(classes), torch.cat(confidence))


def _decided(scores: Tensor) -> MaskPrediction:
    confidence, classes = scores.float().softmax(dim=0).max(dim=0)
    return MaskPrediction(classes.to(torch.int16).cpu(), confidence.half().cpu())


def dice_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """One minus the Dice coefficient (Milletari et al. 2016), of the classes that an image has.

    logits (b, classes, h, w), targets (b, h, w) with IGNORED; the mean over classes of each image,
    then over images.
    """
    counts = (targets != IGNORED)[:, None]
    truth = F.one_hot(targets.clamp(min=0), logits.shape[1]).permute(0, 3, 1, 2) * counts
    predicted = logits.softmax(dim=1) * counts
    present = truth.sum(dim=(2, 3))  # (b, classes)
    common = (predicted * truth).sum(dim=(2, 3))
    dice = 2 * common / (predicted.sum(dim=(2, 3)) + present).clamp(min=1e-6)
    there = present > 0
    each = ((1 - dice) * there).sum(dim=1) / there.sum(dim=1).clamp(min=1)
    return each.mean()


def class_pixels(source: Source, samples: Sequence[Sample]) -> Tensor:
    """How many pixels each class has, in masks that are evenly picked."""
    step = max(len(samples) // MASKS_COUNTED, 1)
    counts = torch.zeros(len(source.labels), dtype=torch.float64)
    for sample in samples[::step][:MASKS_COUNTED]:
        mask = source.truth(sample)
        counts += torch.bincount(mask[mask != IGNORED].long(), minlength=len(counts))
    return counts


TASK = Segment
