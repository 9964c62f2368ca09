"""How good the features are that a run without labels has learned so far.

The effective rank needs no labels: it falls to 1 where an encoder gives the same for every image.
Where the data has classes, the nearest neighbours of each validation image vote for its class; at
the end a linear classifier is fitted on the features. Both are done with raw pixels, too: features
that are no better have taught a model nothing that was not in the images already.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vitreous.data.loader import EvalSet, eval_batches
from vitreous.data.preprocess import Preprocess
from vitreous.data.source import Sample, Source
from vitreous.data.truth import NoTruth
from vitreous.engines.world import World
from vitreous.models.model import Model
from vitreous.neighbours import K, nearest, standardised, vote
from vitreous.progress import Log
from vitreous.tasks.pretrain.method import COLLAPSED
from vitreous.train.baselines import Thumbnails, thumbnail
from vitreous.train.recipe import Recipe

Vectors = NDArray[np.float32]
MOST = 1000
"""Images of train, and of val."""
BATCH = 64


def probe_for(
    recipe: Recipe, source: Source, preprocess: Preprocess, world: World, log: Log
) -> Callable[[Model, bool], dict[str, Any]]:
    if recipe.shard:
        log("features: not judged while training, because shard = True divides the model")
        return lambda model, final: {}
    return Probe(source, preprocess, world, log)


class Probe:
    """Measures a model's features; see above."""

    def __init__(self, source: Source, preprocess: Preprocess, world: World, log: Log) -> None:
        self.source, self.preprocess, self.world, self.log = source, preprocess, world, log
        self.val = some(source.splits["val"])
        labelled = source.labelled
        classes = labelled is not None and labelled.truth_kind == "class"
        self.classes = len(labelled.labels) if labelled is not None and classes else 0
        self.train = some(source.splits["train"]) if self.classes > 1 else []
        self.knn_pixels: float | None = None

    def __call__(self, model: Model, final: bool) -> dict[str, Any]:
        train, val = self._vectors(model.core, self.train), self._vectors(model.core, self.val)
        found = {"effective_rank": effective_rank(val)}
        if found["effective_rank"] < COLLAPSED and len(val) > 1:
            self.log(
                f"the features have an effective rank of {found['effective_rank']:.2f}: they are "
                "nearly the same for every image (collapse); try a smaller --lr"
            )
        if not self.train:
            return found
        train, val = standardised(train, val)
        pixels: tuple[Vectors, Vectors] | None = None
        if self.knn_pixels is None or final:
            both = (self._vectors(None, samples) for samples in (self.train, self.val))
            pixels = standardised(*both)
        if self.knn_pixels is None and pixels is not None:
            self.knn_pixels = self._knn(*pixels)
        found |= {"knn_accuracy": self._knn(train, val), "knn_pixels": self.knn_pixels or 0.0}
        if final and pixels is not None:
            found["linear_accuracy"] = self._linear(train, val)
            found["linear_pixels"] = self._linear(*pixels)
        return found

    def _linear(self, train: Vectors, val: Vectors) -> float:
        return linear_accuracy(train, targets(self.train), val, targets(self.val))

    def _knn(self, train: Vectors, val: Vectors) -> float:
        votes = vote(nearest(val, train, K), targets(self.train), self.classes)
        return float((votes.shares.argmax(axis=1) == targets(self.val)).mean())

    @torch.inference_mode()
    def _vectors(self, core: Model | None, samples: Sequence[Sample]) -> Vectors:
        """(n, d); without a model, of pixels. Each process computes a part."""
        training = core is not None and core.training
        if core is not None:
            core.eval()
        world, found = self.world, dict[str, Tensor]()
        images = EvalSet(self.source, samples, self.preprocess, NoTruth())
        if core is None:  # whatever the run's preprocessing is
            images = Thumbnails(self.source, samples, thumbnail, NoTruth())
        for batch in eval_batches(images, BATCH, 0, world.rank, world.size):
            if core is None:
                values = batch.images.flatten(1)
            else:
                values = core.vectors(batch.images.to(world.device)).float().cpu()
            found |= dict(zip(batch.ids, values, strict=True))
        if core is not None:
            core.train(training)
        together = {id: value for part in world.gather(found) for id, value in part.items()}
        rows = [together[sample.id] for sample in samples]
        return torch.stack(rows).numpy() if rows else np.zeros((0, 1), np.float32)


def some(samples: Sequence[Sample], most: int = MOST) -> list[Sample]:
    """At most so many, evenly picked."""
    return list(samples[:: -(-len(samples) // most)])


def targets(samples: Sequence[Sample]) -> NDArray[np.int64]:
    return np.array([sample.target for sample in samples], np.int64)


def effective_rank(vectors: Vectors) -> float:
    """exp of the entropy of the singular values, as shares of their sum (Roy and Vetterli 2007)."""
    values = torch.linalg.svdvals(torch.from_numpy(vectors).double())
    shares = values / values.sum().clamp(min=1e-300)
    return math.exp(-(shares * shares.clamp(min=1e-300).log()).sum().item())


def linear_accuracy(
    train: Vectors, train_targets: NDArray[np.int64], val: Vectors, val_targets: NDArray[np.int64]
) -> float:
    """Of logistic regression."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    if len(np.unique(train_targets)) < 2:
        return float((train_targets[0] == val_targets).mean())
    fitted = LogisticRegression(max_iter=300)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted.fit(train, train_targets)
    return float(fitted.score(val, val_targets))
