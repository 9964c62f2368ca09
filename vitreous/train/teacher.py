"""A trained model to learn from, and how often each sample is drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from vitreous.data.loader import EvalSet, eval_batches
from vitreous.data.preprocess import Preprocess
from vitreous.data.source import Sample, Source
from vitreous.data.truth import NoTruth
from vitreous.engines.world import World
from vitreous.import_run import open_run
from vitreous.inference import InferenceOptions
from vitreous.loading import predictor_of, vectors_for
from vitreous.predict import Predictor
from vitreous.tasks.task import Task
from vitreous.train.probe import BATCH, some
from vitreous.train.recipe import Recipe

MOST = 512
"""Images on which a teacher's vectors are measured."""


def sample_weights(recipe: Recipe, source: Source, samples: Sequence[Sample]) -> Tensor | None:
    """Weights by which a balanced sampler draws each class equally often."""
    if recipe.sampler == "uniform":
        return None
    targets = torch.tensor([sample.target for sample in samples])
    counts = torch.bincount(targets, minlength=len(source.labels)).double().clamp(min=1)
    return 1 / counts[targets]


def find_teacher(recipe: Recipe, world: World) -> Predictor | None:
    if recipe.teacher is None:
        return None
    return predictor_of(open_run(recipe.teacher), InferenceOptions(device=str(world.device)))


@torch.no_grad()
def some_vectors(
    teacher: Predictor, source: Source, samples: Sequence[Sample], preprocess: Preprocess
) -> Tensor:
    """(n, d): what a teacher gives for some images as a student sees them."""
    ask = vectors_for(teacher, preprocess)
    images = EvalSet(source, some(samples, MOST), preprocess, NoTruth())
    return torch.cat([ask(batch.images).float().cpu() for batch in eval_batches(images, BATCH, 0)])


def answers_of(
    teacher: Predictor | None, task: Task, source: Source, preprocess: Preprocess, world: World
) -> Callable[[Tensor], Tensor] | None:
    """A teacher's logits for a normalised batch, in the order of our classes; or, for a task that
    learns none, its vectors.

    It sees the same pixels as the student, at its own size and with its own mean and std.
    """
    if teacher is None:
        return None
    if task.pretrains:
        task.ask = vectors_for(teacher, preprocess)
        return task.ask
    order = torch.tensor(teacher.task.labels.indices_of(source.labels, what=source.name))
    translate = preprocess.translator(teacher.preprocess, world.device)

    @torch.no_grad()
    def answer(images: Tensor) -> Tensor:
        logits: Tensor = teacher.model(translate(images))
        return logits[:, order.to(logits.device)]

    return answer
