"""What a run learns: its task as the recipe wants it, classes and samples weighed, a teacher."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from vitreous.data.preprocess import Preprocess
from vitreous.data.source import Sample, Source
from vitreous.labels import IGNORED
from vitreous.predict import Predictor, load
from vitreous.tasks import task_for
from vitreous.tasks.classify.task import Classify
from vitreous.tasks.detect.task import Detect
from vitreous.tasks.segment.task import Segment
from vitreous.tasks.task import Task
from vitreous.train.distributed import World
from vitreous.train.recipe import Recipe

MASKS_COUNTED = 500
"""How many masks are looked at to know how rare classes are."""


def make_task(recipe: Recipe, source: Source, samples: Sequence[Sample]) -> Task:
    """The task that the data is for, with the recipe's loss."""
    weights = class_weights(recipe, source, samples)
    smoothing = recipe.smoothing or 0.0
    if _task(source) == "segment":
        return Segment(source.labels, smoothing=smoothing, class_weights=weights, dice=recipe.dice)
    if _task(source) == "detect":
        return Detect(source.labels)
    return Classify(
        source.labels,
        smoothing=smoothing,
        class_weights=weights,
        distill=recipe.distill or "hard",
    )


def class_counts(source: Source, samples: Sequence[Sample]) -> Tensor:
    """How many samples each class has; for masks, how many pixels in evenly picked ones."""
    if _task(source) == "classify":
        targets = torch.tensor([sample.target for sample in samples])
        return torch.bincount(targets, minlength=len(source.labels)).double()
    step = max(len(samples) // MASKS_COUNTED, 1)
    counts = torch.zeros(len(source.labels), dtype=torch.float64)
    for sample in samples[::step][:MASKS_COUNTED]:
        mask = source.truth(sample)
        counts += torch.bincount(mask[mask != IGNORED].long(), minlength=len(counts))
    return counts


def class_weights(recipe: Recipe, source: Source, samples: Sequence[Sample]) -> Tensor | None:
    """Rare classes count more, by the inverse of their number; a sample counts 1 on average.

    Of pixels the rarest are a thousand times rarer than the commonest, and learning would see
    nothing else: there the inverse of the number's root is taken.
    """
    if recipe.class_weights == "none":
        return None
    counts = class_counts(source, samples).clamp(min=1)
    if _task(source) == "segment":
        rarity = counts.rsqrt()
        return (rarity * counts.sum() / (rarity * counts).sum()).float()
    return (counts.sum() / (len(counts) * counts)).float()


def sample_weights(recipe: Recipe, source: Source, samples: Sequence[Sample]) -> Tensor | None:
    """Chances of samples by which each class is drawn equally often."""
    if recipe.sampler == "uniform":
        return None
    counts = class_counts(source, samples).clamp(min=1)
    return torch.stack([1 / counts[sample.target] for sample in samples])


def find_teacher(
    recipe: Recipe, source: Source, preprocess: Preprocess, world: World
) -> Callable[[Tensor], Tensor] | None:
    """What a teacher run answers to a normalised batch, in the order of our classes.

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


def _task(source: Source) -> str:
    return task_for(source.truth_kind).name
