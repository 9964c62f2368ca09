"""Intersection over union, from a confusion matrix of pixels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vitreous.labels import IGNORED, LabelMap
from vitreous.tasks.bootstrap import resampled
from vitreous.tasks.task import TaskMetrics, ratio


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
            self.images.append(torch.stack((table.diagonal(), table.sum(dim=1), table.sum(dim=0))))

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


def confusion(predicted: Tensor, mask: Tensor, classes: int) -> Tensor:
    """(classes, classes): pixels by [truth, prediction], without those that are ignored."""
    labelled = mask != IGNORED
    pairs = mask[labelled].long() * classes + predicted[labelled].long()
    return torch.bincount(pairs, minlength=classes**2).reshape(classes, classes)
