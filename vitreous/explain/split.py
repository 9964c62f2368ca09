"""What is asked about the inside of a model over a split of a data set."""

from __future__ import annotations

from torch import Tensor

from vitreous.data.source import Source
from vitreous.explain.distances import Distances, mean_distances
from vitreous.measure import chosen_split
from vitreous.predict import Predictor

MOST = 128
"""Images, as in the ViT paper's figure 7."""


def split_images(
    predictor: Predictor, source: Source, split: str | None = None, most: int = MOST
) -> list[Tensor]:
    """(c, h, w) each: at most so many images of a split, evenly spaced, as the model takes them."""
    samples = source.splits[chosen_split(source, split)]
    count = min(most, len(samples))
    chosen = (samples[i * len(samples) // count] for i in range(count))
    return [predictor.view(source.image(each), source.where(each)).values for each in chosen]


def split_distances(
    predictor: Predictor, source: Source, split: str | None = None, most: int = MOST
) -> Distances:
    """Mean attention distance of each layer and head: `result()` has (heads,) for each layer, in
    pixels."""
    images = split_images(predictor, source, split, most)
    return mean_distances(predictor.model, (each[None].to(predictor.device) for each in images))
