"""Everything that explains one answer, as named tensors: what `predictor.explain(image)` gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from vitreous.errors import ConfigError, did_you_mean
from vitreous.explain.attention import Layer, has_attention, look, no_attention
from vitreous.explain.class_maps import class_maps
from vitreous.explain.patched import Seen
from vitreous.explain.query import Asked, Pixel, ask
from vitreous.explain.rollout import Rollout
from vitreous.models.model import Places
from vitreous.predict import Predictor
from vitreous.results import Classification, Segmentation
from vitreous.tasks.detect.explanation import DetectionExplanation, explain_objects


@dataclass(frozen=True)
class Explanation(Seen):
    """What the model did with an image of which it says a class, or one of each pixel."""

    result: Classification | Segmentation
    attention: list[Tensor]
    """For each layer (heads, gh, gw): what the tokens that the head reads attend to, or what the
    patch of the pixel does that is asked about. Swin's later layers have coarser grids."""
    rollout: Tensor
    """(gh, gw), attention rollout over all layers, back from the same; sums to one."""
    class_maps: dict[str, Tensor] = field(default_factory=dict)
    """By class name (gh, gw), what speaks for the class; sums to one."""
    layers: list[Layer] = field(default_factory=list)
    """All attention, where it was asked for."""
    prefix: tuple[str, ...] = ()
    """What the tokens before the patches are called."""
    asked: Asked | None = None
    """For segmentation: the pixel that is asked about."""

    def to_dict(self) -> dict[str, Any]:
        """For programs: everything as lists, without the picture."""
        return {
            **super().to_dict(),
            **({} if self.asked is None else {"pixel": list(self.asked.pixel)}),
            "attention": [layer.tolist() for layer in self.attention],
            "rollout": self.rollout.tolist(),
            "class_maps": {name: values.tolist() for name, values in self.class_maps.items()},
        }


def explain(
    predictor: Predictor,
    image: Any,
    classes: Sequence[str] | int = 3,
    *,
    pixel: Pixel | None = None,
    layers: bool = False,
) -> Explanation | DetectionExplanation:
    """Why the model says what it says about an image (a path, an array, a PIL image, a tensor).

    `classes` are names, or how many of the likeliest, to make maps for; of a detector, names whose
    objects are explained. `pixel` (y, x) is asked about where each pixel has a class, and is the
    middle one unless given; of a detector, in the middle of the surest object. `layers` keeps all
    attention, which for long sequences is much.
    """
    check(predictor, classes, pixel)
    if predictor.task.name == "detect":
        names = None if isinstance(classes, int) else classes
        return explain_objects(predictor, image, names, pixel=pixel, layers=layers)
    model, labels = predictor.model, predictor.labels
    question = ask(predictor, *predictor.read(image), pixel)
    view = question.view
    batch = view.values[None].to(predictor.device)
    rollout, rows, kept = Rollout(), [], []
    first: list[Places] = []

    def see(layer: Layer) -> None:
        rollout.see(layer)
        askers = question.read(layer)[None]
        attended = [layer.attended(head, askers)[0] for head in layer.weights.unbind(1)]
        rows.append(layer.on_grid(torch.stack(attended)).cpu())  # (heads, gh, gw)
        first[:] = first or [layer.places]
        if layers:
            kept.append(replace(layer, weights=layer.weights.cpu()))

    with torch.no_grad():
        output = look(model, batch, see)
        flow = rollout.map(question.read, own=question.own)[0].cpu()
    if isinstance(classes, int):
        chosen = question.likeliest(output, classes)
    else:
        chosen = [labels.index(label) for label in classes]
    wanted = [question.wanted(output, number) for number in chosen]
    maps = class_maps(model, batch, wanted).cpu().unbind() if wanted else ()
    return Explanation(
        result=question.result(output),
        image=predictor.preprocess.restore(view.values),
        grid=first[0].grid,
        pixels=first[0].pixels,
        region=view.region,
        attention=rows,
        rollout=flow,
        class_maps={labels[number]: each for number, each in zip(chosen, maps, strict=True)},
        layers=kept,
        prefix=_prefix_names(model.core.config),
        asked=question.asked(output),
    )


def check(predictor: Predictor, classes: Sequence[str] | int, pixel: Pixel | None = None) -> None:
    """Whether this can be explained at all, before any work is done."""
    if not has_attention(predictor.model):
        raise no_attention(predictor.model)
    if pixel is not None:
        _check_pixel(predictor, pixel)
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


def _check_pixel(predictor: Predictor, pixel: Any) -> None:
    if predictor.task.name == "classify":
        raise ConfigError(
            f"pixel = {pixel}: this model says one thing of a whole image: leave the pixel out"
        )
    listed = isinstance(pixel, Sequence) and not isinstance(pixel, str) and len(pixel) == 2
    if not listed or not all(isinstance(n, int) and not isinstance(n, bool) for n in pixel):
        raise ConfigError(f"pixel = {pixel!r}: expected two whole numbers, y and x")


def _prefix_names(config: Any) -> tuple[str, ...]:
    names = [] if getattr(config, "tokens", "none") == "none" else config.tokens.split("+")
    registers = range(1, getattr(config, "registers", 0) + 1)
    return (*(f"the {name} token" for name in names), *(f"register {i}" for i in registers))
