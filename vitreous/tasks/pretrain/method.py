"""What the methods of pre-training share. A method is a task that learns from images alone.

A method's package has a `task.py` with a subclass of `Pretraining` and a `show.py`; its model is a
family around an encoder, or the encoder itself. Its row is in `PRETRAINING` (`tasks/__init__.py`),
and what it is trained with by default in `recipes/NAME.toml`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from vitreous.data.check.classes import ImageCheck
from vitreous.data.source import Sample, Source
from vitreous.data.truth import NoTruth
from vitreous.labels import LabelMap, NoLabels
from vitreous.models import FAMILIES
from vitreous.results import FeatureVector
from vitreous.tasks.defaults import Defaults, Glance, ModelChoice
from vitreous.tasks.metric import Metric, percent
from vitreous.tasks.task import Task, TaskMetrics
from vitreous.tasks.verdict import Finding

COLLAPSED = 1.5
"""An effective rank below which features hardly differ from image to image."""


class PretrainDefaults(Defaults):
    muon_lr = 1  # as it was measured with MAE

    def __init__(self, family: str | None = None, example: str = Defaults.example) -> None:
        """family: that of the method's models, around an encoder; None: the encoder's own."""
        self.family, self.example = family, example

    def choose_model(self, source: Source, glance: Glance) -> ModelChoice:
        """A plain ViT with fixed positions, whose patches are averaged."""
        fields: tuple[str, ...] = ("position=sines-2d", "tokens=none", "pool=mean")
        side = max(glance.height, glance.width)
        if glance.small:
            patch, dim = 2 if side <= 16 else 4 if side <= 40 else 8, 64 if side <= 16 else 128
            name, size = "vit", glance.whole_patches(patch)
            sizes = (f"patch={patch}", f"dim={dim}", "depth=6", "heads=4", f"mlp_dim={2 * dim}")
            fields = (*sizes, *fields)
            reason = f"a ViT of 6 blocks, {dim} wide, with patches of {patch}"
        else:
            side, letters = (128, "ti") if glance.on_cpu else (224, "s")
            name, size = f"vit-{letters}/16", (side, side)
            reason = f"a ViT-{letters.capitalize()}/16"
        if self.family is None:
            return ModelChoice(name, size, fields, reason)
        part = FAMILIES[self.family].part
        inside = (f"{part}.{each}" for each in fields)
        return ModelChoice(self.family, size, (f"{part}={name}", *inside), reason)

    def effort(self, glance: Glance, *, fine_tunes: bool) -> tuple[int, int, int]:
        """There is more to learn from images than their labels: more passes pay."""
        return 5, 100, 160_000 if glance.on_cpu else 6_000_000

    def crop_for(self, small: bool, fits: bool) -> str:
        return "resized"


class MeanLoss(TaskMetrics):
    """The mean of the losses that `infer` gives for each image."""

    def __init__(self) -> None:
        self.total = torch.zeros(2, dtype=torch.float64)

    def update(self, output: Sequence[Any], targets: Any) -> None:
        losses = torch.stack([each.loss.double() for each in output])
        self.total += torch.stack((losses.sum(), torch.tensor(len(losses)).double()))

    def counts(self) -> Tensor:
        return self.total

    def compute(self, counts: Tensor) -> dict[str, Any]:
        total, count = counts.tolist()
        return {"samples": int(count), "loss": total / max(count, 1)}


class Pretraining(Task):
    """Learning without labels: a loss, and an encoder whose features are judged beside it."""

    name = "pretrain"
    purpose = "an encoder, from images alone"
    metric = Metric("loss", range=(0, math.inf), lower_is_better=True)
    pretrains = True
    truth = NoTruth()
    watched = ("knn_accuracy", "effective_rank")
    predicted: ClassVar[tuple[str, str]]
    """What of the model's output is to be finite, (b, …), and what it is called."""
    refused = frozenset(("overfit", "keep_head", "unfreeze_after", "lora", "task"))
    checker = ImageCheck
    defaults = PretrainDefaults()

    def __init__(self, labels: LabelMap | None = None) -> None:
        super().__init__(NoLabels())

    @classmethod
    def for_training(cls, recipe: Any, source: Source, samples: Sequence[Sample]) -> Self:
        return cls()

    @classmethod
    def outputs(cls, labels: LabelMap) -> tuple[str, ...]:
        return ()

    def not_finite(self, output: Any, targets: Any) -> tuple[int, str] | None:
        field, name = self.predicted
        finite = getattr(output, field).isfinite().flatten(1).all(dim=1)
        return None if finite.all() else (int((~finite).nonzero()[0]), name)

    def decode(self, output: Sequence[Any], images: list[str]) -> list[Any]:
        """Of a method that gives a `vector` for each image."""
        pairs = zip(output, images, strict=True)
        return [FeatureVector(each.vector.float().numpy(), image) for each, image in pairs]

    def metrics(self) -> TaskMetrics:
        return MeanLoss()

    def judge(self, last: Mapping[str, Any]) -> list[Finding]:
        """A loss says little: features are compared with each other, and with pixels."""
        found = []
        rank = last.get("effective_rank")
        if rank is not None and rank < COLLAPSED:
            seen = f"the features have collapsed: {rank:.2f} is their effective rank, so that they "
            found.append(Finding("bad", seen + "are nearly the same for every image", ""))
        probe, pixels = last.get("linear_accuracy"), last.get("linear_pixels")
        if probe is not None and pixels is not None:
            better = probe > pixels
            seen = f"linear probe {percent(probe)}, against {percent(pixels)} for pixels"
            worse = ": the features know no more than the images themselves"
            found.append(Finding("good" if better else "warn", seen + worse * (not better), ""))
        return found
