"""What `vitreous explain` writes: figures and pages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vitreous.deploy.web_runtime import NoRuntimeError
from vitreous.errors import ConfigError
from vitreous.explain.explanation import Pixel
from vitreous.explain.parameters import position_similarity
from vitreous.pages import viewer, walk
from vitreous.pages.figure import save
from vitreous.pages.inside import model_figures
from vitreous.pages.living import living_page, stored_page
from vitreous.pages.page_file import write_page
from vitreous.predict import Predictor
from vitreous.progress import Log, silent
from vitreous.tasks import show_of

DISTANCE_IMAGES = 128
"""ViT's appendix D.7 averages over as many."""


def write_model(predictor: Predictor, images: Sequence[Any], out: Path) -> list[Path]:
    """What belongs to the model: positions, filters, and attention distances over the images."""
    predictor = show_of(predictor.task.name).subject(predictor)
    values = [predictor.view(*predictor.read(image)).values for image in images[:DISTANCE_IMAGES]]
    drawn = model_figures(predictor, values)
    return [save(figure, out / f"{name}.png") for name, figure in drawn.items()]


PAGE_IMAGES = 10
"""Images in the living page."""


def write_living(
    predictor: Predictor, images: Sequence[Any], out: Path, log: Log = silent
) -> list[Path]:
    """page.html, in which the model runs on these images and on others; where it cannot be made,
    the log says why."""
    path = out / "page.html"
    try:
        shown = [predictor.read(image)[0] for image in images[:PAGE_IMAGES]]
        try:
            return [living_page(predictor, path, shown, browser=False).path]
        except NoRuntimeError as error:
            log(f"{path.name} shows stored numbers: {error}")
            return [stored_page(predictor, path, shown[0])]
    except ConfigError as error:
        log(f"without {path.name}: {error}")
        return []


def write_image(
    predictor: Predictor,
    image: Any,
    folder: Path,
    classes: Sequence[str] | int = 3,
    pixel: Pixel | None = None,
) -> list[Path]:
    """What belongs to an image: attention per head, maps, the interactive page and the walk."""
    predictor = show_of(predictor.task.name).subject(predictor)
    show = show_of(predictor.task.name)
    found = show.explain(predictor, image, classes, pixel=pixel, layers=True)
    drawn = show.explanation_figures(found)
    written = [save(figure, folder / f"{name}.png") for name, figure in drawn.items()]
    name = Path(found.result.image).name
    data = show.viewer_data(found, position_similarity(predictor.model))
    stops, table = show.walk(predictor, predictor.view(*predictor.read(image), pixel))
    pages = {
        "look.html": viewer.page(data, name, predictor.model.name),
        "walk.html": walk.page(stops, table, f"{name}: the walk through {predictor.model.name}"),
    }
    for file, text in pages.items():
        written.append(write_page(folder / file, text))
    return written
