"""What `model.features(...)` gives, for every model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from torch import Tensor

from vitreous.errors import ConfigError


class Features(NamedTuple):
    """The inner results of one forward, one entry per asked block (or stage), in the asked order.

    tokens: (b, p + n, d) each, the `prefix` class, distillation and register tokens first.
    maps:   (b, d, gh, gw) each, the patch tokens back in their places.
    output: what `model(images)` gives: one tensor, or the named tuple of the model.
    """

    tokens: list[Tensor]
    maps: list[Tensor]
    output: Any
    prefix: int


def block_indices(blocks: Iterable[int] | int | None, depth: int) -> list[int]:
    """The asked blocks, counted from 0; negative ones count from the end; None is the last."""
    asked = [-1] if blocks is None else [blocks] if isinstance(blocks, int) else list(blocks)
    for index in asked:
        if not isinstance(index, int) or not -depth <= index < depth:
            raise ConfigError(
                f"features of block {index} were asked for; this model has {depth} blocks: "
                f"use 0 to {depth - 1}, or -{depth} to -1 to count from the end"
            )
    return [index % depth for index in asked]
