"""The interactive page: one HTML file with the image and all attention in it, no server.

Attention is stored as gray PNGs, which every browser can unpack: 16 steps of the root of each
value's share of its row's largest. So a 224-pixel image in ViT-B/16 (12 layers of 12 heads over 197
tokens) takes less than 4 MB whatever the values are; where it would be more, heads are averaged.
"""

from __future__ import annotations

import html
import json
from dataclasses import replace
from importlib.resources import files
from typing import Any

import torch
from torch import Tensor

from vitreous.explain.attention import Layer
from vitreous.explain.explanation import Explanation
from vitreous.models.model import Places
from vitreous.pages.pictures import as_picture, data_url, steps_url
from vitreous.results import Classification
from vitreous.tasks.detect.explanation import DetectionExplanation

STEPS = 15
BUDGET = 3_000_000
"""Bytes of attention before base64: half a byte for each value."""


def page(
    explanation: Explanation | DetectionExplanation,
    positions: Tensor | None = None,
    title: str = "",
) -> str:
    """The page for an explanation with its layers; `positions` (gh, gw, gh, gw)."""
    layers, note = _within_budget(explanation.layers)
    data = {
        "picture": data_url(as_picture(explanation.image)),
        "grid": explanation.grid,
        "pixels": explanation.pixels,
        "size": list(explanation.image.shape[1:]),
        "headName": "mean of all heads" if "averaged" in note else "the only one",
        "note": note,
        "layers": [_layer(layer) for layer in layers],
    }
    if isinstance(explanation, DetectionExplanation):
        data |= _of_objects(explanation) | {"note": note and f"Of the encoder: {note}"}
    else:
        assert layers, "explain(..., layers=True) keeps what the page needs"
        data |= _of_classes(explanation, positions)
    text = files("vitreous.pages").joinpath("viewer.html").read_text(encoding="utf-8")
    # "</script>" inside the data would end it; "<" may be written otherwise in JSON
    body = json.dumps(data).replace("<", "\\u003c")
    title = html.escape(title or explanation.result.image)
    return text.replace("__TITLE__", title).replace("__DATA__", body)


def _of_classes(explanation: Explanation, positions: Tensor | None) -> dict[str, Any]:
    """Rollout, class maps and positions."""
    patches = explanation.grid[0] * explanation.grid[1]
    if patches == 1 or patches**2 / 2 > BUDGET:
        positions = None
    asked = explanation.asked
    whence = "" if asked is None else ", back from the pixel"
    maps = {f"rollout over all layers{whence}": explanation.rollout}
    maps |= {f"for the class {name}": values for name, values in explanation.class_maps.items()}
    return {
        "prefix": explanation.layers[0].places.prefix,
        "prefixNames": explanation.prefix,
        "answer": _answer(explanation),
        "chosen": None if asked is None else _shares(asked.at, explanation.image),
        "maps": {name: _short(values.flatten()) for name, values in maps.items()},
        "positions": None if positions is None else _packed_positions(positions),
        "objects": None,
    }


def _of_objects(explanation: DetectionExplanation) -> dict[str, Any]:
    """The objects that were found, with the attention of their queries for each layer."""
    result, looks = explanation.result, explanation.looks
    counts = ", ".join(f"{count} {name}" for name, count in result.counts.items())
    answer = f"Found: {counts}" if counts else f"Nothing is as sure as {result.threshold:g}"
    if explanation.below and looks:
        answer += ". The surest:"
    places = Places(0, explanation.grid, explanation.pixels)
    weights = [look.heads.flatten(2) for look in looks]  # (layers, heads, n) each
    layers = torch.stack(weights, dim=2) if weights else ()
    height, width = explanation.image.shape[1:]
    return {
        "prefix": 0,
        "prefixNames": (),
        "answer": answer,
        "chosen": _shares(explanation.at, explanation.image),
        "maps": {},
        "positions": None,
        "objects": {
            "names": [mark.words for mark in explanation.marks()],
            "boxes": [
                [left / width, top / height, right / width, bottom / height]
                for left, top, right, bottom in (mark.box for mark in explanation.marks())
            ],
            "layers": [_layer(Layer(i, "", each[None], places)) for i, each in enumerate(layers)],
            "first": not explanation.chosen,
        },
    }


def _answer(explanation: Explanation) -> str:
    """What the model says, and how sure it is."""
    result, asked = explanation.result, explanation.asked
    if isinstance(result, Classification):
        return f"{result.label}, {100 * result.score:.1f} % sure"
    assert asked is not None
    y, x = asked.pixel
    name, sure = result.names[result.mask[y, x]], 100 * float(result.confidence[y, x])
    return f"The pixel in row {y}, column {x} is {name}, {sure:.1f} % sure"


def _shares(pixel: tuple[int, int], image: Tensor) -> list[float]:
    """Where the middle of a pixel lies, from the top and from the left, as shares of the image."""
    return [(place + 0.5) / side for place, side in zip(pixel, image.shape[1:], strict=True)]


def _layer(layer: Layer) -> dict[str, Any]:
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
