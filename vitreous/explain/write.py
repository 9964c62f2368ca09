"""What `vitreous explain` leaves behind: figures and pages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vitreous.explain import figures, viewer
from vitreous.explain.asking import Pixel
from vitreous.explain.explanation import explain
from vitreous.explain.inside import map_figure, model_figures
from vitreous.explain.parameters import position_similarity
from vitreous.explain.walk import walk_page
from vitreous.predict import Predictor

DISTANCE_IMAGES = 128
"""ViT's appendix D.7 averages over as many."""


def write_model(predictor: Predictor, images: Sequence[Any], out: Path) -> list[Path]:
    """What belongs to the model: positions, filters, and attention distances over the images."""
    values = [predictor.view(*predictor.read(image)).values for image in images[:DISTANCE_IMAGES]]
    drawn = model_figures(predictor, values)
    return [figures.save(figure, out / f"{name}.png") for name, figure in drawn.items()]


def write_image(
    predictor: Predictor,
    image: Any,
    folder: Path,
    classes: Sequence[str] | int = 3,
    pixel: Pixel | None = None,
) -> list[Path]:
    """What belongs to an image: attention per head, maps, the interactive page and the walk."""
    found = explain(predictor, image, classes, pixel=pixel, layers=True)
    mark = None if found.asked is None else found.asked.at
    heads = figures.head_attention(found.image, found.attention, mark)
    written = [
        figures.save(map_figure(found), folder / "maps.png"),
        figures.save(heads, folder / "heads.png"),
    ]
    title = f"{Path(found.result.image).name}: what {predictor.model.name} looks at"
    page = viewer.page(found, position_similarity(predictor.model), title)
    view = predictor.view(*predictor.read(image), pixel)
    pages = {"look.html": page, "walk.html": walk_page(predictor, view, title)}
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")
        written.append(folder / name)
    return written
