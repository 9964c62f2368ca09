"""What is asked about an image: whose attention is shown, and which scores class maps are for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from vitreous.errors import ConfigError, did_you_mean
from vitreous.explain.attention import Layer, Reader, has_attention, head_reader, look, no_attention
from vitreous.explain.class_maps import ExplainedScore, class_maps
from vitreous.explain.explanation import MapExplanation, Pixel
from vitreous.explain.rollout import Rollout
from vitreous.measure import check_finite
from vitreous.models.model import Places
from vitreous.predict import Predictor, View


class _Looked:
    """In place of an engine: the model has been asked already."""

    def __init__(self, output: Tensor) -> None:
        self.output = output

    def __call__(self, images: Tensor) -> Tensor:
        return self.output


class Query:
    """Why is this image of this class? About the tokens that the head reads."""

    kind: type[MapExplanation] = MapExplanation
    read: Reader
    """The tokens whose attention is shown and followed back."""
    own = True
    """Whether the rollout counts what those tokens kept of themselves."""
    view: View

    def __init__(self, predictor: Predictor, image: Tensor, name: str) -> None:
        """image (c, h, w), as `Predictor.read` gives it."""
        self.predictor, self.image, self.name = predictor, image, name
        self.view = predictor.view(image, name)
        self.read = head_reader(predictor.model, self.view.values[None].to(predictor.device))

    def most_likely(self, output: Tensor, count: int) -> list[int]:
        """At most so many classes to make maps for; output: the model's, of one image."""
        return output[0].argsort(descending=True, stable=True)[:count].tolist()

    def wanted(self, output: Tensor, number: int) -> ExplainedScore:
        """The score that the map of a class is made for."""
        return ExplainedScore(lambda logits: logits[0, number], self.read)

    def result(self, output: Tensor) -> Any:
        """The task's result for the whole image, from what the model has given for it."""
        task, size = self.predictor.task, (self.image.shape[1], self.image.shape[2])
        looked: Any = _Looked(output)
        found = task.infer(looked, self.view.values[None], [size])
        return task.decode(found, [self.name])[0]

    def fields(self, output: Tensor) -> dict[str, Any]:
        """What else this kind of explanation has."""
        return {}


def explain(query: Query, classes: Sequence[str] | int, *, layers: bool) -> MapExplanation:
    """Attention, rollout and class maps; `layers` keeps all attention, which for long sequences is
    much."""
    predictor, view = query.predictor, query.view
    model, names = predictor.model, _outputs(predictor)
    batch = view.values[None].to(predictor.device)
    rollout, rows, kept = Rollout(), [], []
    first: list[Places] = []

    def see(layer: Layer) -> None:
        rollout.see(layer)
        rows.append(attended(layer, query.read))
        first[:] = first or [layer.places]
        if layers:
            kept.append(replace(layer, weights=layer.weights.cpu()))

    with torch.no_grad():
        output = look(model, batch, see)
        check_finite(output, [query.name])
        flow = rollout.map(query.read, own=query.own)[0].cpu()
    if isinstance(classes, int):
        numbers = query.most_likely(output, classes)
    else:
        numbers = [names.index(name) for name in classes]
    wanted = [query.wanted(output, number) for number in numbers]
    maps = class_maps(model, batch, wanted).cpu() if wanted else torch.zeros(0)
    check_finite(maps[None], [query.name])  # gradients may overflow where the output does not
    return query.kind(
        result=query.result(output),
        image=predictor.preprocess.restore(view.values),
        photo=query.image,
        grid=first[0].grid,
        pixels=first[0].pixels,
        region=view.region,
        attention=rows,
        rollout=flow,
        class_maps={names[number]: each for number, each in zip(numbers, maps, strict=True)},
        layers=kept,
        prefix=_prefix_names(model.core.config),
        **query.fields(output),
    )


def attended(layer: Layer, read: Reader) -> Tensor:
    """(heads, gh, gw): what the tokens that `read` gives attend to, on the CPU."""
    askers = read(layer)[None]
    rows = [layer.attended(head, askers)[0] for head in layer.weights.unbind(1)]
    return layer.on_grid(torch.stack(rows)).cpu()


def check(predictor: Predictor, classes: Sequence[str] | int) -> None:
    """Whether a model can be explained for these classes at all, before any work is done."""
    if not has_attention(predictor.model):
        raise no_attention(predictor.model)
    if isinstance(classes, int) and not isinstance(classes, bool) and classes >= 0:
        return
    listed = isinstance(classes, Sequence) and not isinstance(classes, str)
    if isinstance(classes, int) or not listed or not all(isinstance(c, str) for c in classes):
        raise ConfigError(
            f"classes = {classes!r}: expected a list of names, or how many of the most likely"
        )
    names = _outputs(predictor)
    for name in classes:
        if name not in names:
            hint = did_you_mean(name, names) or f": it knows {', '.join(names[:20])}"
            raise ConfigError(f"the model has no class {name!r}{hint}")


def _outputs(predictor: Predictor) -> tuple[str, ...]:
    """The names of what maps are made for: the classes, or what else the task learns."""
    return predictor.task.outputs(predictor.task.labels)


def check_pixel(pixel: Any) -> None:
    listed = isinstance(pixel, Sequence) and not isinstance(pixel, str) and len(pixel) == 2
    if not listed or not all(isinstance(n, int) and not isinstance(n, bool) for n in pixel):
        raise ConfigError(f"pixel = {pixel!r}: expected two whole numbers, y and x")


def mark_pixel(view: View, pixel: Pixel) -> tuple[Pixel, Tensor]:
    """Where a pixel of the image is in what the model sees, and (h, w) with a one there."""
    at = view.place(*pixel)
    marked = torch.zeros(view.values.shape[1:])
    marked[at] = 1
    return at, marked


def check_inside(pixel: Pixel, image: Tensor, name: str) -> None:
    height, width = image.shape[1:]
    if not (0 <= pixel[0] < height and 0 <= pixel[1] < width):
        raise ConfigError(
            f"pixel = {pixel}: {name} is {height}x{width} (height x width): y goes from 0 to "
            f"{height - 1}, x from 0 to {width - 1}"
        )


def _prefix_names(config: Any) -> tuple[str, ...]:
    names = [] if getattr(config, "tokens", "none") == "none" else config.tokens.split("+")
    registers = range(1, getattr(config, "registers", 0) + 1)
    return (*names, *(f"register {i}" for i in registers))
