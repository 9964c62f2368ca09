"""Figures of images and what lies over them: attention, class maps, boxes; filters, positions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from vitreous.pages.colours import Colour, as_hex, ink_on
from vitreous.pages.figure import new_figure, styled
from vitreous.pages.pictures import as_picture, short, stretched

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage
    from PIL.Image import Image

Corners = tuple[float, float, float, float]
"""left, top, right, bottom; right and bottom are just outside"""
ENTRIES = 12
"""Of a legend at most; they stand in two columns."""
LIGHTER = 0.25
"""What becomes of black under a map."""
DOT = 16
"""Area of the largest dot, in square points."""
FAINTEST, STRONGEST = 0.25, 0.85
"""How much of a pixel is the map's colour where its value is least, and where it is largest."""


class BoxMark(NamedTuple):
    """One box to draw."""

    box: Corners
    """In pixels of the image."""
    words: str
    colour: Colour
    dashed: bool = False


class Panel(NamedTuple):
    """One picture of a figure: an image and what lies over it, or a map alone."""

    image: Tensor | None = None
    """(c, h, w) in 0..1"""
    title: str = ""
    values: Tensor | None = None
    """(gh, gw), a map: bright is much, dark is little. An image below it is shown in gray, so that
    all colour is the map's."""
    scale: str = ""
    """Words below a bar of the map's colours, at whose ends its values stand in percent."""
    patch: tuple[int, int] = (1, 1)
    """Height and width of a patch of the map; the last ones may reach over the image's edge."""
    marks: Sequence[BoxMark] = ()
    ring: tuple[int, int] | None = None
    """A pixel that is marked, y and x."""
    dots: Tensor | None = None
    """(n, 3): x, y and how much each counts, which is its area."""
    legend: Mapping[str, Colour] | None = None
    beside: str = ""
    """What stands on the left, at the beginning of a row."""


def wrapped(panels: Sequence[Panel], columns: int | None = None) -> list[Sequence[Panel]]:
    """In rows of so many, or else of two or three: they are read on a phone, too."""
    step = columns or (len(panels) if len(panels) < 4 else min(math.isqrt(len(panels) - 1) + 1, 3))
    return [panels[first : first + step] for first in range(0, len(panels), step)]


@styled
def grid(rows: Sequence[Sequence[Panel]], wide: float = 1.8) -> Figure:
    """Rows of panels that are so many inches wide."""
    columns = max(map(len, rows))
    panels = [panel for row in rows for panel in row]
    shapes = [panel.image.shape[1:] for panel in panels if panel.image is not None]
    tall = max(min(wide * max((h / w for h, w in shapes), default=1), 1.5 * wide), 0.3)
    titles = 0.25 * sum(any(panel.title for panel in row) for row in rows)
    legend = 0.1 + 0.085 * max(min(len(panel.legend or ()), ENTRIES) for panel in panels)
    scales = 0.35 * sum(any(panel.scale for panel in row) for row in rows)
    high = tall * len(rows) + titles + legend + scales
    figure = new_figure(min(wide * columns + 0.2, 24), min(high, 24))
    for line, row in zip(figure.subplots(len(rows), columns, squeeze=False), rows, strict=True):
        for axes, panel in zip_longest(line, row):
            if panel is None:
                axes.axis("off")
            else:
                _show(axes, panel)
    return figure


def _show(axes: Axes, panel: Panel) -> None:
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    if panel.title:
        axes.set_title(short(panel.title, 28), fontsize=8, fontweight="normal", loc="center")
    axes.set_ylabel(short(panel.beside), fontsize=8)
    over: dict[str, Any] = {}
    if panel.image is not None:
        picture = as_picture(panel.image).convert("RGB")
        shown = picture if panel.values is None else _faded(picture)
        axes.imshow(shown, interpolation="nearest")
    if panel.image is not None and panel.values is not None:
        height, width = (n * p for n, p in zip(panel.values.shape, panel.patch, strict=True))
        alpha = FAINTEST + (STRONGEST - FAINTEST) * stretched(panel.values).numpy()
        over = {"alpha": alpha, "extent": (-0.5, width - 0.5, height - 0.5, -0.5)}
    if panel.values is not None:
        drawn = axes.imshow(panel.values.numpy(), cmap="viridis", **over)
        if panel.scale:
            _show_scale(axes, drawn, panel)
    if panel.image is not None:  # nothing is shown beyond its edge
        _, height, width = panel.image.shape
        axes.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5))
    for mark in panel.marks:
        _show_box(axes, mark)
    if panel.ring is not None:  # seen on dark and on light
        y, x = panel.ring
        for ink, line in (("black", 3.5), ("white", 1.5)):
            axes.plot(x, y, "o", markersize=9, fillstyle="none", color=ink, mew=line)
    if panel.dots is not None:
        x, y, much = panel.dots.numpy().T
        sizes = DOT * much / max(much.max(), 1e-12)
        axes.scatter(x, y, sizes, color="#ffd000", edgecolors="#101010", linewidths=0.4, alpha=0.9)
    if panel.legend:
        _show_legend(axes, panel.legend)


def _faded(picture: Image) -> NDArray[np.uint8]:
    """In gray and lighter: what a map does not colour is still seen."""
    gray = np.asarray(picture.convert("L").convert("RGB")) / 255
    return (255 * (LIGHTER + (1 - LIGHTER) * gray)).round().astype(np.uint8)


def _show_scale(axes: Axes, drawn: AxesImage, panel: Panel) -> None:
    """Below the panel, from its least to its largest value."""
    assert panel.values is not None
    below = axes.inset_axes((0.0, -0.09, 1.0, 0.05))
    bar = axes.figure.colorbar(drawn, cax=below, orientation="horizontal")
    ends = panel.values.unique()[[0, -1]].unique().tolist()
    bar.set_ticks(ends, labels=[_percent(end) for end in ends])
    bar.set_label(panel.scale, fontsize=7, labelpad=-6)
    bar.outline.set_visible(False)
    for label, side in zip(below.get_xticklabels(), ("left", "right"), strict=False):
        label.set(ha=side, fontsize=7)


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.0f} %"


def _show_box(axes: Axes, mark: BoxMark) -> None:
    """In its colour on white, which is seen on dark and on light; the words on its colour."""
    from matplotlib.patches import Rectangle

    left, top, right, bottom = mark.box
    corner = (left - 0.5, top - 0.5)  # the centre of a pixel is its number
    colour = as_hex(mark.colour)
    for ink, width in (("white", 2.6), (colour, 1.8)):
        axes.add_patch(Rectangle(corner, right - left, bottom - top, fill=False, ec=ink, lw=width))
    if mark.words:
        ground = {"facecolor": colour, "edgecolor": "none", "pad": 1}
        ink = ink_on(mark.colour)
        axes.text(*corner, mark.words, fontsize=7, color=ink, bbox=ground, clip_on=True)


def _show_legend(axes: Axes, colours: Mapping[str, Colour]) -> None:
    """Below, as far as there is room."""
    from matplotlib.patches import Patch

    names = list(colours) if len(colours) <= ENTRIES else list(colours)[: ENTRIES - 1]
    patches = [Patch(color=as_hex(colours[name]), label=short(name)) for name in names]
    if len(names) < len(colours):
        patches.append(Patch(color="none", label=f"and {len(colours) - len(names)} more"))
    below: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0)}
    axes.legend(handles=patches, ncols=2, fontsize=7, handlelength=1.2, **below)


def head_attention(
    image: Tensor, attention: Sequence[Tensor], ring: tuple[int, int] | None = None
) -> Figure:
    """For each layer (heads, gh, gw): a row for each layer, a column for each head.

    Each map has its own scale: bright is where this head looks most. `ring`: the pixel of the image
    whose attention it is.
    """
    rows = [
        [
            Panel(image, ring=ring, beside=f"layer {line}"),
            *(
                Panel(title=f"head {head}" if line == 1 else "", values=values)
                for head, values in enumerate(layer, 1)
            ),
        ]
        for line, layer in enumerate(attention, 1)
    ]
    return grid(rows, 1.1)


@styled
def position_grid(similar: Tensor, most: int = 14) -> Figure:
    """(gh, gw, gh, gw): the grid of grids of ViT's figure 7; bright is alike."""
    rows, columns = (range(0, count, -(-count // most)) for count in similar.shape[:2])
    figure = new_figure(0.5 * len(columns) + 0.6, 0.5 * len(rows) + 0.6)
    axes = figure.add_subplot()
    step_y, step_x = similar.shape[2] + 1, similar.shape[3] + 1  # a gap between them
    tiled = np.full((len(rows) * step_y, len(columns) * step_x), np.nan)
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            y, x = i * step_y, j * step_x
            tiled[y : y + step_y - 1, x : x + step_x - 1] = stretched(similar[row, column])
    axes.imshow(tiled[:-1, :-1], cmap="viridis", interpolation="none")
    axes.set_axis_off()
    figure.supxlabel("column of the patch", fontsize=8)
    figure.supylabel("row of the patch", fontsize=8)
    return figure


def filter_grid(components: Tensor) -> Figure:
    """(count, c, h, w): principal components of the first filters, the strongest first."""
    return grid(wrapped([Panel(stretched(each)) for each in components], 7), 0.8)
