"""Intersection over union, from a confusion matrix of pixels; what knows nothing of pixels, and the
faults of a segmenter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.data.loader import Batch
from vitreous.labels import IGNORED, LabelMap
from vitreous.tasks.bootstrap import resampled
from vitreous.tasks.segment.truth import resized_mask
from vitreous.tasks.task import TaskMetrics, ratio
from vitreous.tasks.verdict import Baseline, Finding, Signs, never_predicted

GRID = (32, 32)
"""Positions that are told apart."""
STILL = 0.2
"""The share of the ground truth's variation over images below which predictions do not vary."""
NOTHING = 0.01
"""An IoU below which a class is not found."""


class MaskPrediction(NamedTuple):
    """Of one image, at the image's own size."""

    classes: Tensor
    """(h, w) of int16"""
    confidence: Tensor
    """(h, w) of float16: the probability of that class"""


class SegmentMetrics(TaskMetrics):
    """All metrics come from a confusion matrix of pixels, without ignored pixels."""

    def __init__(self, labels: LabelMap) -> None:
        n = len(labels)
        self.names = labels.names
        self.confusion = torch.zeros(n, n, dtype=torch.float64)
        """[truth, prediction]; whole numbers, exact up to 2^53 pixels"""
        self.images: list[Tensor] = []
        """Of each image (3, classes): pixels that are right, that there are, and predicted."""

    def update(self, output: list[MaskPrediction], targets: Any) -> None:
        for answer, mask in zip(output, targets, strict=True):
            table = confusion(answer.classes, mask, len(self.names))
            self.confusion += table
            self.images.append(pixel_counts(table))

    def counts(self) -> Tensor:
        images = torch.tensor([len(self.images)], dtype=torch.float64)
        return torch.cat((self.confusion.flatten(), images))

    def compute(self, counts: Tensor | None = None) -> dict[str, Any]:
        counts = self.counts() if counts is None else counts
        n = len(self.names)
        table = counts[:-1].reshape(n, n)
        true, truth, predicted = table.diagonal(), table.sum(dim=1), table.sum(dim=0)
        iou, recall = ratio(true, truth + predicted - true), ratio(true, truth)
        somewhere = truth + predicted > 0  # a class without pixels has no IoU
        return {
            "miou": iou[somewhere].mean().item() if somewhere.any() else 0.0,
            "pixel_accuracy": ratio(true.sum(), truth.sum()).item(),
            "mean_accuracy": recall[truth > 0].mean().item() if (truth > 0).any() else 0.0,
            "samples": int(counts[-1]),
            "pixels": int(truth.sum()),
            "classes": {
                name: {
                    "iou": iou[i].item() if somewhere[i] else None,
                    "accuracy": recall[i].item() if truth[i] > 0 else None,
                    "precision": ratio(true, predicted)[i].item() if predicted[i] > 0 else None,
                    "pixels": int(truth[i]),
                }
                for i, name in enumerate(self.names)
            },
            "confusion": table.long().tolist(),
        }

    def each(self) -> Tensor:
        return torch.tensor([image_miou(counts) for counts in self.images])

    def resampled(self) -> Iterator[dict[str, Tensor]]:
        if not self.images:
            return iter(())
        each = torch.stack(self.images).double().flatten(1)

        def of_draws(weights: Tensor) -> dict[str, Tensor]:
            """weights (draws, images)"""
            true, truth, predicted = (weights @ each).unflatten(1, (3, -1)).unbind(1)
            iou, recall = ratio(true, truth + predicted - true), ratio(true, truth)
            nowhere, absent = truth + predicted == 0, truth == 0
            return {
                "miou": iou.masked_fill(nowhere, torch.nan).nanmean(dim=1),
                "pixel_accuracy": ratio(true.sum(dim=1), truth.sum(dim=1)),
                "mean_accuracy": recall.masked_fill(absent, torch.nan).nanmean(dim=1),
            }

        return map(of_draws, resampled(len(each)))


def pixel_counts(table: Tensor) -> Tensor:
    """(classes, classes) of `confusion` -> (3, classes): pixels of each class that are right, that
    there are, and that are predicted."""
    return torch.stack((table.diagonal(), table.sum(dim=1), table.sum(dim=0)))


def image_miou(counts: Tensor) -> float:
    """The mean IoU of one image, by `pixel_counts`: over the classes in it or predicted. NaN where
    all is ignored."""
    true, truth, predicted = counts.double()
    either = truth + predicted - true
    return ratio(true, either)[either > 0].mean().item()


def confusion(predicted: Tensor, mask: Tensor, classes: int) -> Tensor:
    """(classes, classes): pixels by [truth, prediction], without those that are ignored."""
    labelled = mask != IGNORED
    pairs = mask[labelled].long() * classes + predicted[labelled].long()
    return torch.bincount(pairs, minlength=classes**2).reshape(classes, classes)


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
