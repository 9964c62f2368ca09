"""Inside a trained model: what it looks at, and what it has learned, as figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from vitreous.data.source import Sample, Source
from vitreous.explain.attention import has_attention, has_distances
from vitreous.explain.distances import mean_distances
from vitreous.explain.parameters import filters, position_similarity
from vitreous.pages import charts, maps
from vitreous.pages.content import Section
from vitreous.predict import Predictor
from vitreous.tasks import show_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = 4
"""Images whose maps are shown."""
MEASURED = 64
"""Images over which attention distances are averaged."""
BRIGHT = "Bright: much. Dark: little. For your own images: vitreous explain RUN IMAGES."
CAPTIONS = {
    "distances": "Mean attention distance: how far each head looks (ViT, figure 7)",
    "filters": "Principal components of the first filters",
    "positions": "Similarity of position embeddings: a map for each patch",
}


def model_figures(predictor: Predictor, values: Sequence[Tensor]) -> dict[str, Figure]:
    """What belongs to the model, by name; distances over images as the model takes them."""
    found = {}
    if has_distances(predictor.model):
        batches = (batch.to(predictor.device) for batch in _batches(values))
        distances = mean_distances(predictor.model, batches)
        found["distances"] = charts.attention_distances(distances.result(), distances.widest)
    found["filters"] = maps.filter_grid(filters(predictor.model))
    similar = position_similarity(predictor.model)
    if similar is not None:
        found["positions"] = maps.position_grid(similar)
    return found


def _batches(values: Sequence[Tensor], most: int = 8) -> Iterator[Tensor]:
    """Neighbours of the same size together."""
    for _, alike in groupby(values, lambda image: image.shape):
        while together := list(islice(alike, most)):
            yield torch.stack(together)


def inside_sections(
    predictor: Predictor, source: Source, samples: Sequence[Sample]
) -> list[Section]:
    """Parts of the report; none for a model without attention."""
    predictor = show_of(predictor.task.name).subject(predictor)
    if not has_attention(predictor.model):
        return []
    show = show_of(predictor.task.name)
    shown = samples[:: max(len(samples) // SHOWN, 1)][:SHOWN]
    looked = [
        (show.map_figure(show.explain(predictor, source.image(sample), 2)), sample.id)
        for sample in shown
    ]
    least = max(4 * figure.get_figwidth() for figure, _ in looked)  # rem: nearly their own size
    measured = samples[:: max(len(samples) // MEASURED, 1)][:MEASURED]
    views = [predictor.view(source.image(s), source.where(s)).values for s in measured]
    learned = [(figure, CAPTIONS[name]) for name, figure in model_figures(predictor, views).items()]
    return [
        Section(f"Inside: {show.question}", BRIGHT, figures=looked, least=least),
        Section("Inside: what the model has learned", figures=learned),
    ]
