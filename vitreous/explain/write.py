"""What `vitreous explain` leaves behind: figures and pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitreous.explain import figures, viewer
from vitreous.explain.attention import mean_distances
from vitreous.explain.explanation import explain
from vitreous.explain.parameters import filters, position_similarity
from vitreous.explain.walk import walk_page
from vitreous.predict import Predictor

DISTANCE_IMAGES = 128
"""ViT's appendix D.7 averages over as many."""


def write_model(predictor: Predictor, images: Sequence[Any], out: Path) -> list[Path]:
    """What belongs to the model: positions, filters, and attention distances over the images."""
    written = []
    similar = position_similarity(predictor.model)
    if similar is not None:
        written.append(figures.save(figures.position_grid(similar), out / "positions.png"))
    parts = filters(predictor.model)
    written.append(figures.save(figures.filter_grid(parts), out / "filters.png"))
    batches = list(_batches(predictor, images[:DISTANCE_IMAGES]))
    distances = mean_distances(predictor.model, batches)
    chart = figures.distance_chart(distances.result(), distances.widest)
    written.append(figures.save(chart, out / "distances.png"))
    return written


def write_image(
    predictor: Predictor, image: Any, folder: Path, classes: Sequence[str] | int = 3
) -> list[Path]:
    """What belongs to an image: attention per head, maps, the interactive page and the walk."""
    found = explain(predictor, image, classes, layers=True)
    named = {"rollout": found.rollout}
    named |= {f"for {name}": values for name, values in found.class_maps.items()}
    written = [
        figures.save(figures.overlays(found.image, named, found.pixels), folder / "maps.png"),
        figures.save(figures.head_attention(found.image, found.attention), folder / "heads.png"),
    ]
    title = f"{Path(found.result.image).name}: what {predictor.model.name} looks at"
    page = viewer.page(found, position_similarity(predictor.model), title)
    values = predictor.prepare(*predictor.read(image))
    pages = {"look.html": page, "walk.html": walk_page(predictor, values, title)}
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")
        written.append(folder / name)
    return written


def _batches(predictor: Predictor, images: Sequence[Any], size: int = 8) -> Iterator[Tensor]:
    for start in range(0, len(images), size):
        values = [predictor.prepare(*predictor.read(i)) for i in images[start : start + size]]
        yield torch.stack(values).to(predictor.device)
