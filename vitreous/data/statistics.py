"""What the pixels of training images are like, as the model will see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from vitreous.data.preprocess import Preprocess
from vitreous.data.source import Sample, Source


def measure_statistics(
    source: Source, samples: Sequence[Sample], preprocess: Preprocess, count: int = 500
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel over evenly picked images, in 0..1, to four digits.
    The data check prints what training measures, by this function."""
    plain = replace(preprocess, mean=(0.0,), std=(1.0,))
    step = max(len(samples) // count, 1)
    sums = torch.zeros(3, preprocess.channels, dtype=torch.float64)
    for sample in samples[::step][:count]:
        image = source.image(sample)
        with source.naming(sample):
            values = plain(image, source.max_pixels).double().flatten(1)
        pixels = torch.full_like(sums[0], values.shape[1])
        sums += torch.stack((pixels, values.sum(1), values.square().sum(1)))
    mean = sums[1] / sums[0]
    std = (sums[2] / sums[0] - mean.square()).clamp(min=1e-6).sqrt()
    found = [tuple(round(value, 4) for value in each.tolist()) for each in (mean, std)]
    return found[0], found[1]
