"""The inside of a trained model: what it looks at, and what it has learned, as figures."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from itertools import groupby, islice

import numpy as np
import torch
from torch import Tensor

from vitreous.data.source import Sample, Source
from vitreous.explain.attention import has_attention, has_distances
from vitreous.explain.distances import mean_distances
from vitreous.explain.explanation import Explanation, explain
from vitreous.explain.parameters import filters, position_similarity
from vitreous.pages import figures
from vitreous.pages.draw import Entry, blended, coloured, colours_of
from vitreous.pages.pictures import as_picture
from vitreous.predict import Predictor
from vitreous.results import Classification, Segmentation
from vitreous.tasks.detect.explanation import DetectionExplanation

SHOWN = 4
"""Images whose maps are shown."""
MEASURED = 64
"""Images over which attention distances are averaged."""
WORDS = {
    "distances": "how far each head looks",
    "filters": "its first filters",
    "positions": "which places it holds to be alike",
}


def model_figures(predictor: Predictor, values: Sequence[Tensor]) -> dict[str, figures.Figure]:
    """What belongs to the model, by name; distances over images as the model takes them."""
    found = {}
    if has_distances(predictor.model):
        batches = (batch.to(predictor.device) for batch in _batches(values))
        distances = mean_distances(predictor.model, batches)
        found["distances"] = figures.distance_chart(distances.result(), distances.widest)
    found["filters"] = figures.filter_grid(filters(predictor.model))
    similar = position_similarity(predictor.model)
    if similar is not None:
        found["positions"] = figures.position_grid(similar)
    return found


def _batches(values: Sequence[Tensor], most: int = 8) -> Iterator[Tensor]:
    """Neighbours of the same size together."""
    for _, alike in groupby(values, lambda image: image.shape):
        while together := list(islice(alike, most)):
            yield torch.stack(together)


def map_figure(found: Explanation | DetectionExplanation) -> figures.Figure:
    """Rollout and class maps beside the image, and what is said of its pixels, if they are asked
    about: then rollout goes back from the marked one. Or where the queries of objects look."""
    if isinstance(found, DetectionExplanation):
        looks = [look.map for look in found.looks]
        title = f"all less sure than {found.result.threshold:g}" if found.below else "what it finds"
        return figures.object_maps(found.image, found.marks(), looks, found.pixels, title)
    asked = found.asked
    maps = {"rollout" if asked is None else "rollout, from the marked pixel": found.rollout}
    maps |= {f"for {name}": values for name, values in found.class_maps.items()}
    if asked is None:
        return figures.overlays(found.image, maps, found.pixels)
    said = drawn_over(found.image, asked.said, found.result)
    marked = len(maps) if asked.chosen else 1  # the others are for all pixels of their class
    return figures.overlays(found.image, maps, found.pixels, said, asked.at, marked)


def drawn_over(image: Tensor, said: Tensor, result: Classification | Segmentation) -> figures.Said:
    """The classes (h, w) that are said, over the part of the image that has them, and a legend."""
    assert isinstance(result, Segmentation)
    colours = colours_of(result.ids)
    height, width = said.shape
    pixels = np.asarray(as_picture(image[:, :height, :width]).convert("RGB"))
    entries = [Entry(result.names[i], colours[i]) for i in said.unique().tolist()]
    return figures.Said(blended(pixels, coloured(said.numpy(), colours)), entries)


def inside_views(predictor: Predictor, source: Source, samples: Sequence[Sample]) -> str:
    """A section of the report; nothing for a model without attention."""
    if not has_attention(predictor.model):
        return ""
    words = "where it looks" if predictor.task.name == "detect" else "what decides"
    shown = samples[:: max(len(samples) // SHOWN, 1)][:SHOWN]
    parts = [
        _figure(map_figure(explain(predictor, source.image(sample), 2)), f"{words}: {sample.id}")
        for sample in shown
    ]
    measured = samples[:: max(len(samples) // MEASURED, 1)][:MEASURED]
    views = [predictor.view(source.image(s), source.where(s)).values for s in measured]
    drawn = model_figures(predictor, views)
    parts += [_figure(figure, WORDS[name]) for name, figure in drawn.items()]
    return (
        "<h2>Inside</h2><p class=soft>More, and for your own images: "
        f"<code>vitreous explain RUN IMAGES</code>.</p>{''.join(parts)}"
    )


def _figure(figure: figures.Figure, words: str) -> str:
    words = html.escape(words)
    return (
        f'<figure class="inside"><img src="{figures.as_url(figure)}" alt="{words}">'
        f"<figcaption>{words}</figcaption></figure>"
    )
