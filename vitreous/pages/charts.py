"""Charts of numbers: learning curves, confusion matrix, calibration, scores, precision."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from vitreous.pages.colours import Colour, as_hex, colours_of
from vitreous.pages.figure import ACCENTS, DASHES, INK, LINE, SOFT, new_figure, styled
from vitreous.pages.pictures import short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Points = Sequence[tuple[float, float]]
NUMBERED = 30
"""Classes up to which each cell of a confusion matrix shows its number."""
LARGEST_COUNT = 99_999
"""The largest number that fits into a cell."""
STRONGEST = 0.6
"""How much of a cell's colour is ours at most: numbers are read on it, on light and on dark."""


@styled
def curves(
    title: str, lines: Mapping[str, Points], best: float | None = None, over: str = "epoch"
) -> Figure:
    """Lines over epochs, or something else; the epoch with the best evaluation is marked."""
    figure = new_figure(4.2, 2.5)
    axes = figure.add_subplot()
    axes.set_title(title, pad=6 if len(lines) == 1 else 20)
    axes.set_xlabel(over)
    axes.grid(axis="y")
    for number, (name, points) in enumerate(lines.items()):
        known = [(x, y) for x, y in points if math.isfinite(y)]
        look: dict[str, Any] = {
            "color": ACCENTS[number % 3],
            "linestyle": DASHES[(number + number // 3) % 3],
            "label": name,
        }
        marker = "o" if len(known) == 1 else ""  # a line needs two points
        axes.plot(*zip(*known, strict=True), lw=1.8, marker=marker, ms=4, **look)
    _count(axes)
    if best is not None:
        axes.axvline(best, color=SOFT, lw=1, ls=":")
    if len(lines) > 1:
        axes.legend(loc="lower left", bbox_to_anchor=(-0.03, 0.98), ncols=3, columnspacing=1.2)
    return figure


@styled
def gains(title: str, unit: str, rows: Mapping[str, tuple[float, float, float]]) -> Figure:
    """Of each row a number and the ends of its interval, as a dot on a line; zero is marked. Rows
    whose interval has no zero in it are in colour; ends may be infinite."""
    figure = new_figure(5.6, 1.1 + 0.32 * len(rows))
    axes = figure.add_subplot()
    axes.set_title(title)
    ends = [end for row in rows.values() for end in row if math.isfinite(end)]
    room = 0.08 * ((max([*ends, 0.0]) - min([*ends, 0.0])) or 1.0)
    left, right = min([*ends, 0.0]) - room, max([*ends, 0.0]) + room
    for place, (value, low, high) in enumerate(rows.values()):
        ink = ACCENTS[0] if low > 0 else ACCENTS[1] if high < 0 else SOFT
        axes.hlines(place, max(low, left), min(high, right), color=ink, lw=2)
        axes.plot([value], [place], "o", color=ink, ms=6)
    axes.axvline(0, color=INK, lw=1)
    axes.set_yticks(range(len(rows)), [short(name, 28) for name in rows])
    axes.set(xlabel=unit, xlim=(left, right), ylim=(len(rows) - 0.5, -0.5))
    axes.grid(axis="x")
    return figure


def _count(axes: Axes) -> None:
    """Whole numbers along the x axis, also where there is only one."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


@styled
def confusion_matrix(names: Sequence[str], counts: Sequence[Sequence[int]]) -> Figure:
    """Ground truth in rows, prediction in columns; shade by the share of the row.

    Cells have their counts, or where these are too long, as of pixels, the share in percent.
    """
    values = np.asarray(counts)
    if len(names) > NUMBERED:  # of many classes, those that occur
        occur = np.flatnonzero(values.any(axis=0) | values.any(axis=1))
        if len(occur) <= NUMBERED:
            names, values = [names[i] for i in occur.tolist()], values[np.ix_(occur, occur)]
    shares = values / np.maximum(values.sum(axis=1, keepdims=True), 1)
    side = min(max(2.2 + 0.3 * len(names), 3.6), 13)
    figure = new_figure(side, side)
    axes = figure.add_subplot()
    shade = np.empty((*shares.shape, 4))
    shade[..., :3] = [int(ACCENTS[0][i : i + 2], 16) / 255 for i in (1, 3, 5)]
    shade[..., 3] = STRONGEST * shares
    axes.imshow(shade, interpolation="none")
    in_percent = values.max() > LARGEST_COUNT
    rows = "ground truth (cells: % of its pixels)" if in_percent else "ground truth"
    axes.set(xlabel="prediction", ylabel=rows)
    axes.spines[:].set_visible(True)
    if len(names) <= NUMBERED:
        labels = [short(name) for name in names]
        axes.set_xticks(range(len(names)), labels, rotation=90 if max(map(len, labels)) > 2 else 0)
        axes.set_yticks(range(len(names)), labels)
        for i, j in zip(*values.nonzero(), strict=True):
            text = _percent(shares[i, j]) if in_percent else f"{values[i, j]}"
            axes.text(j, i, text, ha="center", va="center", fontsize=8, color=INK)
    return figure


def _percent(share: float) -> str:
    """For a narrow cell: whole percent, a dot for less than half of one."""
    return f"{100 * share:.0f}" if share >= 0.005 else "·"


@styled
def reliability_diagram(bins: Mapping[str, Sequence[float]], error: float) -> Figure:
    """Accuracy over confidence, in bins (Guo et al. 2017, figure 1), and below how many images each
    bin has. On the diagonal the model is as accurate as it is confident."""
    figure = new_figure(4.6, 4.6)
    axes, below = figure.subplots(2, 1, sharex=True, height_ratios=(5, 1))
    count = len(bins["samples"])
    filled = [i for i in range(count) if bins["samples"][i]]
    centres = [(i + 0.5) / count for i in filled]
    right = [bins["accuracy"][i] for i in filled]
    confidence = [bins["confidence"][i] for i in filled]
    width = 0.92 / count
    axes.bar(centres, right, width, color=ACCENTS[0], alpha=0.6, label="accuracy")
    starts, ends = ([m + side * width / 2 for m in centres] for side in (-1, 1))
    axes.hlines(confidence, starts, ends, color=ACCENTS[1], lw=2.2, label="mean confidence")
    axes.plot([0, 1], [0, 1], ls="--", color=SOFT, lw=1, zorder=0)
    axes.set(ylabel="accuracy", xlim=(0, 1), ylim=(0, 1))
    axes.set_title(f"calibration error {100 * error:.1f} %")
    axes.legend(loc="upper left")
    below.bar(centres, [bins["samples"][i] for i in filled], width, color=SOFT, alpha=0.6)
    below.set(xlabel="confidence", ylabel="images")
    for each in (axes, below):
        each.grid(axis="y")
    return figure


@styled
def precision_recall(
    curves: Mapping[str, Any],
    colours: Mapping[str, Colour] | None = None,
    *,
    title: str = "",
    most: int = 10,
) -> Figure:
    """A line for each class, or of more than `most`, their mean."""
    from matplotlib.patheffects import withStroke

    lines = {name: line for name, line in curves["precision"].items() if line is not None}
    colours = colours or dict(zip(lines, colours_of(tuple(range(len(lines)))), strict=True))
    if len(lines) > most:
        lines = {f"mean of {len(lines)} classes": np.mean(list(lines.values()), axis=0)}
    figure = new_figure(5.2, 3.2 + 0.1 * len(lines))
    axes = figure.add_subplot()
    for name, line in lines.items():
        label = f"{short(name)} ({np.mean(line):.2f})"
        ink = as_hex(colours[name]) if name in colours else ACCENTS[0]
        outline = [withStroke(linewidth=2.8, foreground=LINE)]  # yellow on white
        axes.plot(curves["recall"], line, label=label, color=ink, lw=1.8, path_effects=outline)
    axes.set(xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1.03))
    axes.set_title(title)
    axes.grid()
    if lines:
        axes.legend(loc="upper left", bbox_to_anchor=(-0.02, -0.16), ncols=2)
    return figure


@styled
def class_scores(
    classes: Mapping[str, Mapping[str, Any]], key: str, name: str, limit: int = 40
) -> Figure:
    """One score of each class, the hardest first; without classes that have none."""
    known = [(label, row[key]) for label, row in classes.items() if row[key] is not None]
    rows = sorted(known, key=lambda item: item[1])[:limit]
    figure = new_figure(6, 1.2 + 0.25 * len(rows))
    axes = figure.add_subplot()
    axes.barh([short(label) for label, _ in rows], [score for _, score in rows], color=ACCENTS[0])
    axes.invert_yaxis()
    axes.set(xlabel=name, xlim=(0, 1), title=f"hardest of {len(known)} classes first")
    return figure


@styled
def attention_distances(distances: Sequence[Tensor], widest: float) -> Figure:
    """For each layer (heads,) in pixels: a dot for each head (ViT, figure 7 right)."""
    figure = new_figure(5.2, 3.2)
    axes = figure.add_subplot()
    for number, layer in enumerate(distances):
        axes.scatter([number + 1] * len(layer), layer, s=22, color=ACCENTS[0], alpha=0.7)
    means, count = [layer.mean() for layer in distances], len(distances)
    marker = "_" if count == 1 else ""  # a line needs two points
    label = "mean of the heads"
    axes.plot(range(1, count + 1), means, "--", color=INK, label=label, marker=marker, ms=14)
    axes.set(xlabel="layer", ylabel="mean attention distance in pixels")
    axes.set(xlim=(0.5, count + 0.5), ylim=(0, widest or 1))
    _count(axes)
    axes.grid(axis="y")
    axes.legend()
    return figure
