"""Everything that explains one answer, as named tensors: what `predictor.explain(image)` gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from vitreous.errors import ConfigError, did_you_mean
from vitreous.explain.attention import Layer, Layout, Rollout, class_maps, layout_of, look, reading
from vitreous.predict import Predictor
from vitreous.results import Classification


@dataclass(frozen=True)
class Explanation:
    """One image and what the model did with it. Maps are (gh, gw), a number for each patch."""

    result: Classification
    image: Tensor
    """(c, h, w) in 0..1, as the model sees it."""
    layout: Layout
    region: tuple[float, float, float, float]
    """top, left, height and width of what the model sees, in pixels of the image as given."""
    attention: Tensor
    """(layers, heads, gh, gw): what the tokens that the head reads attend to."""
    rollout: Tensor
    """(gh, gw), attention rollout over all layers; sums to one."""
    class_maps: dict[str, Tensor] = field(default_factory=dict)
    """By class name (gh, gw), what speaks for the class; sums to one."""
    matrices: Tensor | None = None
    """(layers, heads, tokens, tokens), all attention, where it was asked for."""

    def box(self, row: int, column: int) -> tuple[float, float, float, float]:
        """top, left, bottom, right of a patch, in pixels of the image as given."""
        top, left, height, width = self.region
        gh, gw = self.layout.grid
        tall = height * self.layout.image_size[0] / self.image.shape[1] / gh
        wide = width * self.layout.image_size[1] / self.image.shape[2] / gw
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
            "grid": list(self.layout.grid),
            "cell": list(self.layout.cell),
            "prefix": self.layout.prefix,
            "region": list(self.region),
            "attention": self.attention.tolist(),
            "rollout": self.rollout.tolist(),
            "class_maps": {name: values.tolist() for name, values in self.class_maps.items()},
        }


def explain(
    predictor: Predictor, image: Any, classes: Sequence[str] | int = 3, *, matrices: bool = False
) -> Explanation:
    """Why the model says what it says about an image (a path, an array, a PIL image, a tensor).

    `classes` are names, or how many of the likeliest, to make maps for. `matrices` keeps all
    attention of all layers, which for long sequences is much.
    """
    model, device = predictor.model, predictor.device
    pixels, name = predictor.read(image)
    values = predictor.prepare(pixels, name)
    batch = values[None].to(device)
    layout = layout_of(model, batch)
    rollout, rows, kept = Rollout(), [], []
    read = reading(model, layout).to(device)

    def see(layer: Layer) -> None:
        rollout.see(layer)
        rows.append(layout.on_grid(read @ layer.weights[0]).cpu())  # (heads, gh, gw)
        if matrices:
            kept.append(layer.weights[0].cpu())

    with torch.no_grad():
        logits = look(model, batch, see)
    assert rollout.matrix is not None
    flow = layout.on_grid(read @ rollout.matrix[0]).cpu()
    result = predictor.task.decode(logits.cpu(), [name])[0]
    chosen = _chosen(predictor.labels, classes, result)
    numbers = [predictor.labels.index(label) for label in chosen]
    maps = class_maps(model, batch, numbers).cpu().unbind() if chosen else ()
    return Explanation(
        result=result,
        image=predictor.preprocess.restore(values),
        layout=layout,
        region=predictor.preprocess.region(pixels.shape[1], pixels.shape[2]),
        attention=torch.stack(rows),
        rollout=flow / flow.sum().clamp(min=1e-12),
        class_maps=dict(zip(chosen, maps, strict=True)),
        matrices=torch.stack(kept) if matrices else None,
    )


def _chosen(labels: Sequence[str], asked: Sequence[str] | int, result: Classification) -> list[str]:
    if isinstance(asked, int):
        return [name for name, _ in result.top(min(asked, len(labels)))]
    for name in asked:
        if name not in labels:
            hint = did_you_mean(name, labels) or f": it knows {', '.join(labels[:20])}"
            raise ConfigError(f"the model has no class {name!r}{hint}")
    return list(asked)
