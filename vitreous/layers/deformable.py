"""Deformable attention: Deformable DETR (Zhu et al. 2021), section 4.1.

A query does not compare itself with every position of the maps. It says where to look, at a few
points around its box, and how much each counts: linear in the size of the maps, and quick to learn.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitreous.errors import ConfigError
from vitreous.layers.resample import Grid
from vitreous.layers.tap import is_tapped, show


class DeformableAttention(nn.Module):
    """Σ_k weight_k · value(box + offset_k) for each head, over the points of all levels (equations
    2 and 3), then a projection."""

    def __init__(
        self, dim: int, heads: int, levels: int, points: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        if dim % heads:
            raise ConfigError(f"dim = {dim} does not divide into {heads} cross_heads: change one")
        self.heads, self.levels, self.points = heads, levels, points
        self.offsets = nn.Linear(dim, heads * levels * points * 2)
        self.weights = nn.Linear(dim, heads * levels * points)
        self.value = nn.Linear(dim, dim)
        self.projection = nn.Linear(dim, dim)
        self.dropout = nn.Dropout(dropout)
        self.initialise()

    def initialise(self) -> None:
        """Each head looks into a direction of its own, the k-th point k steps far (section 4.1)."""
        for linear in (self.offsets, self.weights):
            nn.init.zeros_(linear.weight)
            nn.init.zeros_(linear.bias)
        angles = torch.arange(self.heads, device="cpu") * (2 * math.pi / self.heads)
        ways = torch.stack((angles.cos(), angles.sin()), dim=-1)
        ways = ways / ways.abs().amax(dim=-1, keepdim=True)
        steps = torch.arange(1, self.points + 1, device="cpu")
        start = ways[:, None, None] * steps[:, None]  # (heads, 1, points, 2)
        with torch.no_grad():
            self.offsets.bias.copy_(start.expand(-1, self.levels, -1, -1).flatten())
        for linear in (self.value, self.projection):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(
        self,
        queries: Tensor,
        boxes: Tensor,
        memory: Tensor,
        grids: Sequence[Grid],
        inside: Tensor | None = None,
    ) -> Tensor:
        """queries (b, q, d); boxes (b, q, levels or 1, 4), cxcywh as fractions of each map; memory
        (b, n, d), the maps one behind another; inside (b, n), False on padding -> (b, q, d)."""
        value = self.value(memory)
        if inside is not None:
            value = value.masked_fill(~inside[..., None], 0.0)
        value = value.unflatten(2, (self.heads, -1))  # (b, n, heads, e)
        shape = (self.heads, self.levels, self.points)
        offsets = self.offsets(queries).unflatten(2, (*shape, 2))
        weights = self.weights(queries).unflatten(2, (self.heads, -1)).softmax(dim=-1)
        weights = weights.unflatten(3, shape[1:])  # (b, q, heads, levels, points)
        centre, size = boxes[:, :, None, :, None, :2], boxes[:, :, None, :, None, 2:]
        places = centre + offsets * (size * (0.5 / self.points))  # (b, q, heads, levels, points, 2)
        if is_tapped(self):
            show(self, "places", places)
            show(self, "shares", weights)
            show(self, "weights", on_positions(places, weights, grids[0]))
        return self.dropout(self.projection(sampled(value, grids, places, weights)))


def neighbours(places: Tensor, grid: Grid) -> Iterator[tuple[Tensor, Tensor]]:
    """places (…, 2), xy as fractions of a map -> of each of the four positions around a point its
    number in the map, and its bilinear share, which is 0 beyond the map's edge: (…) each."""
    gh, gw = grid
    x, y = places[..., 0] * gw - 0.5, places[..., 1] * gh - 0.5
    left, top = x.floor(), y.floor()
    for dy in (0, 1):
        for dx in (0, 1):
            column, row = left + dx, top + dy
            share = (1 - (x - column).abs()) * (1 - (y - row).abs())
            inside = (column >= 0) & (column < gw) & (row >= 0) & (row < gh)
            number = row.clamp(0, gh - 1) * gw + column.clamp(0, gw - 1)
            yield number.long(), share * inside


def on_positions(places: Tensor, weights: Tensor, grid: Grid) -> Tensor:
    """What points count, as attention to the positions of a map: (b, heads, q, gh·gw), for points
    of all levels; rows sum to one where no point lies beyond the edge. See `sampled`."""
    places, weights = (each.transpose(1, 2).flatten(3, 4) for each in (places, weights))
    found = weights.new_zeros(*weights.shape[:3], grid[0] * grid[1])
    for number, share in neighbours(places, grid):
        found = found.scatter_add(3, number, share * weights)
    return found


def sampled(value: Tensor, grids: Sequence[Grid], places: Tensor, weights: Tensor) -> Tensor:
    """value (b, n, heads, e), places (b, q, heads, levels, points, 2), xy as fractions of a map,
    weights (b, q, heads, levels, points) -> (b, q, heads·e): the bilinear values there, weighted
    and added up. Beyond the map's edge there are zeros."""
    b, q, heads = places.shape[:3]
    parts = value.split([height * width for height, width in grids], dim=1)
    found = []
    for level, (part, grid) in enumerate(zip(parts, grids, strict=True)):
        maps = part.permute(0, 2, 3, 1).reshape(b * heads, -1, *grid)
        at = 2 * places[:, :, :, level].transpose(1, 2).flatten(0, 1) - 1  # (b·heads, q, points, 2)
        found.append(F.grid_sample(maps, at, align_corners=False))  # (b·heads, e, q, points)
    by_head = weights.transpose(1, 2).reshape(b * heads, 1, q, -1)
    out = (torch.cat(found, dim=-1) * by_head).sum(dim=-1)  # (b·heads, e, q)
    return out.unflatten(0, (b, heads)).flatten(1, 2).transpose(1, 2)
