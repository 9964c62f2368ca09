"""What knows nothing of labels, and the faults of a tagger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vitreous.data.loader import Batch
from vitreous.labels import IGNORED
from vitreous.tasks.verdict import Baseline, Finding, Signs, never_predicted

STILL = 0.02
"""A share of how much probabilities could vary, below which they do not."""


class LabelFrequencies(Baseline):
    """The same for every image: how frequent each label is. Its AP is that of a random order."""

    name = "the labels' frequencies"

    def __init__(self, labels: int) -> None:
        self.counts, self.known = torch.zeros(labels), torch.zeros(labels)

    def learn(self, batch: Batch, targets: Tensor) -> None:
        self.counts += (targets == 1).sum(dim=0)
        self.known += (targets != IGNORED).sum(dim=0)

    def answer(self, batch: Batch) -> Tensor:
        shares = (self.counts / self.known.clamp(min=1)).clamp(1e-4, 1 - 1e-4)
        return shares.logit().expand(len(batch.ids), -1)


class TagSigns(Signs):
    """Collapse: probabilities that do not depend on the image."""

    def __init__(self) -> None:
        self.scores: list[Tensor] = []

    def see(self, output: Tensor, targets: Tensor) -> None:
        self.scores.append(output.float().sigmoid())

    def findings(self, result: Mapping[str, Any]) -> list[Finding]:
        if len(scores := torch.cat(self.scores)) < 2:
            return []
        # a label that some images have and others have not
        varies = [0 < row["samples"] < len(scores) for row in result["classes"].values()]
        if any(varies) and bool((variation(scores)[torch.tensor(varies)] < STILL).all()):
            seen = "the model gives every image nearly the same probabilities: it does not look"
            return [Finding("bad", seen, "learn")]
        missing = {
            name: row["samples"]
            for name, row in result["classes"].items()
            if row["precision"] is None  # no prediction reaches the threshold
        }
        return never_predicted(missing, "images")


def variation(scores: Tensor) -> Tensor:
    """(n, labels) -> (labels,): how far probabilities are from their mean over images, as a share
    of how far they would be with the same mean and each of them 0 or 1; from 0 to 1."""
    mean = scores.mean(dim=0)
    return (scores - mean).abs().mean(dim=0) / (2 * mean * (1 - mean)).clamp(min=1e-6)
