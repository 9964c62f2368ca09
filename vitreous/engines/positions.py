"""Positions that are resampled once for each size of image, where nothing is learned."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor, nn

from vitreous.layers.position import Position
from vitreous.layers.resample import Grid


class CachedPosition(Position):
    def on(self, name: str, grid: Grid, value: Tensor) -> Tensor:
        if grid == self.grid:
            return value
        cache = vars(self).setdefault("resampled", ResampledCache())
        found: Tensor = cache.get(
            name, value, grid, lambda: super(CachedPosition, self).on(name, grid, value)
        )
        return found


class ResampledCache:
    """What was made of parameters for several grids, as long as their values stay the same.

    The values themselves are compared: a fused optimiser or FSDP writes new ones that torch's
    version counter does not count. That costs microseconds on a CPU; elsewhere it would wait for
    the device, and making them anew is as fast. Several threads may use it: nothing that is
    stored is changed later.
    """

    def __init__(self, most: int = 16) -> None:
        self.most, self.entries = most, dict[Hashable, tuple[Tensor, dict[Grid, Tensor]]]()

    def get(self, key: Hashable, source: Tensor, grid: Grid, make: Callable[[], Tensor]) -> Tensor:
        """make() of `source` for `grid`: from before, or anew where a gradient is needed."""
        if (torch.is_grad_enabled() and source.requires_grad) or not _can_be_compared(source):
            return make()
        before, made = self.entries.get(key, (None, {}))
        if before is None or before.dtype != source.dtype or not torch.equal(before, source):
            # What is made in inference mode could not take part in a backward pass later.
            with torch.inference_mode(False):
                before, made = source.detach().clone(), {}
        if grid not in made:
            with torch.inference_mode(False), torch.no_grad():
                made = {**(made if len(made) < self.most else {}), grid: make()}
            self.entries[key] = before, made
        return made[grid]

    def __reduce__(self) -> tuple[Any, ...]:
        return ResampledCache, (self.most,)  # a copy of a model, and a file, begin with none


def _can_be_compared(value: Tensor) -> bool:
    """Whether it has values here and now: not on paper, nor on another device."""
    plain = type(value) in (Tensor, nn.Parameter) and value.device.type == "cpu"
    return plain and not (torch.compiler.is_compiling() or torch.jit.is_tracing())
