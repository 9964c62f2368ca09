"""The figure of the first batch: augmented images as the model sees them, with their targets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vitreous.data.loader import Batch
from vitreous.data.preprocess import Preprocess
from vitreous.labels import LabelMap
from vitreous.pages.maps import grid, wrapped
from vitreous.tasks import show_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def batch_figure(
    batch: Batch, task: str, labels: LabelMap, preprocess: Preprocess, count: int = 32
) -> Figure:
    """The first images of a batch, each with what the model is to learn from it."""
    show = show_of(task)
    panels = [
        show.target_panel(preprocess.restore(image), target, labels)
        for image, target in zip(
            show.images(batch)[:count], show.targets(batch)[:count], strict=True
        )
    ]
    return grid(wrapped(panels, show.batch_columns), 12.8 / show.batch_columns)
