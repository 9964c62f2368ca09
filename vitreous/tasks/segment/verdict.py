"""What knows nothing of pixels, and the faults of a segmenter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.data.loader import Batch
from vitreous.labels import IGNORED, LabelMap
from vitreous.tasks.segment.metrics import MaskPrediction
from vitreous.tasks.segment.truth import resized_mask
from vitreous.tasks.verdict import Baseline, Finding, Signs, never_predicted

GRID = (32, 32)
"""Positions that are told apart."""
STILL = 0.2
"""The share of the ground truth's variation over images below which predictions do not vary."""
NOTHING = 0.01
"""An IoU below which a class is not found."""


class PositionCounts:
    """How often each class is at each position of the image."""

    def __init__(self, classes: int) -> None:
        self.counts = torch.zeros(*GRID, classes)

    def add(self, mask: Tensor) -> None:
        """(h, w), of any size, with IGNORED."""
        small = resized_mask(mask, GRID).long()
        known = F.one_hot(small.clamp(min=0), self.counts.shape[-1])
        self.counts += known * (small != IGNORED)[..., None]

    @property
    def most_frequent(self) -> Tensor:
        """(h, w); where nothing is known, the most frequent class of all."""
        found = self.counts.argmax(dim=-1)
        found[self.counts.sum(dim=-1) == 0] = self.counts.sum(dim=(0, 1)).argmax()
        return found

    @property
    def variation(self) -> float:
        """The share of pixels that have another class than the most frequent of their position."""
        total = self.counts.sum()
        return 1 - (self.counts.amax(dim=-1).sum() / total.clamp(min=1)).item()


class ClassPerPosition(Baseline):
    """The same for every image: the class that is most frequent at each position."""

    name = "the most frequent class of each position"

    def __init__(self, classes: int) -> None:
        self.seen = PositionCounts(classes)

    def learn(self, batch: Batch, targets: Sequence[Tensor]) -> None:
        for mask in targets:
            self.seen.add(mask)

    def answer(self, batch: Batch) -> list[MaskPrediction]:
        found = self.seen.most_frequent.to(torch.int16)
        masks = [resized_mask(found, size) for size in batch.sizes]
        return [MaskPrediction(mask, torch.ones(mask.shape).half()) for mask in masks]


class SegmentSigns(Signs):
    """Collapse: the same map for every image."""

    def __init__(self, labels: LabelMap) -> None:
        self.predicted, self.truth = (PositionCounts(len(labels)) for _ in range(2))
        self.images = 0
        self.having = torch.zeros(len(labels), dtype=torch.int64)
        """How many images have each class."""

    def see(self, output: Sequence[MaskPrediction], targets: Sequence[Tensor]) -> None:
        for answer, mask in zip(output, targets, strict=True):
            self.images += 1
            self.predicted.add(answer.classes)
            self.truth.add(mask)
            classes = mask.unique().long()
            self.having[classes[classes != IGNORED]] += 1

    def findings(self, result: Mapping[str, Any]) -> list[Finding]:
        predicted, truth = self.predicted.variation, self.truth.variation
        if self.images > 1 and truth > 0 and predicted < STILL * truth:
            table = torch.tensor(result["confusion"]).sum(dim=0)
            one = int((table > 0).sum()) == 1
            name = list(result["classes"])[int(table.argmax())]
            what = f"only {name}" if one else "the same map for every image"
            why = "" if one else ": it has learned where classes usually are, not how they look"
            return [Finding("bad", f"the model predicts {what}{why}", "learn")]
        missing = {
            name: count
            for (name, row), count in zip(
                result["classes"].items(), self.having.tolist(), strict=True
            )
            if (row["iou"] or 0.0) < NOTHING
        }
        return never_predicted(missing, "images", f"never found (IoU below {NOTHING})")
