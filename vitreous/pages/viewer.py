"""The interactive page: one HTML file with the image and all attention in it, no server.

Attention is stored as gray PNGs, which every browser can unpack: 16 steps of the root of each
value's share of its row's largest. So a 224-pixel image in ViT-B/16 (12 layers of 12 heads over 197
tokens) takes less than 4 MB whatever the values are; where it would be more, heads are averaged.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from vitreous.explain.attention import Layer
from vitreous.explain.explanation import Explanation, MapExplanation
from vitreous.pages.pictures import as_picture, data_url, steps_url
from vitreous.pages.template import render

STEPS = 15
BUDGET = 3_000_000
"""Bytes of attention before base64: half a byte for each value."""


def page(data: dict[str, Any], title: str) -> str:
    """The page for an explanation; data: see `layer_data`."""
    return render("viewer.html", title=title, data=data)


def layer_data(found: Explanation) -> dict[str, Any]:
    """What the page needs of every explanation: the image, the attention of `found.layers`, and the
    pixel that it is about, as shares of the image's height and width."""
    layers, note = _within_budget(found.layers)
    size = found.image.shape[1:]
    return {
        "picture": data_url(as_picture(found.image)),
        "grid": found.grid,
        "pixels": found.pixels,
        "size": list(size),
        "headName": "mean of all heads" if "averaged" in note else "the only one",
        "note": note,
        "layers": [packed(layer) for layer in layers],
        "chosen": found.at and [(place + 0.5) / s for place, s in zip(found.at, size, strict=True)],
    }


def map_data(found: MapExplanation, positions: Tensor | None) -> dict[str, Any]:
    """With rollout, class maps, and positions (gh, gw, gh, gw)."""
    assert found.layers, "explain(..., layers=True) keeps what the page needs"
    patches = found.grid[0] * found.grid[1]
    if patches == 1 or patches**2 / 2 > BUDGET:
        positions = None
    maps = {"attention rollout": found.rollout}
    maps |= {f"for the class {name}": values for name, values in found.class_maps.items()}
    return layer_data(found) | {
        "prefix": found.layers[0].places.prefix,
        "prefixNames": found.prefix,
        "maps": {name: _short(values.flatten()) for name, values in maps.items()},
        "positions": None if positions is None else _packed_positions(positions),
    }


def packed(layer: Layer) -> dict[str, Any]:
    """One layer for the page: a row of the picture for each head, window and query."""
    rows = layer.weights.transpose(0, 1).flatten(0, 2)  # (heads · windows · n, n)
    windows = layer.places.windows
    return {
        "number": layer.number + 1,
        "grid": layer.places.grid,
        "pixels": layer.places.pixels,
        "heads": layer.heads,
        "windows": None if windows is None else windows.flatten().tolist(),
        "attention": _packed(rows),
        "most": _short(rows.amax(dim=-1)),
    }


def _within_budget(layers: list[Layer]) -> tuple[list[Layer], str]:
    def size(some: list[Layer]) -> float:
        return sum(layer.weights.numel() for layer in some) / 2

    if size(layers) <= BUDGET:
        return layers, ""
    mean = [replace(layer, weights=layer.weights.mean(dim=1, keepdim=True)) for layer in layers]
    note = "Heads are averaged here, to keep the page small."
    if size(mean) <= BUDGET:
        return mean, note
    step = -(-int(size(mean)) // BUDGET)
    if step >= len(mean):
        return mean[-1:], f"{note} Only the last layer is shown."
    kept = mean[::-1][::step][::-1]
    return kept, f"{note} Of {len(mean)} layers, {len(kept)} are shown."


def _packed(rows: Tensor) -> str:
    most = rows.amax(dim=-1, keepdim=True)
    share = rows / most.clamp(min=1e-12)
    steps = (share.clamp(min=0).sqrt() * STEPS).round()
    # only the largest gets the last step, so that the page names the right place
    return steps_url(torch.where(rows < most, steps.clamp(max=STEPS - 1), steps))


def _packed_positions(similar: Tensor) -> str:
    """From the least to the most alike that each place knows, besides itself."""
    flat = similar.flatten(2).flatten(0, 1).clone()
    flat.fill_diagonal_(float("-inf"))
    most = flat.amax(dim=1, keepdim=True)
    flat = torch.minimum(similar.flatten(2).flatten(0, 1), most)
    least = flat.amin(dim=1, keepdim=True)
    share = (flat - least) / (most - least).clamp(min=1e-12)
    return steps_url((share * STEPS).round())


def _short(values: Tensor) -> list[float]:
    return [float(f"{value:.4g}") for value in values.tolist()]
