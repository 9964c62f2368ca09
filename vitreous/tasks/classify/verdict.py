"""What knows nothing of classes, and the faults of a classifier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vitreous.data.loader import Batch
from vitreous.labels import LabelMap
from vitreous.tasks.verdict import Baseline, Finding, Signs, never_predicted

NEIGHBOURS = 5
STILL = 0.02
"""A share of how much probabilities could vary, below which they do not."""


class MostFrequentClass(Baseline):
    """The same for every image: probabilities that are the classes' shares."""

    name = "the most frequent class"

    def __init__(self, classes: int) -> None:
        self.counts = torch.zeros(classes)

    def learn(self, batch: Batch, targets: Tensor) -> None:
        self.counts += torch.bincount(targets, minlength=len(self.counts))

    def answer(self, batch: Batch) -> Tensor:
        shares = self.counts / self.counts.sum()
        return shares.clamp(min=1e-6).log().expand(len(batch.ids), -1)


class NearestImages(Baseline):
    """The class of the training images whose pixels, those of small copies, are most alike."""

    name = "k-NN on pixels"
    copies = True

    def __init__(self, classes: int) -> None:
        self.classes = classes
        self.images: list[Tensor] = []
        self.targets: list[Tensor] = []

    def learn(self, batch: Batch, targets: Tensor) -> None:
        self.images.append(batch.images.flatten(1))
        self.targets.append(targets)

    def answer(self, batch: Batch) -> Tensor:
        if len(self.images) > 1:  # all have been learned: they are put together once
            self.images, self.targets = [torch.cat(self.images)], [torch.cat(self.targets)]
        (known,), (targets,) = self.images, self.targets
        # |x - y|² without |x|², which is the same for all y
        distances = known.square().sum(dim=1) - 2 * batch.images.flatten(1) @ known.T
        near = distances.topk(min(NEIGHBOURS, len(known)), largest=False)
        # of equally many neighbours the nearer ones decide
        votes = 1 + 1e-3 * near.values.neg().softmax(dim=1)
        found = torch.zeros(len(batch.ids), self.classes)
        return found.scatter_add_(1, targets[near.indices], votes)


class ClassSigns(Signs):
    """Collapse: one class for everything, or probabilities that do not depend on the image."""

    def __init__(self, labels: LabelMap) -> None:
        self.labels = labels
        self.probabilities: list[Tensor] = []

    def see(self, output: Tensor, targets: Tensor) -> None:
        self.probabilities.append(output.float().softmax(dim=1).half())

    def findings(self, result: Mapping[str, Any]) -> list[Finding]:
        confusion = torch.tensor(result["confusion"])
        truth, predicted = confusion.sum(dim=1), confusion.sum(dim=0)
        if int((truth > 0).sum()) < 2:
            return []  # images of one class need no other answer
        if int((predicted > 0).sum()) == 1:
            name = self.labels.names[int(predicted.argmax())]
            seen = f"the model predicts {name} for every image"
            return [Finding("bad", seen, "learn")]
        if variation(torch.cat(self.probabilities).float()) < STILL:
            seen = "the model gives every image nearly the same probabilities: it does not look"
            return [Finding("bad", seen, "learn")]
        missing = {
            name: int(truth[i]) for i, name in enumerate(self.labels.names) if not predicted[i]
        }
        return never_predicted(missing, "images")


def variation(probabilities: Tensor) -> float:
    """(n, classes): how far probabilities are from their mean over images, as a share of how far
    they would be with the same mean and one certain class for each image; from 0 to 1."""
    mean = probabilities.mean(dim=0)
    apart = (probabilities - mean).abs().sum(dim=1).mean() / 2
    return (apart / (1 - mean.square().sum()).clamp(min=1e-6)).item()
