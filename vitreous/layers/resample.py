"""Maps, and parameters that were made for one grid or number of channels, brought to another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.errors import advice

Grid = tuple[int, int]
State = dict[str, Tensor]


PLAIN = "bicubic, not antialiased"
"""A mode of `resample_grid` for models that do so at run time."""


def resample_grid(values: Tensor, size: Grid, mode: str) -> Tensor:
    """(h, w, d) -> (*size, d), antialiased, in float32; the same size gives the same values."""
    if values.shape[:2] == size:
        return values
    on_grid = values.permute(2, 0, 1)[None].float()
    plain = mode == PLAIN
    mode = "bicubic" if plain else mode
    resized = F.interpolate(on_grid, size=size, mode=mode, antialias=not plain)
    return resized[0].permute(1, 2, 0).to(values.dtype)


def enlarged(maps: Tensor, size: Sequence[int]) -> Tensor:
    """(b, d, h, w) -> (b, d, *size), bilinearly."""
    if tuple(maps.shape[2:]) == tuple(size):
        return maps
    return F.interpolate(maps, tuple(size), mode="bilinear", align_corners=False)


@dataclass
class Resampling:
    """What `Model.resample` did to a state dict, each by the parameter's name."""

    changed: dict[str, str] = field(default_factory=dict)
    """From which grid to which, and how."""
    refused: dict[str, str] = field(default_factory=dict)
    """Why it does not fit, and what to do."""
    notes: dict[str, str] = field(default_factory=dict)

    def inside(self, owner: str) -> Resampling:
        """The same by the names in a model around this one, where they begin with `owner`."""
        tables = (self.changed, self.refused, self.notes)
        return Resampling(*({owner + name: what for name, what in t.items()} for t in tables))

    def resize(
        self,
        state: State,
        name: str,
        what: str,
        grids: tuple[Grid, Grid],
        mode: str | None,
        resample: Callable[[Tensor, Grid, str], Tensor],
    ) -> None:
        """Bring `state[name]` from the first grid to the second, if `mode` says how."""
        source, target = grids
        sizes = f"{source[0]}x{source[1]} to {target[0]}x{target[1]}"
        if source == target:
            return
        if mode is None:
            self.refused[name] = (
                f"{what} change from {sizes}{advice(': pass ', resample='bicubic')}"
            )
            return
        state[name] = resample(state[name], source, mode)
        self.changed[name] = f"{sizes}, {mode}"


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
