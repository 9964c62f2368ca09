"""What `vitreous explain` leaves behind: figures and pages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.explain.explanation import Explanation, explain
from vitreous.explain.parameters import position_similarity
from vitreous.explain.query import Pixel
from vitreous.pages import figures, viewer, walk
from vitreous.pages.inside import map_figure, model_figures
from vitreous.predict import Predictor
from vitreous.tasks.detect import walk as walk_detect
from vitreous.tasks.detect.explanation import DetectionExplanation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    drawn = _of_objects(found) if isinstance(found, DetectionExplanation) else _of_classes(found)
    written = [figures.save(figure, folder / f"{name}.png") for name, figure in drawn.items()]
    title = f"{Path(found.result.image).name}: what {predictor.model.name} looks at"
    page = viewer.page(found, position_similarity(predictor.model), title)
    view = predictor.view(*predictor.read(image), pixel)
    walk_page = walk_detect.walk_page if predictor.task.name == "detect" else walk.walk_page
    pages = {"look.html": page, "walk.html": walk_page(predictor, view, title)}
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")
        written.append(folder / name)
    return written


def _of_classes(found: Explanation) -> dict[str, Figure]:
    mark = None if found.asked is None else found.asked.at
    heads = figures.head_attention(found.image, found.attention, mark)
    return {"maps": map_figure(found), "heads": heads}


def _of_objects(found: DetectionExplanation) -> dict[str, Figure]:
    """Where queries look, behind the last layer, by layer and by head; and what the places of the
    encoder do, seen from one pixel."""
    image, marks, pixels = found.image, found.marks(), found.pixels
    layers, heads = [look.layers for look in found.looks], [look.heads[-1] for look in found.looks]
    drawn = {
        "objects": map_figure(found),
        "layers": figures.object_rows(image, marks, layers, pixels, "layer"),
        "heads": figures.object_rows(image, marks, heads, pixels, "head"),
    }
    if found.attention:
        means = {f"layer {i + 1}": each.mean(dim=0) for i, each in enumerate(found.attention)}
        drawn["pixel"] = figures.overlays(image, means, pixels, mark=found.at, marked=len(means))
    return drawn
