"""The inside of a trained model, for its report: what it looks at, and what it has learned."""

from __future__ import annotations

import html
from collections.abc import Sequence

import torch

from vitreous.data.source import Sample, Source
from vitreous.explain import figures
from vitreous.explain.attention import has_attention, mean_distances
from vitreous.explain.explanation import explain
from vitreous.explain.parameters import filters, position_similarity
from vitreous.predict import Predictor

SHOWN = 4
"""Images whose maps are shown."""
MEASURED = 64
"""Images over which attention distances are averaged."""


def inside_views(predictor: Predictor, source: Source, samples: Sequence[Sample]) -> str:
    """A section of the report; nothing for a model without attention."""
    if not has_attention(predictor.model):
        return ""
    shown = samples[:: max(len(samples) // SHOWN, 1)][:SHOWN]
    parts = []
    for sample in shown:
        found = explain(predictor, source.image(sample), 2)
        maps = {"rollout": found.rollout}
        maps |= {f"for {name}": values for name, values in found.class_maps.items()}
        parts.append(
            _figure(figures.overlays(found.image, maps, found.pixels), f"what decides: {sample.id}")
        )
    measured = samples[:: max(len(samples) // MEASURED, 1)][:MEASURED]
    images = [predictor.preprocess(source.image(sample)) for sample in measured]
    batches = [
        torch.stack(images[i : i + 8]).to(predictor.device) for i in range(0, len(images), 8)
    ]
    distances = mean_distances(predictor.model, batches)
    parts.append(
        _figure(
            figures.distance_chart(distances.result(), distances.widest), "how far each head looks"
        )
    )
    parts.append(_figure(figures.filter_grid(filters(predictor.model)), "its first filters"))
    similar = position_similarity(predictor.model)
    if similar is not None:
        parts.append(_figure(figures.position_grid(similar), "which places it holds to be alike"))
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
