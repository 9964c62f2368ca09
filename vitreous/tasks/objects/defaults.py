"""What is advised for tasks that find objects."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import torch

from vitreous.config import pair
from vitreous.data.preprocess import Preprocess
from vitreous.data.source import Source
from vitreous.models import configure
from vitreous.tasks.defaults import DenseDefaults, Glance, ModelChoice
from vitreous.wording import counted

EASILY_SEEN = 24
"""Pixels of an object's side, one and a half patches of a usual ViT."""


class ObjectDefaults(DenseDefaults):
    overfit_epochs = 12
    scratch_model: ClassVar[str]
    """Which learns without weights,"""
    scratch_fields: ClassVar[tuple[str, ...]] = ()
    """and what else it has for small images."""

    def choose_model(self, source: Source, glance: Glance) -> ModelChoice:
        """A small hybrid of convolutions and attention, which learns from few images; a large model
        would take days. Small images keep their size, and finer maps of it."""
        side = 192 if glance.on_cpu else 384
        size = glance.whole_patches(8) if glance.small else (side, side)
        most = most_objects(source)
        queries = max(2 * most, 10)
        small = ("backbone.stages=[1,1]", *self.scratch_fields) if glance.small else ()
        reason = f"{self.scratch_model}, {queries} queries for up to {counted(most, 'object')}"
        fields = (f"queries={queries}", *small)
        return ModelChoice(self.scratch_model, size, fields, reason, resize="square")

    def choose_around(self, source: Source, glance: Glance, family: str | None) -> dict[str, Any]:
        """Around weights: on a CPU a narrow decoder and images of 224 pixels, or 320 where some
        objects would be hard to see. Both sides are resized to one length, as RF-DETR does, so that
        every batch is one tensor."""
        if family == "detr":
            return {}
        most = most_objects(source)
        fields = [f"queries={min(max(2 * most, 40), 300)}"]
        seen = 224 * small_side(source, glance) >= EASILY_SEEN
        side = (224 if seen else 320) if glance.on_cpu else 560
        if glance.on_cpu:
            fields += ["dim=128", "cross_heads=8", "points=4", "decoder_depth=2", "mlp_dim=512"]
            fields += ["groups=6", "projector_depth=2"]
        size = max(glance.height, glance.width)
        side = min(side, -(-size // 32) * 32)
        return {
            "fields": tuple(fields),
            "image_size": (side, side),
            "resize": "square",
            "crop": "resized",
            "optimizer": "muon",  # BCCD, val: AP 0.41 after eight epochs, by AdamW 0.35
        }

    def overfit_batch(self, images: int) -> int:
        """A detector learns images by heart in many steps, not in large ones: after 50 passes over
        eight, AP is 0.040 in batches of two, 0.0015 in batches of eight."""
        return max(1, images // 4)

    def effort(self, glance: Glance, *, fine_tunes: bool) -> tuple[int, int, int]:
        """Around weights, what is behind the backbone begins anew: on a CPU, ten minutes of it."""
        least, most, images = super().effort(glance, fine_tunes=False)
        return least, most, images * 3 // 4 if fine_tunes else images

    def scratch_optimizer(self, glance: Glance, model: str) -> str:
        """On shapes, rf-detr-mini has an AP of 0.81 on val after two epochs by Muon, and of 0.63 by
        AdamW; a DETR was not measured."""
        return "adamw" if configure(model)[0] == "detr" else "muon"

    def scratch_lr(self, small: bool) -> float:
        """Beyond that, a DETR never learns to look at one object with each query."""
        return 5e-4

    def crop_for(self, small: bool, fits: bool) -> str:
        return "none" if small else "window"

    def limited(self, preprocess: Preprocess, longest: int | None) -> Preprocess:
        if preprocess.resize != "shorter":
            return super().limited(preprocess, longest)
        side = max(pair("image_size", preprocess.image_size))
        return replace(preprocess, longest=longest or preprocess.longest or round(side * 5 / 3))


def small_side(source: Source, glance: Glance, count: int = 500) -> float:
    """Of small objects (a twentieth of all are smaller), the square root of the area as a part of a
    usual image's; 1 if there are no objects."""
    samples = source.splits["train"]
    boxes = [source.truth(sample)["boxes"] for sample in samples[:: -(-len(samples) // count)]]
    every = torch.cat(boxes).float()
    if not len(every):
        return 1.0
    areas = (every[:, 2:] - every[:, :2]).prod(dim=1) / (glance.height * glance.width)
    return float(areas.quantile(0.05, interpolation="lower")) ** 0.5


def most_objects(source: Source, count: int = 2000) -> int:
    """In one training image, of some that are evenly picked."""
    samples = source.splits["train"]
    step = -(-len(samples) // count)
    return max(int((~source.truth(sample)["crowd"]).sum()) for sample in samples[::step])
