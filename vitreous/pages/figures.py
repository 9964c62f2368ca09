"""Figures as PNG files, drawn by matplotlib without a screen. Each takes numbers, not models."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from torch import Tensor

from vitreous.pages.charts import percent
from vitreous.pages.draw import Colour, Entry, Pixels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from vitreous.tasks.detect.draw import Mark

MAX_NUMBERED = 30
"""Classes up to which each cell of a confusion matrix shows its number."""
MAX_COUNT = 99_999
"""The largest number that fits into a cell."""
SCORES = {"f1": "F1", "iou": "intersection over union", "ap": "average precision"}
"""What tells how hard a class is, by task."""


def write_evaluation(result: dict[str, Any], folder: Path) -> list[Path]:
    """The confusion matrix, the classes' scores, the calibration, and precision over recall, as far
    as there are any."""
    figures = {"classes": class_scores(result["classes"])}
    if "confusion" in result:
        figures["confusion"] = confusion(list(result["classes"]), result["confusion"])
    if "calibration" in result:
        figures["calibration"] = calibration(result["calibration"], result["calibration_error"])
    if "curves" in result:
        figures["precision"] = precision_recall(result["curves"])
    return [save(figure, folder / f"{name}.png") for name, figure in figures.items()]


def confusion(names: Sequence[str], counts: Sequence[Sequence[int]]) -> Figure:
    """Truth in rows, prediction in columns; shade by the share of the truth.

    Cells have their counts, or where these are too long, as of pixels, the share in percent.
    """
    values = np.asarray(counts)
    shares = values / np.maximum(values.sum(axis=1, keepdims=True), 1)
    side = min(3 + 0.45 * len(names), 14)
    figure = _figure(side, side)
    axes = figure.add_subplot()
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    long = values.max() > MAX_COUNT
    truth = "truth (cells: % of its pixels)" if long else "truth"
    axes.set(xlabel="what the model says", ylabel=truth)
    if len(names) <= MAX_NUMBERED:
        axes.set_xticks(range(len(names)), names, rotation=90)
        axes.set_yticks(range(len(names)), names)
        for i, j in zip(*values.nonzero(), strict=True):
            ink = "white" if shares[i, j] > 0.5 else "black"
            words = percent(shares[i, j]) if long else str(values[i, j])
            axes.text(j, i, words, ha="center", va="center", color=ink, fontsize=8)
    return figure


def calibration(bins: dict[str, Sequence[float]], error: float) -> Figure:
    """How often the model is right, over how sure it is; on the diagonal it is as sure as right."""
    figure = _figure(5, 4.5)
    axes = figure.add_subplot()
    filled = [i for i, count in enumerate(bins["samples"]) if count]
    sure = [bins["confidence"][i] for i in filled]
    right = [bins["accuracy"][i] for i in filled]
    sizes = [20 + 200 * bins["samples"][i] / max(bins["samples"]) for i in filled]
    axes.plot([0, 1], [0, 1], "--", color="gray", label="as sure as right")
    axes.plot(sure, right, color="tab:blue")
    axes.scatter(sure, right, s=sizes, color="tab:blue", label="images, by how many")
    title = f"calibration error {error:.3f}"
    axes.set(xlabel="how sure", ylabel="how often right", title=title, xlim=(0, 1), ylim=(0, 1.03))
    axes.legend(loc="upper left")
    return figure


def precision_recall(curves: dict[str, Any]) -> Figure:
    """How much of what is said is right, over how much is found, at an IoU of 0.5: a line for each
    class, or where these are many, their mean."""
    from matplotlib import colormaps

    figure = _figure(6, 4.5)
    axes = figure.add_subplot()
    lines = precision_lines(curves)
    inks = colormaps["tab10"].colors  # type: ignore[attr-defined]
    for (name, line), ink in zip(lines.items(), inks, strict=False):
        axes.plot(curves["recall"], line, label=f"{name} ({np.mean(line):.2f})", color=ink)
    axes.set(xlabel="recall: how much is found", ylabel="precision: how much of it is right")
    axes.set(xlim=(0, 1), ylim=(0, 1.03), title="at an IoU of 0.5; in brackets: AP50")
    if lines:
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    return figure


def precision_lines(curves: dict[str, Any], most: int = 10) -> dict[str, list[float]]:
    """By class, or, of more than `most`, their mean; without those of which there is nothing."""
    known = {name: line for name, line in curves["precision"].items() if line is not None}
    if len(known) <= most:
        return known
    mean = np.mean(list(known.values()), axis=0)
    return {f"mean of {len(known)} classes": mean.tolist()}


def class_scores(classes: dict[str, dict[str, Any]], limit: int = 40) -> Figure:
    """The score of each class, the hardest first; without those that are nowhere."""
    key = next(score for score in SCORES if score in next(iter(classes.values())))
    known = [(name, row[key]) for name, row in classes.items() if row[key] is not None]
    rows = sorted(known, key=lambda item: item[1])[:limit]
    figure = _figure(6, 1.2 + 0.25 * len(rows))
    axes = figure.add_subplot()
    axes.barh([name for name, _ in rows], [score for _, score in rows], color="tab:blue")
    axes.invert_yaxis()
    axes.set(xlabel=SCORES[key], xlim=(0, 1), title=f"hardest of {len(classes)} classes first")
    return figure


def _figure(width: float, height: float) -> Figure:
    """Without pyplot: nothing global, and no window system is asked for."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _tall(image: Tensor, wide: float, most: float) -> float:
    """Inches for an image (c, h, w) that is so many inches wide; some, however thin it is."""
    return max(min(wide * image.shape[1] / image.shape[2], most), 0.3)


def save(figure: Figure, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return path


def as_url(figure: Figure) -> str:
    """The figure itself as an address, for pages."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=90)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def head_attention(
    image: Tensor, attention: Sequence[Tensor], mark: tuple[int, int] | None = None
) -> Figure:
    """For each layer (heads, gh, gw): a row for each layer, a column for each head.

    Each map has its own scale: bright is where this head looks most. `mark`: the pixel of the image
    whose attention it is.
    """
    heads = max(len(layer) for layer in attention)
    figure = _figure(min(1.1 * heads + 1.2, 24), min(1.1 * len(attention) + 0.6, 24))
    axes = figure.subplots(len(attention), heads + 1, squeeze=False)
    for line, layer in enumerate(attention):
        _show_image(axes[line][0], image)
        _mark(axes[line][0], mark)
        axes[line][0].set_ylabel(f"layer {line + 1}", fontsize=8)
        for head in range(heads):
            if line == 0:
                axes[0][head + 1].set_title(f"head {head + 1}", fontsize=8)
            if head < len(layer):
                _show_map(axes[line][head + 1], layer[head])
            else:
                axes[line][head + 1].axis("off")
    return figure


class Said(NamedTuple):
    """What a model says of an image's pixels, drawn over it."""

    picture: Pixels
    entries: list[Entry]


def overlays(
    image: Tensor,
    maps: dict[str, Tensor],
    pixels: tuple[int, int],
    said: Said | None = None,
    mark: tuple[int, int] | None = None,
    marked: int = 0,
) -> Figure:
    """The image, what is said of it, and each map laid over it; bright is much, dark is nothing.

    `pixels` are the height and width of a patch: the last ones may reach over the edge. `mark` is a
    pixel that is marked in the image and in the first `marked` maps.
    """
    count = len(maps) + (1 if said is None else 2)
    tall = _tall(image, 2.6, 4.0)
    figure = _figure(2.6 * count, tall + (0.3 if said is None else 0.7))
    first, *axes = figure.subplots(1, count, squeeze=False)[0]
    _show_image(first, image)
    _mark(first, mark)
    first.set_title("the image, as the model sees it", fontsize=8)
    if said is not None:
        _show_said(axes.pop(0), said, image)
    for number, (place, (name, values)) in enumerate(zip(axes, maps.items(), strict=True)):
        _show_image(place, image)
        _show_map(place, values, pixels)
        _mark(place, mark if number < marked else None)
        place.set(xlim=(-0.5, image.shape[2] - 0.5), ylim=(image.shape[1] - 0.5, -0.5))
        place.set_title(name, fontsize=8)
    return figure


def object_maps(
    image: Tensor,
    marks: Sequence[Mark],
    maps: Sequence[Tensor],
    pixels: tuple[int, int],
    title: str = "what it finds",
) -> Figure:
    """The image with boxes, and for each where its query looks (DETR, figure 6); bright is much.

    Boxes are in pixels of the image, and `pixels` are the height and width of a patch.
    """
    columns = min(len(maps) + 1, 4)
    rows = -(-(len(maps) + 1) // columns)
    tall = _tall(image, 2.6, 4.0)
    figure = _figure(2.6 * columns, (tall + 0.25) * rows + 0.1)
    first, *axes = figure.subplots(rows, columns, squeeze=False).ravel()
    _show_image(first, image)
    first.set_title(title if marks else "nothing is found", fontsize=8)
    for mark in marks:
        _show_box(first, mark)
    for place in axes[len(maps) :]:
        place.axis("off")
    for place, mark, values in zip(axes, marks, maps, strict=False):
        _show_looking(place, image, mark, values, pixels)
        place.set_title(mark.words, fontsize=8)
    return figure


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
    figure = _figure(min(1.4 * (count + 1) + 0.5, 24), min(tall * max(len(maps), 1) + 0.5, 24))
    axes = figure.subplots(max(len(maps), 1), count + 1, squeeze=False)
    if not maps:
        _show_image(axes[0][0], image)
        axes[0][0].set_title("nothing is found", fontsize=8)
    for line, (mark, of_object) in enumerate(zip(marks, maps, strict=True)):
        _show_image(axes[line][0], image)
        _show_box(axes[line][0], mark)
        axes[line][0].set_ylabel(mark.words, fontsize=8)
        for number, values in enumerate(of_object):
            _show_looking(axes[line][number + 1], image, mark, values, pixels)
            if line == 0:
                axes[0][number + 1].set_title(f"{column} {number + 1}", fontsize=8)
    return figure


def _show_looking(
    axes: Axes, image: Tensor, mark: Mark, values: Tensor, pixels: tuple[int, int]
) -> None:
    """An object's map over the image in gray, so that all colour is the map's, and its box."""
    _show_image(axes, image.mean(dim=0, keepdim=True) if image.shape[0] == 3 else image)
    _show_map(axes, values, pixels)
    _show_box(axes, mark)
    axes.set(xlim=(-0.5, image.shape[2] - 0.5), ylim=(image.shape[1] - 0.5, -0.5))


def _show_box(axes: Axes, mark: Mark) -> None:
    """In its colour on white, which is seen on dark and on light."""
    from matplotlib.patches import Rectangle

    left, top, right, bottom = mark.box
    for ink, width in (("white", 3.0), (_hex(mark.colour), 1.6)):
        corner = (left - 0.5, top - 0.5)  # the middle of a pixel is its number
        axes.add_patch(Rectangle(corner, right - left, bottom - top, fill=False, ec=ink, lw=width))


def position_grid(similar: Tensor, most: int = 14) -> Figure:
    """(gh, gw, gh, gw): the grid of grids of ViT's figure 7; bright is alike."""
    gh, gw = similar.shape[:2]
    rows, columns = _picked(gh, most), _picked(gw, most)
    figure = _figure(0.5 * len(columns) + 0.6, 0.5 * len(rows) + 0.6)
    axes = figure.subplots(len(rows), len(columns), squeeze=False)
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            _show_map(axes[i][j], similar[row, column])
    figure.supxlabel("column of the patch", fontsize=8)
    figure.supylabel("row of the patch", fontsize=8)
    return figure


def filter_grid(components: Tensor, columns: int = 7) -> Figure:
    """(count, c, h, w): principal components of the first filters, the strongest first."""
    rows = -(-len(components) // columns)
    figure = _figure(0.8 * columns + 0.3, 0.8 * rows + 0.3)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for place in axes:
        place.axis("off")
    for place, component in zip(axes, components, strict=False):
        low, high = component.min(), component.max()
        _show_image(place, (component - low) / (high - low).clamp(min=1e-12))
    return figure


def distance_chart(distances: Sequence[Tensor], widest: float) -> Figure:
    """For each layer (heads,) in pixels: a dot for each head (ViT, figure 7 right)."""
    from matplotlib.ticker import MaxNLocator

    figure = _figure(6, 4)
    axes = figure.add_subplot()
    for number, layer in enumerate(distances):
        axes.scatter([number + 1] * len(layer), layer, s=22, color="tab:blue", alpha=0.7)
    means = [layer.mean() for layer in distances]
    axes.plot(range(1, len(distances) + 1), means, "--", color="black", label="mean")
    axes.set(xlabel="layer", ylabel="mean attention distance in pixels", ylim=(0, widest or 1))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_title("each dot is one head", fontsize=9)
    axes.legend()
    return figure


def _picked(count: int, most: int) -> list[int]:
    step = -(-count // most)
    return list(range(0, count, step))


def _show_image(axes: Axes, image: Tensor) -> None:
    shown = image if image.shape[0] in (1, 3) else image[:1]
    array = shown.permute(1, 2, 0).numpy()
    axes.imshow(array[:, :, 0] if array.shape[2] == 1 else array, cmap="gray", vmin=0, vmax=1)
    axes.set(xticks=[], yticks=[])


def _show_said(axes: Axes, said: Said, image: Tensor, most: int = 12) -> None:
    """Beside a legend of the classes, as far as there is room."""
    from matplotlib.patches import Patch

    axes.imshow(said.picture)
    axes.set(xticks=[], yticks=[])
    axes.set(xlim=(-0.5, image.shape[2] - 0.5), ylim=(image.shape[1] - 0.5, -0.5))
    axes.set_title("what it says", fontsize=8)
    shown = said.entries if len(said.entries) <= most else said.entries[: most - 1]
    patches = [Patch(color=_hex(entry.colour), label=entry.words) for entry in shown]
    if len(shown) < len(said.entries):
        patches.append(Patch(color="none", label=f"and {len(said.entries) - len(shown)} more"))
    below: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0)}
    axes.legend(handles=patches, ncols=2, fontsize=7, frameon=False, handlelength=1.2, **below)


def _hex(colour: Colour) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)


def _mark(axes: Axes, pixel: tuple[int, int] | None) -> None:
    """A ring around a pixel (y, x), seen on dark and on light."""
    if pixel is None:
        return
    for ink, width in (("black", 3.5), ("white", 1.5)):
        axes.plot(pixel[1], pixel[0], "o", markersize=9, fillstyle="none", color=ink, mew=width)


def _show_map(axes: Axes, values: Tensor, pixels: tuple[int, int] | None = None) -> None:
    if pixels is None:
        axes.imshow(values.numpy(), cmap="viridis")
    else:
        height, width = (n * p for n, p in zip(values.shape, pixels, strict=True))
        edges = (-0.5, width - 0.5, height - 0.5, -0.5)
        axes.imshow(values.numpy(), cmap="viridis", alpha=0.65, extent=edges)
    axes.set(xticks=[], yticks=[])
