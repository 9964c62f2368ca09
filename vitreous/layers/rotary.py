"""Rotary positions, on queries and keys."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.config import Finite, Hidden, OneOrMore, Size, pair
from vitreous.errors import ConfigError
from vitreous.layers.attention import Rotate
from vitreous.layers.position import Learned1d, Position, PositionConfig, TokenSizes
from vitreous.layers.resample import Grid
from vitreous.layers.tap import show


@dataclass(frozen=True)
class TurnedConfig(PositionConfig):
    """What both kinds have."""

    base: OneOrMore = 10_000.0
    """Queries and keys turn at frequencies from 1 down to nearly 1 / base."""
    coordinates: Hidden[Literal["patches", "centred"]] = "patches"
    """The number of a patch, or its centre, from -2π to 2π over the image."""
    offset: Finite[float] = 0.0
    """The number of the first patch."""
    reference: Hidden[Size | None] = None
    """Patches are numbered as if the image had this grid, whatever its size."""
    order: Hidden[Literal["yx", "xy"]] = "yx"
    """Which axis turns the first half of a head."""
    layout: Hidden[Literal["pairs", "halves"]] = "pairs"
    """What turns together: neighbouring channels, or those of the two halves of a head."""
    on_tokens = False

    def check_sizes(self, sizes: TokenSizes) -> None:
        if sizes.head_dim % 4:
            raise ConfigError(
                f"heads of width {sizes.head_dim} with position {self.kind!r}: use a multiple of "
                "4, a pair of channels for each axis"
            )


@dataclass(frozen=True)
class RotaryConfig(TurnedConfig):
    kind: Literal["rotary"] = "rotary"

    def make(self, sizes: TokenSizes) -> Position:
        return Rotary(sizes.head_dim, self)


@dataclass(frozen=True)
class LearnedRotaryConfig(TurnedConfig):
    """A learned table beside them, on the tokens; see `Learned1dConfig`."""

    kind: Literal["learned-1d+rotary"] = "learned-1d+rotary"
    prefix: bool = True
    antialias: bool = True

    def make(self, sizes: TokenSizes) -> Position:
        rows = sizes.rows if self.prefix else 0
        rotary = Rotary(sizes.head_dim, self)
        return LearnedRotary(sizes.dim, sizes.grid, rows, rotary, antialias=self.antialias)


class Rotary(Position):
    """Queries and keys turn with the place of their patch (Su et al. 2021; over two axes: EVA-02).

    Pairs of channels are turned by an angle that grows with the coordinate, the first half of them
    with y, the other with x (or the other way round, `order`), at frequencies from 1 down to nearly
    1 / base. The product of a query and a key then knows their offset. The prefix is not turned.

    coordinates: of patches, counted from `offset` on, as if the image had `reference` patches where
        that is given (EVA-02), so that a finer grid covers the same range; or "centred": of patch
        centres, from -2π to 2π over the image, whatever its size and aspect ratio (DINOv3).
    layout: whether a pair are two neighbouring channels, or channels of the two halves of a head.
    """

    merges_from = None

    def __init__(self, head_dim: int, config: TurnedConfig) -> None:
        super().__init__()
        self.head_dim, self.config = head_dim, config
        self.scaled = config.coordinates == "centred" or config.reference is not None

    def rotation(self, prefix: int, grid: Grid, device: torch.device | None = None) -> Rotate:
        pairs = self.config.layout == "pairs"
        angles = show(self, "angles", self.angles(grid, device), inside=True)  # (…, n, e/2)
        angles = angles.repeat_interleave(2, dim=-1) if pairs else torch.cat((angles, angles), -1)
        # An angle of 0 leaves the prefix exactly as it is, without taking the tokens apart.
        angles = F.pad(angles, (0, 0, prefix, 0)).unsqueeze(-3)  # (…, 1, p + n, e)
        cos, sin = angles.cos(), angles.sin()

        def rotate(x: Tensor) -> Tensor:
            if pairs:
                first, second = x.unflatten(-1, (-1, 2)).unbind(-1)
                across = torch.stack((-second, first), dim=-1).flatten(-2)
            else:
                first, second = x.chunk(2, dim=-1)
                across = torch.cat((-second, first), dim=-1)
            return (x * cos + across * sin).to(x.dtype)

        return rotate

    def periods(self) -> Tensor:
        """(e/4,), the reciprocals of the frequencies, as DINOv3's files have them."""
        quarter = self.head_dim // 4
        return self.config.base ** (torch.arange(quarter) / quarter)

    def angles(self, grid: Grid, device: torch.device | None = None) -> Tensor:
        """(gh·gw, e/2), in float32 whatever the model computes in."""
        config, quarter = self.config, self.head_dim // 4
        frequencies = config.base ** -(torch.arange(quarter, device=device) / quarter)
        gh, gw = grid

        def along(axis: int) -> Tensor:  # (count, e/4)
            count = grid[axis]
            places = torch.arange(count, device=device, dtype=torch.float32)
            if config.coordinates == "centred":
                places = (2 * (places + 0.5) / count - 1) * (2 * math.pi)
            else:
                places = places + config.offset
                if config.reference is not None:
                    places = places / count * pair("reference", config.reference)[axis]
            return places[:, None] * frequencies

        y = along(0)[:, None].expand(-1, gw, -1)
        x = along(1)[None].expand(gh, -1, -1)
        return torch.cat((y, x) if config.order == "yx" else (x, y), dim=-1).flatten(0, 1)


class LearnedRotary(Learned1d):
    """A learned table on the tokens, and rotary positions on queries and keys (EVA-02)."""

    merges_from = None

    def __init__(
        self, dim: int, grid: Grid, rows: int, rotary: Rotary, *, antialias: bool = True
    ) -> None:
        super().__init__(dim, grid, rows, antialias=antialias)
        self.rotary = rotary

    def rotation(self, prefix: int, grid: Grid, device: torch.device | None = None) -> Rotate:
        return self.rotary.rotation(prefix, grid, device)
