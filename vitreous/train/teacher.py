"""A trained model to learn from, and how often each sample is drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from vitreous.data.preprocess import Preprocess
from vitreous.data.source import Sample, Source
from vitreous.predict import Predictor, load
from vitreous.train.distributed import World
from vitreous.train.recipe import Recipe


def sample_weights(recipe: Recipe, source: Source, samples: Sequence[Sample]) -> Tensor | None:
    """Weights by which a balanced sampler draws each class equally often."""
    if recipe.sampler == "uniform":
        return None
    targets = torch.tensor([sample.target for sample in samples])
    counts = torch.bincount(targets, minlength=len(source.labels)).double().clamp(min=1)
    return 1 / counts[targets]


def find_teacher(
    recipe: Recipe, source: Source, preprocess: Preprocess, world: World
) -> Callable[[Tensor], Tensor] | None:
    """A teacher run's logits for a normalised batch, in the order of our classes.

    It sees the same pixels as the student, at its own size and with its own mean and std.
    """
    if recipe.teacher is None:
        return None
    teacher: Predictor = load(recipe.teacher, str(world.device))
    order = torch.tensor(teacher.task.labels.indices_of(source.labels, what=source.name))
    translate = preprocess.translator(teacher.preprocess, world.device)

    @torch.no_grad()
    def answer(images: Tensor) -> Tensor:
        logits: Tensor = teacher.model(translate(images))
        return logits[:, order.to(logits.device)]

    return answer
