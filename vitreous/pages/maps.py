"""Maps over images: attention, rollout, class maps, where queries look; filters and positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from torch import Tensor

from vitreous.pages.colours import Colour, as_hex
from vitreous.pages.figure import new_figure, styled
from vitreous.pages.pictures import Pixels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Corners = tuple[float, float, float, float]
"""left, top, right, bottom; right and bottom are just outside"""
SMALL: dict[str, Any] = {"fontsize": 8, "fontweight": "normal", "loc": "center"}


class Mark(NamedTuple):
    """One box to draw."""

    box: Corners
    """In pixels of the image."""
    words: str
    colour: Colour
    dashed: bool = False


class Overlay(NamedTuple):
    """A predicted mask, drawn over the image, and the colours of its classes by name."""

    picture: Pixels
    colours: Mapping[str, Colour]


def _tall(image: Tensor, wide: float, most: float) -> float:
    """Inches for an image (c, h, w) that is so many inches wide; some, however thin it is."""
    return max(min(wide * image.shape[1] / image.shape[2], most), 0.3)


@styled
def head_attention(
    image: Tensor, attention: Sequence[Tensor], mark: tuple[int, int] | None = None
) -> Figure:
    """For each layer (heads, gh, gw): a row for each layer, a column for each head.

    Each map has its own scale: bright is where this head looks most. `mark`: the pixel of the image
    whose attention it is.
    """
    heads = max(len(layer) for layer in attention)
    figure = new_figure(min(1.1 * heads + 1.2, 24), min(1.1 * len(attention) + 0.6, 24))
    axes = figure.subplots(len(attention), heads + 1, squeeze=False)
    for line, layer in enumerate(attention):
        _show_image(axes[line][0], image)
        _ring(axes[line][0], mark)
        axes[line][0].set_ylabel(f"layer {line + 1}", fontsize=8)
        for head in range(heads):
            if line == 0:
                axes[0][head + 1].set_title(f"head {head + 1}", **SMALL)
            if head < len(layer):
                _show_map(axes[line][head + 1], layer[head])
            else:
                axes[line][head + 1].axis("off")
    return figure


@styled
def overlays(
    image: Tensor,
    maps: Mapping[str, Tensor],
    pixels: tuple[int, int],
    prediction: Overlay | None = None,
    mark: tuple[int, int] | None = None,
    marked: int = 0,
) -> Figure:
    """The image, the predicted mask, and each map laid over it; bright is much, dark is nothing.

    `pixels` are the height and width of a patch: the last ones may reach over the edge. `mark` is a
    pixel that is marked in the image and in the first `marked` maps.
    """
    count = len(maps) + (1 if prediction is None else 2)
    tall = _tall(image, 2.6, 4.0)
    figure = new_figure(2.6 * count, tall + (0.3 if prediction is None else 0.7))
    first, *axes = figure.subplots(1, count, squeeze=False)[0]
    _show_image(first, image)
    _ring(first, mark)
    first.set_title("input", **SMALL)
    if prediction is not None:
        _show_prediction(axes.pop(0), prediction, image)
    for number, (place, (name, values)) in enumerate(zip(axes, maps.items(), strict=True)):
        _show_over(place, image, values, pixels)
        _ring(place, mark if number < marked else None)
        place.set_title(name, **SMALL)
    return figure


@styled
def object_maps(
    image: Tensor,
    marks: Sequence[Mark],
    maps: Sequence[Tensor],
    pixels: tuple[int, int],
    title: str = "detections",
) -> Figure:
    """The image with boxes, and for each where its query looks (DETR, figure 6); bright is much.

    Boxes are in pixels of the image, and `pixels` are the height and width of a patch.
    """
    columns = min(len(maps) + 1, 4)
    rows = -(-(len(maps) + 1) // columns)
    tall = _tall(image, 2.6, 4.0)
    figure = new_figure(2.6 * columns, (tall + 0.25) * rows + 0.1)
    first, *axes = figure.subplots(rows, columns, squeeze=False).ravel()
    _show_image(first, image)
    first.set_title(title if marks else "no detections", **SMALL)
    for mark in marks:
        _show_box(first, mark)
    for place in axes[len(maps) :]:
        place.axis("off")
    for place, mark, values in zip(axes, marks, maps, strict=False):
        _show_looking(place, image, mark, values, pixels)
        place.set_title(mark.words, **SMALL)
    return figure


@styled
def object_rows(
    image: Tensor,
    marks: Sequence[Mark],
    maps: Sequence[Tensor],
    pixels: tuple[int, int],
    column: str,
) -> Figure:
    """A row for each object, a column for each of its maps (count, gh, gw), which `column` calls
    them: layer, head."""
    count = max((len(each) for each in maps), default=0)
    tall = _tall(image, 1.4, 2.2)
    figure = new_figure(min(1.4 * (count + 1) + 0.5, 24), min(tall * max(len(maps), 1) + 0.5, 24))
    axes = figure.subplots(max(len(maps), 1), count + 1, squeeze=False)
    if not maps:
        _show_image(axes[0][0], image)
        axes[0][0].set_title("no detections", **SMALL)
    for line, (mark, of_object) in enumerate(zip(marks, maps, strict=True)):
        _show_image(axes[line][0], image)
        _show_box(axes[line][0], mark)
        axes[line][0].set_ylabel(mark.words, fontsize=8)
        for number, values in enumerate(of_object):
            _show_looking(axes[line][number + 1], image, mark, values, pixels)
            if line == 0:
                axes[0][number + 1].set_title(f"{column} {number + 1}", **SMALL)
    return figure


@styled
def position_grid(similar: Tensor, most: int = 14) -> Figure:
    """(gh, gw, gh, gw): the grid of grids of ViT's figure 7; bright is alike."""
    gh, gw = similar.shape[:2]
    rows, columns = _picked(gh, most), _picked(gw, most)
    figure = new_figure(0.5 * len(columns) + 0.6, 0.5 * len(rows) + 0.6)
    axes = figure.add_subplot()
    step_y, step_x = similar.shape[2] + 1, similar.shape[3] + 1  # a gap between them
    tiled = np.full((len(rows) * step_y, len(columns) * step_x), np.nan)
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            values = similar[row, column]
            shares = (values - values.min()) / (values.max() - values.min()).clamp(min=1e-12)
            tiled[i * step_y : (i + 1) * step_y - 1, j * step_x : (j + 1) * step_x - 1] = shares
    axes.imshow(tiled[:-1, :-1], cmap="viridis", interpolation="none")
    axes.set_axis_off()
    figure.supxlabel("column of the patch", fontsize=8)
    figure.supylabel("row of the patch", fontsize=8)
    return figure


@styled
def filter_grid(components: Tensor, columns: int = 7) -> Figure:
    """(count, c, h, w): principal components of the first filters, the strongest first."""
    rows = -(-len(components) // columns)
    figure = new_figure(0.8 * columns + 0.3, 0.8 * rows + 0.3)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for place in axes:
        place.axis("off")
    for place, component in zip(axes, components, strict=False):
        low, high = component.min(), component.max()
        _show_image(place, (component - low) / (high - low).clamp(min=1e-12))
    return figure


def _picked(count: int, most: int) -> list[int]:
    step = -(-count // most)
    return list(range(0, count, step))


def _show_image(axes: Axes, image: Tensor) -> None:
    shown = image if image.shape[0] in (1, 3) else image[:1]
    array = shown.permute(1, 2, 0).numpy()
    axes.imshow(array[:, :, 0] if array.shape[2] == 1 else array, cmap="gray", vmin=0, vmax=1)
    _bare(axes)


def _show_map(axes: Axes, values: Tensor, pixels: tuple[int, int] | None = None) -> None:
    if pixels is None:
        axes.imshow(values.numpy(), cmap="viridis")
    else:
        height, width = (n * p for n, p in zip(values.shape, pixels, strict=True))
        edges = (-0.5, width - 0.5, height - 0.5, -0.5)
        axes.imshow(values.numpy(), cmap="viridis", alpha=0.65, extent=edges)
    _bare(axes)


def _bare(axes: Axes) -> None:
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


def _show_over(axes: Axes, image: Tensor, values: Tensor, pixels: tuple[int, int]) -> None:
    """A map over the image, which shows nothing beyond its edge."""
    _show_image(axes, image)
    _show_map(axes, values, pixels)
    axes.set(xlim=(-0.5, image.shape[2] - 0.5), ylim=(image.shape[1] - 0.5, -0.5))


def _show_looking(
    axes: Axes, image: Tensor, mark: Mark, values: Tensor, pixels: tuple[int, int]
) -> None:
    """An object's map over the image in gray, so that all colour is the map's, and its box."""
    gray = image.mean(dim=0, keepdim=True) if image.shape[0] == 3 else image
    _show_over(axes, gray, values, pixels)
    _show_box(axes, mark)


def _show_box(axes: Axes, mark: Mark) -> None:
    """In its colour on white, which is seen on dark and on light."""
    from matplotlib.patches import Rectangle

    left, top, right, bottom = mark.box
    for ink, width in (("white", 3.0), (as_hex(mark.colour), 1.6)):
        corner = (left - 0.5, top - 0.5)  # the centre of a pixel is its number
        axes.add_patch(Rectangle(corner, right - left, bottom - top, fill=False, ec=ink, lw=width))


def _show_prediction(axes: Axes, overlay: Overlay, image: Tensor, most: int = 12) -> None:
    """Above a legend of the classes, as far as there is room."""
    from matplotlib.patches import Patch

    axes.imshow(overlay.picture)
    _bare(axes)
    axes.set(xlim=(-0.5, image.shape[2] - 0.5), ylim=(image.shape[1] - 0.5, -0.5))
    axes.set_title("prediction", **SMALL)
    entries = list(overlay.colours.items())
    shown = entries if len(entries) <= most else entries[: most - 1]
    patches = [Patch(color=as_hex(colour), label=name) for name, colour in shown]
    if len(shown) < len(entries):
        patches.append(Patch(color="none", label=f"and {len(entries) - len(shown)} more"))
    below: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0)}
    axes.legend(handles=patches, ncols=2, fontsize=7, handlelength=1.2, **below)


def _ring(axes: Axes, pixel: tuple[int, int] | None) -> None:
    """Around a pixel (y, x), seen on dark and on light."""
    if pixel is None:
        return
    for ink, width in (("black", 3.5), ("white", 1.5)):
        axes.plot(pixel[1], pixel[0], "o", markersize=9, fillstyle="none", color=ink, mew=width)
