"""Where a detector looks for what it finds (DETR, figures 3 and 6).

Each object is found by one query. Where that looks is its attention to the encoder's map, in each
layer of the decoder; and before that, in each layer of the encoder, the map's positions look at
each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from vitreous.explain.attention import Layer, map_places, pixel_reader, showing, showing_points
from vitreous.explain.explanation import Encode, Explanation, Pixel
from vitreous.explain.query import attended, check_inside, mark_pixel
from vitreous.predict import Predictor, Prepared
from vitreous.results import DetectedObject, Detection

MOST = 10
"""Objects of an image that are explained."""
NEXT_BEST = 3
"""Boxes that are explained where none is above the threshold."""
MANY = 1 << 25
"""Numbers of one layer above which only the mean of its heads is kept."""


@dataclass(frozen=True)
class Look:
    """Where the query of one object looks."""

    found: DetectedObject
    heads: Tensor
    """(layers, heads, gh, gw), for each layer of the decoder; each map sums to one, or to less
    where points of deformable attention lie beyond the map's edge."""
    points: Tensor | None = None
    """(layers, n, 3), of deformable attention: x and y of each point as fractions of the image,
    and how much it counts; all points of a layer count as many heads as there are."""

    @property
    def layers(self) -> Tensor:
        """(layers, gh, gw): the mean of the heads."""
        return self.heads.mean(dim=1)

    @property
    def map(self) -> Tensor:
        """(gh, gw), of the last layer, from which box and class are predicted."""
        return self.layers[-1]

    def to_dict(self, encode: Encode = Tensor.tolist) -> dict[str, Any]:
        points = {} if self.points is None else {"points": self.points.tolist()}
        return {
            **self.found.to_dict(),
            "query": self.found.query,
            "attention": encode(self.layers),
            **points,
        }


@dataclass(frozen=True, kw_only=True)
class DetectionExplanation(Explanation):
    """What a detector did with an image: for each object where its query looks, and for one pixel
    what its place in the encoder attends to."""

    result: Detection
    looks: list[Look]
    """Of the most confident objects."""
    below: bool
    """Whether no object is above the threshold: `looks` are then the best below it."""
    pixel: Pixel
    """In the image as given: the one in the request, else the centre of the most confident object,
    or of the image if there is none."""
    at: Pixel

    def to_dict(self, encode: Encode = Tensor.tolist) -> dict[str, Any]:
        return {
            **super().to_dict(encode),
            "threshold": self.result.threshold,
            "below_threshold": self.below,
            "looks": [look.to_dict(encode) for look in self.looks],
        }


def explain_objects(
    predictor: Predictor,
    image: Any,
    names: Sequence[str] | None = None,
    *,
    pixel: Pixel | None = None,
    layers: bool = False,
) -> DetectionExplanation:
    """Of objects of the classes `names`, or of any; `layers` keeps all attention of the encoder."""
    stored, name = predictor.read(image)
    if pixel is not None:
        check_inside(pixel, stored, name)
    view = predictor.view(stored, name)
    size = (stored.shape[1], stored.shape[2])
    (result,) = predictor.answer([Prepared(view.values, name, size)])
    found, below = chosen(result, names)
    whole = (0.0, 0.0, float(size[1]), float(size[0]))
    where = pixel or _centre(found[0].box if found else whole, size)
    at, marked = mark_pixel(view, where)
    read = pixel_reader(marked)
    rows: list[Tensor] = []
    kept: list[Layer] = []
    looks: list[Tensor] = []

    def see_encoder(layer: Layer) -> None:
        rows.append(attended(layer, read))
        if layers:
            weights = layer.weights
            weights = weights.mean(dim=1, keepdim=True) if weights.numel() > MANY else weights
            kept.append(replace(layer, weights=weights.cpu()))

    queries = [each.query for each in found]

    def see_decoder(layer: Layer) -> None:
        looks.append(layer.on_grid(layer.weights[0, :, queries]).cpu())

    points: list[Tensor] = []

    def see_points(places: Tensor, shares: Tensor) -> None:
        rows = torch.cat((places, shares[..., None]), dim=-1)[0, queries]
        points.append(rows.flatten(1, -2).cpu())  # (objects, points, 3)

    batch, model = view.values[None].to(predictor.device), predictor.model
    with (
        torch.no_grad(),
        showing(model, batch, see_encoder),
        showing(model, batch, see_decoder, "cross"),
        showing_points(model, see_points),
    ):
        model(batch)
    of_points = [None] * len(found) if not points else torch.stack(points, dim=1).unbind(0)
    of_queries = torch.stack(looks).permute(2, 0, 1, 3, 4)  # (objects, layers, heads, gh, gw)
    places = map_places(model, batch)
    return DetectionExplanation(
        result=result,
        image=predictor.preprocess.restore(view.values),
        grid=places.grid,
        pixels=places.pixels,
        region=view.region,
        looks=[Look(*each) for each in zip(found, of_queries, of_points, strict=True)],
        below=below,
        pixel=where,
        at=at,
        chosen=pixel is not None,
        attention=rows,
        layers=kept,
    )


def chosen(result: Detection, names: Sequence[str] | None) -> tuple[list[DetectedObject], bool]:
    """The objects to explain, the most confident first, and whether all are below the threshold.

    There are none if no query predicts one of the names.
    """
    found, others = (
        [each for each in rows if names is None or each.label in names]
        for rows in (result.objects, result.above(0.0).objects)
    )
    return (found[:MOST], False) if found else (others[:NEXT_BEST], True)


def _centre(box: tuple[float, float, float, float], size: tuple[int, int]) -> Pixel:
    """Of a box, or of the part of it that is in an image of this size."""
    height, width = size
    left, right = (min(max(edge, 0), width) for edge in (box[0], box[2]))
    top, bottom = (min(max(edge, 0), height) for edge in (box[1], box[3]))
    return min(int((top + bottom) / 2), height - 1), min(int((left + right) / 2), width - 1)
