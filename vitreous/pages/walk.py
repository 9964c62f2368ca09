"""The walk: one image's journey through the model, stage by stage, with shapes and pictures.

It hangs on the same taps as everything else here, so it shows what the model computes, not what a
drawing of the model says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vitreous.explain.attention import Layer
from vitreous.layers.tap import tap
from vitreous.models.model import Places
from vitreous.models.summary import spelled
from vitreous.pages.content import Picture, Table
from vitreous.pages.pictures import as_picture, data_url, principal_colours, stretched
from vitreous.pages.template import render
from vitreous.predict import Predictor

WORDS = {
    "image": "The image as the model sees it: resized, cut, and normalised by mean and std.",
    "stem": "A small convolutional network turns the image into a map of features.",
    "patch": "The image is cut into patches; each is multiplied by the same matrix and becomes one "
    "vector. Colours: patches with alike vectors look alike (three principal components).",
    "tokens": "The grid is written as one list, row by row. From here on the model does not know "
    "that it was a picture.",
    "prefix": "Learned tokens are put in front: for the head to read, or as room to think in.",
    "position": "Position is added to each token: without it the list would be a bag.",
    "patch_norm": "Normalised.",
    "norm": "The last normalisation.",
    "pool": "What the head reads of the whole image.",
    "pooled_norm": "Normalised once more.",
    "head": "One number for each class; softmax makes probabilities of them.",
    "encoder": "The tokens of the patches go back to their places; those without a place are left "
    "out. This map is decoded.",
    "decoder": "The decoder gives each place a score for each class. Shown: the class with the "
    "highest, in its colour.",
    "upsample": "The scores are enlarged to the image's size, and each pixel takes the class with "
    "the highest.",
}
STAGE = (
    "Stage {number}: {merged}blocks attend inside windows, every second one with the windows "
    "shifted. Left: the map behind the stage. Right: what is attended to in its last block, mean "
    "of all heads and patches."
)
BLOCK = (
    "Block {number}: each token gathers from those it attends to, then thinks for itself (MLP). "
    "Left: the tokens of the patches. Right: what they attend to, mean of all heads and patches."
)


@dataclass(frozen=True)
class Stop:
    """One stage of the walk."""

    name: str
    shape: tuple[int, ...]
    words: str
    pictures: list[Tensor]
    """Each (c, h, w) in 0..1."""
    large: bool = False
    """Whether there are words in the pictures, which are to be read."""


Draw = Callable[[Tensor], Tensor]
"""What a stage has for one image -> (3, h, w) in 0..1"""


@torch.no_grad()
def walk(
    predictor: Predictor, values: Tensor, last: Mapping[str, Draw] | None = None
) -> tuple[list[Stop], Tensor]:
    """The stages for one normalised image (c, h, w), and the output.

    `last`: how to draw stages that are not like those of every encoder.
    """
    last = last or {}
    model = predictor.model
    batch = values[None].to(predictor.device)
    stops: list[Stop] = []
    places: list[Places] = []
    attended: dict[str, Tensor] = {}
    before: list[Tensor] = [batch]
    core = model.core
    inner = next(f"{name}." for name, module in model.named_modules() if module is core).lstrip(".")
    inside = {f"{inner}{name}".rstrip("."): part for name, part in core.steps().items()}
    layers = {a.name: a for a in model.attentions((batch.shape[2], batch.shape[3]))}
    layers = {name: layer for name, layer in layers.items() if layer.part == "encoder"}

    def see(full: str, tensor: Tensor) -> None:
        owner, _, what = full.rpartition(".")
        if owner in layers or full in layers:
            if what == "weights":
                layer = Layer(0, owner, tensor, layers[owner].columns)
                places.append(layer.places)
                asking = torch.full((1, layer.tokens), 1 / layer.tokens, device=tensor.device)
                seen = layer.on_grid(layer.attended(tensor.mean(dim=1), asking))[0].cpu()
                block = max((n for n in inside if owner.startswith(f"{n}.")), key=len)
                attended[block] = seen
            return
        name = full.removeprefix(inner)
        unchanged = tensor.shape == before[-1].shape and torch.equal(tensor, before[-1])
        if unchanged or (inner and _is_aside(full, inner)):
            return  # a stage that this model does not have
        before[:] = [tensor]
        if full in last:
            pictures = [last[full](tensor[0].cpu())]
        else:
            pictures = _pictures(tensor.detach()[0].cpu(), name)
        if full in attended:
            pictures.append(stretched(attended[full])[None])
        stops.append(Stop(full, spelled(tensor), _words(name), pictures))

    modules = {name: model.get_submodule(name) for name in layers}
    with tap({**model.steps(), **inside, **modules}, see):
        output = model.features(batch).output
    for number, stop in enumerate(stops):  # a list of tokens is shown on the grid it comes from
        if stop.pictures[0].ndim == 2:
            tokens = stop.pictures[0]
            grids = (places[0].grid, places[-1].grid)  # patches may have been merged
            grid = next(each for each in grids if each[0] * each[1] <= len(tokens))
            patches = tokens[-grid[0] * grid[1] :]
            drawn = [principal_colours(patches, grid), *stop.pictures[1:]]
            stops[number] = replace(stop, pictures=drawn)
    image = cut_up(predictor.preprocess.restore(values), places[0])
    first = Stop("image", spelled(batch), WORDS["image"], [image])
    return [first, *stops], output[0].cpu()


def _is_aside(name: str, inner: str) -> bool:
    """Of a core that is decoded: its maps again that were shown as stages, and what is for a head
    that it does not have."""
    rest = name.removeprefix(inner)
    return name != rest and (rest in ("pool", "pooled_norm", "head") or rest.isdecimal())


def _words(name: str) -> str:
    kind, _, number = name.partition(".")
    numbered = {"blocks": BLOCK, "stages": STAGE}.get(kind)
    merged = "" if number == "0" else "patches are merged two by two; then "
    return numbered.format(number=int(number) + 1, merged=merged) if numbered else WORDS[name]


def cut_up(image: Tensor, places: Places) -> Tensor:
    """The image, enlarged if it is small, with lines between its patches."""
    times = max(1, -(-400 // max(image.shape[1:])))
    cut = image.repeat_interleave(times, dim=1).repeat_interleave(times, dim=2)
    for row in range(1, places.grid[0]):
        at = row * places.pixels[0] * times
        cut[:, at - 2 : at + 2] = 1.0
    for column in range(1, places.grid[1]):
        at = column * places.pixels[1] * times
        cut[:, :, at - 2 : at + 2] = 1.0
    return cut


def _pictures(tensor: Tensor, name: str) -> list[Tensor]:
    """What can be drawn of one stage: a map, a vector, or tokens as they are, (tokens, d)."""
    if tensor.ndim == 3:
        return [principal_colours(tensor.flatten(1).T, (tensor.shape[1], tensor.shape[2]))]
    if tensor.ndim == 2 and name not in ("pool", "pooled_norm", "head"):
        return [tensor]
    return [stretched(tensor.reshape(1, 1, -1))]


def page(stops: Sequence[Stop], table: Table, title: str) -> str:
    """The stages one below the other, and last what comes out."""
    return render(
        "walk.html", stops=[(stop, _drawn(stop)) for stop in stops], table=table, title=title
    )


def _drawn(stop: Stop) -> list[tuple[Picture, str]]:
    """Each picture, and how it is shown: a vector is a strip, pictures with words are large."""
    shown = []
    for picture in stop.pictures:
        kind = "large" if stop.large else "strip" if picture.shape[:2] == (1, 1) else "map"
        shown.append((Picture(data_url(as_picture(picture)), stop.name, not stop.large), kind))
    return shown
