"""Deformable attention beside a brute-force computation."""

import math

import pytest
import torch

from vitreous.errors import ConfigError
from vitreous.layers.deformable import DeformableAttention, sampled
from vitreous.layers.tap import tap

GRIDS = [(5, 6), (3, 3)]


def given(beyond=0.2):
    """value, places and weights of two images; some points lie outside of the maps."""
    generator = torch.Generator().manual_seed(0)
    value = torch.randn(2, 39, 4, 8, generator=generator)
    places = torch.rand(2, 7, 4, 2, 3, 2, generator=generator) * (1 + 2 * beyond) - beyond
    weights = torch.rand(2, 7, 4, 2, 3, generator=generator)
    return value, places, weights


def bilinear(maps, x, y):
    """maps (h, w, e), a point in pixels of it whose centres are at 0.5 -> (e,), by hand."""
    total = torch.zeros(maps.shape[2])
    for row in range(math.floor(y - 0.5), math.floor(y - 0.5) + 2):
        for column in range(math.floor(x - 0.5), math.floor(x - 0.5) + 2):
            if 0 <= row < maps.shape[0] and 0 <= column < maps.shape[1]:
                share = (1 - abs(y - 0.5 - row)) * (1 - abs(x - 0.5 - column))
                total += share * maps[row, column]
    return total


def test_points_are_sampled_bilinearly():
    value, places, weights = given()
    found = sampled(value, GRIDS, places, weights).unflatten(2, (4, 8))  # (b, q, heads, e)
    maps = [
        part.unflatten(1, grid)
        for part, grid in zip(value.split([30, 9], dim=1), GRIDS, strict=True)
    ]
    for image, query, head in [(0, 0, 0), (1, 6, 3), (0, 3, 2)]:
        expected = torch.zeros(8)
        for level, (gh, gw) in enumerate(GRIDS):
            for point in range(3):
                x, y = places[image, query, head, level, point].tolist()
                own = bilinear(maps[level][image, :, :, head], x * gw, y * gh)
                expected += weights[image, query, head, level, point] * own
        assert torch.allclose(found[image, query, head], expected, atol=1e-5)


def test_at_first_every_head_looks_into_its_own_direction():
    """The k-th point k steps of a quarter of half the box far, all points counting alike."""
    attention = DeformableAttention(32, 8, 1, 2)
    seen = {}
    box = torch.tensor([0.5, 0.5, 0.2, 0.4]).expand(1, 3, 1, 4)
    with tap({"": attention}, lambda name, value: seen.update({name: value})):
        attention(torch.randn(1, 3, 32), box, torch.randn(1, 16, 32), [(4, 4)])
    assert torch.allclose(seen["shares"], torch.full((1, 3, 8, 1, 2), 0.5))
    assert torch.allclose(seen["weights"].sum(dim=-1), torch.ones(1, 8, 3))
    away = (seen["places"] - 0.5)[0, 0, :, 0]  # (heads, points, 2)
    assert torch.allclose(away[:, 1], 2 * away[:, 0], atol=1e-6)
    assert torch.allclose(away[0, 0], torch.tensor([0.2 / 4, 0.0]), atol=1e-6)
    assert len({tuple(row) for row in away[:, 0].mul(1e4).round().tolist()}) == 8


def test_padding_is_not_seen():
    attention = DeformableAttention(16, 4, 1, 2)
    queries, boxes = torch.randn(1, 5, 16), torch.rand(1, 5, 1, 4)
    inside = torch.arange(16)[None] < 8
    memory = torch.randn(1, 16, 16)
    other = torch.where(inside[..., None], memory, torch.randn(1, 16, 16))
    found = [attention(queries, boxes, each, [(4, 4)], inside) for each in (memory, other)]
    assert torch.equal(*found)


def test_heads_that_do_not_divide():
    with pytest.raises(ConfigError, match=r"dim = 30 does not divide into 4 cross_heads"):
        DeformableAttention(30, 4, 1, 2)
