"""What `vitreous explain` writes: figures and pages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vitreous.errors import ConfigError
from vitreous.explain.explanation import Pixel
from vitreous.explain.parameters import position_similarity
from vitreous.pages import viewer
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
    """page.html, in which the model runs on these images and on others; where it cannot, the page
    shows the numbers of the first one, and the log says why."""
    path = out / "page.html"
    predictor = show_of(predictor.task.name).subject(predictor)
    try:
        shown = [predictor.read(image)[0] for image in images[:PAGE_IMAGES]]
        try:
            return [living_page(predictor, path, shown, browser=False).path]
        except ConfigError as error:
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
    """What belongs to an image: attention per head, maps, and the interactive page."""
    predictor = show_of(predictor.task.name).subject(predictor)
    show = show_of(predictor.task.name)
    found = show.explain(predictor, image, classes, pixel=pixel, layers=True)
    drawn = show.explanation_figures(found)
    written = [save(figure, folder / f"{name}.png") for name, figure in drawn.items()]
    name = Path(found.result.image).name
    data = show.viewer_data(found, position_similarity(predictor.model))
    page = viewer.page(data, name, predictor.model.name)
    return [*written, write_page(folder / "look.html", page)]
