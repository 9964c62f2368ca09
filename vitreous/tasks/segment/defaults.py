"""What is advised for segmentation."""

from __future__ import annotations

from typing import Any

from vitreous.data.source import Source
from vitreous.tasks.defaults import DenseDefaults, Glance, ModelChoice

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
