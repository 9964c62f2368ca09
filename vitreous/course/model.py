"""The small ViT that the course looks into, and digits for it."""

from __future__ import annotations

from functools import cache

from torch import Tensor

from vitreous.course import DIGITS
from vitreous.data.formats import open_source
from vitreous.import_run import open_run
from vitreous.loading import predictor_of
from vitreous.predict import Predictor


@cache
def digits() -> Predictor:
    """Reads digits of 8x8 pixels: 16 patches, 3 blocks of 3 heads."""
    return predictor_of(open_run(DIGITS))


def digit(number: int) -> tuple[Tensor, str]:
    """A digit (1, 8, 8) that the model has not been trained with, and what it shows."""
    source = open_source("digits")
    sample = source.splits["test"][number]
    return source.image(sample), source.labels.names[sample.target]
