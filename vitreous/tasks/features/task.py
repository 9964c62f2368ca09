"""Features: a model without a head gives a vector for each image, and knows no classes."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from vitreous.models import has_words
from vitreous.results import FeatureVector
from vitreous.tasks.metric import Metric
from vitreous.tasks.task import Engine, Sizes, Task, is_classifier


class GiveFeatures(Task):
    """What the head would see of an image. Nothing is learned or measured: there are no classes.

    A model with words is for this task as well: its vectors are compared with those of texts.
    """

    name = "features"
    purpose = "a vector per image"
    metric = Metric("")

    @classmethod
    def takes(cls, model: str) -> bool:
        return is_classifier(model) or has_words(model)

    def infer(self, engine: Engine, images: Any, sizes: Sizes) -> Tensor:
        vectors: Tensor = engine(images)
        return vectors.flatten(1).cpu()

    def decode(self, output: Tensor, images: list[str]) -> list[FeatureVector]:
        """output (b, d)"""
        return [
            FeatureVector(values.float().numpy(), image)
            for values, image in zip(output, images, strict=True)
        ]


TASK = GiveFeatures
