"""The interactive page: one HTML file with the image and all attention in it, no server.

Attention is stored as gray PNGs, which every browser can unpack: 16 steps of the root of each
value's share of its row's largest. So a 224-pixel image in ViT-B/16 (12 layers of 12 heads over 197
tokens) takes less than 4 MB whatever the values are; where it would be more, heads are averaged.
"""

from __future__ import annotations

import html
import json
from importlib.resources import files

import torch
from torch import Tensor

from vitreous.explain.explanation import Explanation
from vitreous.explain.pictures import as_picture, data_url, steps_url

STEPS = 15
BUDGET = 3_000_000
"""Bytes of attention before base64: half a byte for each value."""


def page(explanation: Explanation, positions: Tensor | None = None, title: str = "") -> str:
    """The page for an explanation with its matrices; `positions` (gh, gw, gh, gw)."""
    assert explanation.matrices is not None, "explain(..., matrices=True) keeps what the page needs"
    attention, note = _within_budget(explanation.matrices)
    layers, heads, tokens = attention.shape[:3]
    result, layout = explanation.result, explanation.layout
    names = ["The class token", "The distillation token"][: layout.prefix]
    names += [f"Register {i + 1}" for i in range(layout.prefix - len(names))]
    most = attention.flatten(1, 2).amax(dim=-1)  # (layers, heads·tokens)
    maps = {"rollout over all layers": explanation.rollout}
    maps |= {f"for the class {name}": values for name, values in explanation.class_maps.items()}
    data = {
        "picture": data_url(as_picture(explanation.image)),
        "grid": layout.grid,
        "prefix": layout.prefix,
        "prefixNames": names,
        "layers": layers,
        "heads": heads,
        "headName": "mean of all heads"
        if heads < explanation.matrices.shape[1]
        else "the only one",
        "answer": f"{result.label}, {100 * result.score:.1f} % sure",
        "note": note,
        "attention": [_packed(layer.reshape(heads * tokens, -1)) for layer in attention],
        "most": (most * 1e4).round().int().tolist(),
        "maps": {name: _short(values.flatten()) for name, values in maps.items()},
        "positions": None if positions is None else _packed_positions(positions),
    }
    text = files("vitreous.explain").joinpath("viewer.html").read_text(encoding="utf-8")
    # "</script>" inside the data would end it; "<" may be written otherwise in JSON
    body = json.dumps(data).replace("<", "\\u003c")
    return text.replace("__TITLE__", html.escape(title or result.image)).replace("__DATA__", body)


def _within_budget(matrices: Tensor) -> tuple[Tensor, str]:
    if matrices.numel() / 2 <= BUDGET:
        return matrices, ""
    mean = matrices.mean(dim=1, keepdim=True)
    note = "Heads are averaged here, to keep the page small."
    if mean.numel() / 2 <= BUDGET:
        return mean, note
    step = -(-mean.numel() // (2 * BUDGET))
    return mean[step - 1 :: step], f"{note} Of the layers, each {step}th is shown."


def _packed(rows: Tensor) -> str:
    share = rows / rows.amax(dim=-1, keepdim=True).clamp(min=1e-12)
    return steps_url((share.clamp(min=0).sqrt() * STEPS).round())


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
