"""What token merging gains and costs: speed, agreement with the same model without it, and points
lost on labelled data. Both take turns on the same batch, so that other work on the machine slows
both of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from vitreous.deploy.turns import take_turns
from vitreous.predict import Predictor

ROUNDS = 10
"""In which both take turns to be timed; the best time counts."""


@dataclass(frozen=True)
class Merged:
    """A model whose blocks merge so many patches each, beside the one that merges none."""

    merge: int
    images_per_second: float
    speed: float
    """As a multiple of that without merging."""
    agreement: float
    """How far the predictions are those without merging, in the mean, from 0 to 1."""
    score: float | None = None
    """The metric that decides, on labelled data,"""
    points_lost: float | None = None
    """and how much worse than without merging, in hundredths."""


@torch.inference_mode()
def merging_cost(
    plain: Predictor,
    merged: Predictor,
    merge: int,
    images: Tensor,
    agreement: float,
    scores: tuple[float | None, float | None] = (None, None),
) -> tuple[Merged, Merged]:
    """The model without and with merging, timed on a batch of images; `scores` are those of both on
    labelled data."""
    engines = {0: plain.engine, merge: merged.engine}
    works = {number: partial(engine, images) for number, engine in engines.items()}
    before, after = (min(each) for each in take_turns(works, ROUNDS).values())
    lost = None
    if scores[0] is not None and scores[1] is not None:
        lost = plain.task.metric.points(scores[0] - scores[1], scores[0])
    count, none = len(images), None if lost is None else 0.0
    return (
        Merged(0, count / before, 1.0, 1.0, scores[0], none),
        Merged(merge, count / after, before / after, agreement, scores[1], lost),
    )
