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
from vitreous.pages.words import WORDS, Message, token_name, words_for

STEPS = 15
BUDGET = 3_000_000
"""Bytes of attention before base64: half a byte for each value."""


def page(data: dict[str, Any], image: str, model: str) -> str:
    """The page for an explanation; data: see `layer_data`."""
    title = WORDS["look"]["title"][0].format(image, model)
    data = data | {"title": ["title", image, model]}
    return render("viewer.html", title=title, data=data, words=words_for("look", "viewer"))


def layer_data(found: Explanation) -> dict[str, Any]:
    """What the page needs of every explanation: the image, the attention of `found.layers`, and the
    pixel that it is about, as shares of the image's height and width. Names and notes: messages."""
    layers, note = _within_budget(found.layers)
    size = found.image.shape[1:]
    return {
        "picture": data_url(as_picture(found.image)),
        "grid": found.grid,
        "pixels": found.pixels,
        "size": list(size),
        "headName": ["meanHead" if note else "onlyHead"],
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
    classes = {f"for the class {name}": name for name in found.class_maps}
    maps = {"attention rollout": found.rollout}
    maps |= {key: found.class_maps[name] for key, name in classes.items()}
    return layer_data(found) | {
        "prefix": found.layers[0].places.prefix,
        "prefixNames": [token_name(name) for name in found.prefix],
        "maps": {key: _short(values.flatten()) for key, values in maps.items()},
        "mapNames": {
            "attention rollout": ["rollout"],
            **{key: ["classMap", name] for key, name in classes.items()},
        },
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


def _within_budget(layers: list[Layer]) -> tuple[list[Layer], list[Message]]:
    def size(some: list[Layer]) -> float:
        return sum(layer.weights.numel() for layer in some) / 2

    if size(layers) <= BUDGET:
        return layers, []
    mean = [replace(layer, weights=layer.weights.mean(dim=1, keepdim=True)) for layer in layers]
    note: list[Message] = [["averaged"]]
    if size(mean) <= BUDGET:
        return mean, note
    step = -(-int(size(mean)) // BUDGET)
    if step >= len(mean):
        return mean[-1:], [*note, ["onlyLast"]]
    kept = mean[::-1][::step][::-1]
    return kept, [*note, ["someLayers", len(mean), len(kept)]]


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
