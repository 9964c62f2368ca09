"""The walk: one image on its way through the model, stage by stage, with shapes and pictures.

It uses the same taps as everything else here, so it shows what the model computes, not what a
drawing of the model says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vitreous.config import read_toml
from vitreous.engines.summary import spelled
from vitreous.explain.attention import Layer
from vitreous.layers.tap import tap
from vitreous.models.model import Places
from vitreous.pages.content import Picture, Table
from vitreous.pages.pictures import as_picture, data_url, principal_colours, stretched
from vitreous.pages.template import render
from vitreous.predict import Predictor

WORDS = read_toml(Path(__file__).with_name("walk.toml"), "words for each stage")
"""What is written beside each kind of stage."""
MERGED = "patches are merged two by two; then "


class Stop(NamedTuple):
    """One stage of the walk."""

    name: str
    shape: tuple[int, ...]
    words: str
    pictures: list[Tensor]
    """Each (c, h, w) in 0..1."""


Draw = Callable[[Tensor], list[Tensor]]
"""What a stage computes for one image -> pictures, each (c, h, w) in 0..1"""


@torch.no_grad()
def walk(
    predictor: Predictor,
    values: Tensor,
    words: Mapping[str, str] = WORDS,
    draw: Mapping[str, Draw] | None = None,
    *,
    inside: bool = True,
    query: int | None = None,
) -> tuple[list[Stop], Any]:
    """The stages for one normalised image (c, h, w), and the model's output.

    `words` and `draw` are by kind of stage; `draw` has those that are not maps, tokens or vectors.
    `inside`: with the stages of the model that is inside this one. `query`: a decoder's, whose
    attention is shown beside that of all.
    """
    model, draw = predictor.model, draw or {}
    batch = values[None].to(predictor.device)
    core = model.core
    inner = next(f"{name}." for name, module in model.named_modules() if module is core).lstrip(".")
    steps = model.steps()
    if inside:
        steps |= {f"{inner}{name}".rstrip("."): part for name, part in core.steps().items()}
    layers = {
        layer.name: layer
        for layer in model.attentions((batch.shape[2], batch.shape[3]))
        if layer.part in ("encoder", "cross", "pool")
    }
    places = [layer.columns for layer in layers.values()]
    stops = [Stop("image", spelled(batch), words["image"], [cut_up(predictor, values, places[0])])]
    attended: dict[str, list[Tensor]] = {}
    before = batch

    def see_attention(name: str, weights: Tensor) -> None:
        layer = Layer(0, name, weights, layers[name].columns)
        askers = layer.tokens if layer.places.windows is not None else weights.shape[2]
        asking = [torch.full((1, askers), 1 / askers, device=weights.device)]
        if query is not None and layers[name].part == "cross":
            asking.append(torch.eye(askers, device=weights.device)[query, None])
        mean = weights.mean(dim=1)
        around = [step for step in steps if step and f"{name}.".startswith(f"{step}.")]
        if not around:  # of a model inside, whose stages are not shown
            return
        block = max(around, key=len)
        attended[block] = [layer.on_grid(layer.attended(mean, each))[0].cpu() for each in asking]

    def see(full: str, tensor: Tensor) -> None:
        nonlocal before
        owner, _, what = full.rpartition(".")
        if owner in layers or full in layers:
            if what == "weights":
                see_attention(owner, tensor)
            return
        if before.shape == tensor.shape and torch.equal(before, tensor):
            return  # a stage that this model does not have
        if inside and inner and _is_aside(full, inner):
            return
        before = tensor
        name = full.removeprefix(inner) if inside else full
        kind, _, number = name.partition(".")
        one = tensor[0].float().cpu()
        pictures = draw[kind](one) if kind in draw else _pictures(one, kind, places)
        pictures += [stretched(each)[None] for each in attended.get(full, ())]
        merged = "" if number == "0" else MERGED
        count = int(number) + 1 if number.isdecimal() else 1
        text = words.get(name, words[kind]).format(number=count, merged=merged)
        stops.append(Stop(full, spelled(tensor), text, pictures))

    with tap({**steps, **{name: model.get_submodule(name) for name in layers}}, see):
        output = model(batch)
    return stops, output


def _is_aside(name: str, inner: str) -> bool:
    """Of a core that is decoded: its maps again that were shown as stages, and what is for a head
    that it does not have."""
    rest = name.removeprefix(inner)
    return name != rest and (rest in ("pool", "pooled_norm", "head") or rest.isdecimal())


def cut_up(predictor: Predictor, values: Tensor, places: Places) -> Tensor:
    """The image, enlarged if it is small, with lines between its patches."""
    image = predictor.preprocess.restore(values)
    times = max(1, -(-400 // max(image.shape[1:])))
    cut = image.repeat_interleave(times, dim=1).repeat_interleave(times, dim=2)
    for axis, (count, pixels) in enumerate(zip(places.grid, places.pixels, strict=True), 1):
        for line in range(1, min(count, -(-image.shape[axis] // pixels))):  # beyond it is padding
            first = line * pixels * times - 2
            cut.narrow(axis, first, min(4, cut.shape[axis] - first)).fill_(1.0)
    return cut


def _pictures(tensor: Tensor, kind: str, places: Sequence[Places]) -> list[Tensor]:
    """Of one stage: a map (d, h, w), tokens (n, d) on the grid they come from, or a vector."""
    if tensor.ndim == 3:
        return [principal_colours(tensor.flatten(1).T, (tensor.shape[1], tensor.shape[2]))]
    if tensor.ndim == 1 or kind in ("pool", "pooled_norm", "head"):
        return [stretched(tensor.reshape(1, 1, -1))]
    grids = (places[0].grid, places[-1].grid)  # patches may have been merged
    grid = next(each for each in grids if each[0] * each[1] <= len(tensor))
    return [principal_colours(tensor[-grid[0] * grid[1] :], grid)]


def page(stops: Sequence[Stop], table: Table, title: str) -> str:
    """The stages one below the other, and last what comes out."""
    shown = [(stop, _drawn(stop, stop is stops[-1])) for stop in stops]
    return render("walk.html", stops=shown, table=table, title=title)


def _drawn(stop: Stop, last: bool) -> list[tuple[Picture, str]]:
    """Each picture, and how it is shown: a vector is a strip, and the last stage is large."""
    shown = []
    for picture in stop.pictures:
        kind = "strip" if picture.shape[:2] == (1, 1) else "large" if last else "map"
        shown.append((Picture(data_url(as_picture(picture)), stop.name, True), kind))
    return shown
