"""Linear probing: the features of each image are computed once.

Where all but the head is frozen, and no image looks different from epoch to epoch, the head sees
the same of an image every time. That is stored, and the loop takes its steps with the head alone:
the same steps as with the whole model, without the part that would give the same again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vitreous.data.loader import Draw, EvalSet, Item, TrainSet, eval_batches
from vitreous.engines.world import World
from vitreous.models.model import Model
from vitreous.train.recipe import Recipe

Stored = tuple[Tensor, Any, str, tuple[int, int]]
"""The features of an image, its target, its id, and its height and width."""


class HeadAlone(Model):
    """The head of a model: (b, …, d), its features, -> what the whole model gives for the images.
    Its parameters are the model's own."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.config, self.name, self.head = model.config, model.name, model.head

    def forward(self, features: Tensor) -> Tensor:
        output: Tensor = self.head(features)
        return output


@dataclass
class TrainFeatures(TrainSet):
    """A training set with stored features in place of the images."""

    items: Sequence[Stored] = ()

    def _get(self, draw: Draw) -> Item:
        values, target, name, size = self.items[draw.number]
        return values, self.moves.mix(target, target, 1.0), name, size


@dataclass
class EvalFeatures(EvalSet):
    """The same for evaluation."""

    items: Sequence[Stored] = ()

    def __getitem__(self, number: int) -> Item:
        return self.items[number]


def trains_head_alone(model: Model) -> bool:
    """Whether all but the head of a model is frozen, and the head sees one vector per image."""
    head = {id(parameter) for parameter in model.head.parameters()} if model.core is model else ()
    return all(id(p) in head for p in model.parameters() if p.requires_grad)


def why_not_stored(recipe: Recipe, train_set: TrainSet) -> str:
    """What makes the features of an image differ from epoch to epoch, or "" if nothing does."""
    if changes := train_set.augment.changes:
        value = getattr(train_set.augment, changes[0])
        return f"{changes[0]} = {value!r} changes the images"
    if train_set.own is not None:
        return "an augmentation from Python changes the images"
    if recipe.teacher is not None:
        return "the teacher looks at the images"
    return "shard = True divides the model" if recipe.shard else ""


@torch.no_grad()
def store_features(
    model: Model, train_set: TrainSet, val_set: EvalSet, batch: int, workers: int, world: World
) -> tuple[TrainFeatures, EvalFeatures]:
    """The same sets with features in place of images. Each process computes a part of them."""
    model.eval()
    once = {sample.id: sample for sample in (*train_set.samples, *val_set.samples)}
    images = EvalSet(val_set.source, list(once.values()), val_set.preprocess, val_set.moves)
    found: list[Stored] = []
    for each in eval_batches(images, batch, workers, world.rank, world.size):
        features = model.pooled(each.images.to(world.device)).float().cpu()
        found += zip(features, each.targets, each.ids, each.sizes, strict=True)
    by_id = {item[2]: item for part in world.gather(found) for item in part}
    return (
        TrainFeatures(**vars(train_set), items=[by_id[s.id] for s in train_set.samples]),
        EvalFeatures(**vars(val_set), items=[by_id[s.id] for s in val_set.samples]),
    )
