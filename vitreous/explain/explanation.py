"""Everything that explains one answer, as named tensors: what `predictor.explain(image)` gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from vitreous.errors import ConfigError, did_you_mean
from vitreous.explain.attention import (
    Layer,
    Rollout,
    class_maps,
    has_attention,
    look,
    no_attention,
    reading,
)
from vitreous.models.model import Places
from vitreous.predict import Predictor
from vitreous.results import Classification


@dataclass(frozen=True)
class Explanation:
    """One image and what the model did with it. Maps are (gh, gw), a number for each patch."""

    result: Classification
    image: Tensor
    """(c, h, w) in 0..1, as the model sees it."""
    grid: tuple[int, int]
    """Patches in height and width, where they are smallest."""
    pixels: tuple[int, int]
    """Height and width of such a patch in `image`."""
    region: tuple[float, float, float, float]
    """top, left, height and width of what the model sees, in pixels of the image as given."""
    attention: list[Tensor]
    """For each layer (heads, gh, gw): what the tokens that the head reads attend to. Swin's later
    layers have coarser grids."""
    rollout: Tensor
    """(gh, gw), attention rollout over all layers; sums to one."""
    class_maps: dict[str, Tensor] = field(default_factory=dict)
    """By class name (gh, gw), what speaks for the class; sums to one."""
    layers: list[Layer] = field(default_factory=list)
    """All attention, where it was asked for."""
    prefix: tuple[str, ...] = ()
    """What the tokens before the patches are called."""

    def box(self, row: int, column: int) -> tuple[float, float, float, float]:
        """top, left, bottom, right of a patch, in pixels of the image as given."""
        if not (0 <= row < self.grid[0] and 0 <= column < self.grid[1]):
            raise ConfigError(
                f"there is no patch ({row}, {column}) in a grid of {self.grid[0]}x{self.grid[1]}"
            )
        top, left, height, width = self.region
        tall = self.pixels[0] * height / self.image.shape[1]
        wide = self.pixels[1] * width / self.image.shape[2]
        return (
            top + row * tall,
            left + column * wide,
            min(top + (row + 1) * tall, top + height),
            min(left + (column + 1) * wide, left + width),
        )

    def to_dict(self) -> dict[str, Any]:
        """For programs: everything as lists, without the picture."""
        return {
            **self.result.to_dict(5),
            "grid": list(self.grid),
            "pixels": list(self.pixels),
            "region": list(self.region),
            "attention": [layer.tolist() for layer in self.attention],
            "rollout": self.rollout.tolist(),
            "class_maps": {name: values.tolist() for name, values in self.class_maps.items()},
        }


def explain(
    predictor: Predictor, image: Any, classes: Sequence[str] | int = 3, *, layers: bool = False
) -> Explanation:
    """Why the model says what it says about an image (a path, an array, a PIL image, a tensor).

    `classes` are names, or how many of the likeliest, to make maps for. `layers` keeps all
    attention, which for long sequences is much.
    """
    model = predictor.model
    check(predictor, classes)
    pixels, name = predictor.read(image)
    values = predictor.prepare(pixels, name)
    batch = values[None].to(predictor.device)
    rollout, rows, kept = Rollout(), [], []
    first: list[Places] = []

    def see(layer: Layer) -> None:
        rollout.see(layer)
        askers = reading(model, layer)[None]
        attended = [layer.attended(head, askers)[0] for head in layer.weights.unbind(1)]
        rows.append(layer.on_grid(torch.stack(attended)).cpu())  # (heads, gh, gw)
        first[:] = first or [layer.places]
        if layers:
            kept.append(replace(layer, weights=layer.weights.cpu()))

    with torch.no_grad():
        logits = look(model, batch, see)
        flow = rollout.map(model)[0].cpu()
    result = predictor.task.decode(logits.cpu(), [name])[0]
    chosen = _chosen(predictor.labels, classes, result)
    numbers = [predictor.labels.index(label) for label in chosen]
    maps = class_maps(model, batch, numbers).cpu().unbind() if chosen else ()
    return Explanation(
        result=result,
        image=predictor.preprocess.restore(values),
        grid=first[0].grid,
        pixels=first[0].pixels,
        region=predictor.preprocess.region(pixels.shape[1], pixels.shape[2]),
        attention=rows,
        rollout=flow,
        class_maps=dict(zip(chosen, maps, strict=True)),
        layers=kept,
        prefix=_prefix_names(model.config),
    )


def check(predictor: Predictor, classes: Sequence[str] | int) -> None:
    """Whether this can be explained at all, before any work is done."""
    if not has_attention(predictor.model):
        raise no_attention(predictor.model)
    if isinstance(classes, int) and not isinstance(classes, bool) and classes >= 0:
        return
    listed = isinstance(classes, Sequence) and not isinstance(classes, str)
    if isinstance(classes, int) or not listed or not all(isinstance(c, str) for c in classes):
        raise ConfigError(
            f"classes = {classes!r}: expected a list of names, or how many of the likeliest"
        )
    for name in classes:
        if name not in predictor.labels:
            known = ", ".join(predictor.labels[:20])
            hint = did_you_mean(name, predictor.labels) or f": it knows {known}"
            raise ConfigError(f"the model has no class {name!r}{hint}")


def _prefix_names(config: Any) -> tuple[str, ...]:
    names = [] if getattr(config, "tokens", "none") == "none" else config.tokens.split("+")
    registers = range(1, getattr(config, "registers", 0) + 1)
    return (*(f"the {name} token" for name in names), *(f"register {i}" for i in registers))


def _chosen(labels: Sequence[str], asked: Sequence[str] | int, result: Classification) -> list[str]:
    if isinstance(asked, Sequence):
        return list(asked)
    return [name for name, _ in result.top(min(asked, len(labels)))]
