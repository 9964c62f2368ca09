"""The threshold of a score that gives the largest F1."""

from __future__ import annotations

import torch
from torch import Tensor

USUAL = 0.5
"""Where nothing is known."""


def best_threshold(scores: Tensor, right: Tensor, positives: int | None = None) -> float:
    """For predictions with scores (n,), of which some are `right` (n,); half-way to the next lower
    score. `positives`: how many there are to find, if not all of them are among the predictions.
    """
    positives = int(right.sum()) if positives is None else positives
    if not positives or not right.any():
        return USUAL
    order = scores.argsort(descending=True)
    ranked, true = scores[order].double(), right[order].double().cumsum(dim=0)
    predicted = torch.arange(1, len(ranked) + 1)
    f1 = 2 * true / (predicted + positives)
    below = torch.cat((ranked[1:], ranked.new_zeros(1)))
    f1[ranked == below] = -1.0  # equal scores are above a threshold together
    last = int(f1.argmax())
    return round(((ranked[last] + below[last]) / 2).item(), 4)
