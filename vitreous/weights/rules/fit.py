"""Making weights fit a model with another grid of patches, other windows or other channels."""

from __future__ import annotations

import torch
from torch import Tensor

from vitreous.layers.resample import Grid
from vitreous.models.model import Model
from vitreous.weights.rules.report import ImportReport, Misfit


def fit_grid(
    model: Model,
    values: dict[str, Tensor],
    source: Grid | None,
    mode: str | None,
    report: ImportReport,
    misfit: Misfit,
) -> None:
    """Bring positions and windows among `values` to the model's grid, if `mode` says how."""
    done = model.resample(values, mode, source)
    report.resampled.update(done.changed)
    report.notes += [f"{name}: {note}" for name, note in done.notes.items()]
    misfit.misshaped.update(done.refused)


def fit_input(
    model: Model,
    values: dict[str, Tensor],
    allowed: bool,
    report: ImportReport,
    misfit: Misfit,
) -> None:
    """Bring the first layer to the model's number of channels, if allowed."""
    name = model.input_weight
    if name not in values or values[name].ndim != 4:
        return
    have, want = values[name].shape[1], model.config.channels
    if have == want:
        return
    if not allowed:
        misfit.misshaped[name] = (
            f"{have} channels, the model has {want}: pass adapt_channels=True (--adapt-channels)"
        )
        return
    change = f"{have} to {want} channels"
    values[name] = adapt_channels(values[name], want)
    report.adapted[name] = change
    for part in model.input_norms:  # a value per pixel and channel
        if part in values:
            by_channel = values[part].reshape(1, have, -1, 1)
            # These normalise each pixel, whatever the number of channels: no scaling here.
            kept = adapt_channels(by_channel, want) * (want / have)
            values[part] = kept.flatten()
            report.adapted[part] = change


def adapt_channels(weight: Tensor, channels: int) -> Tensor:
    """(out, c, kh, kw) -> (out, channels, kh, kw) with about the same response.

    More channels repeat the filters in turn, scaled by c / channels, so that the same picture in
    every channel gives about what it gave before (RGB to N as timm does it). Fewer channels take
    the mean of the filters that repeating would have made alike, scaled the same way: there and
    back changes nothing, and RGB to gray is the sum.
    """
    have = weight.shape[1]
    if channels >= have:
        index = torch.arange(channels, device=weight.device) % have
        return weight[:, index] * (have / channels)
    alike = [weight[:, first::channels].mean(dim=1) for first in range(channels)]
    return torch.stack(alike, dim=1) * (have / channels)
