"""Figures as PNG files, drawn by matplotlib without a screen. Each takes numbers, not models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_NUMBERED = 30
"""Classes up to which each cell of a confusion matrix shows its number."""


def write_evaluation(result: dict[str, Any], folder: Path) -> list[Path]:
    """The confusion matrix, the calibration and the classes' scores of a classifier."""
    folder.mkdir(parents=True, exist_ok=True)
    figures = {
        "confusion": confusion(list(result["classes"]), result["confusion"]),
        "calibration": calibration(result["calibration"], result["calibration_error"]),
        "classes": class_scores(result["classes"]),
    }
    paths = []
    for name, figure in figures.items():
        paths.append(folder / f"{name}.png")
        figure.savefig(paths[-1], dpi=120)
    return paths


def confusion(names: Sequence[str], counts: Sequence[Sequence[int]]) -> Figure:
    """Truth in rows, prediction in columns; shade by the share of the truth's images."""
    values = np.asarray(counts)
    shares = values / np.maximum(values.sum(axis=1, keepdims=True), 1)
    side = min(3 + 0.45 * len(names), 14)
    figure = _figure(side, side)
    axes = figure.add_subplot()
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.set(xlabel="what the model says", ylabel="truth")
    if len(names) <= MAX_NUMBERED:
        axes.set_xticks(range(len(names)), names, rotation=90)
        axes.set_yticks(range(len(names)), names)
        for i, j in zip(*values.nonzero(), strict=True):
            ink = "white" if shares[i, j] > 0.5 else "black"
            axes.text(j, i, str(values[i, j]), ha="center", va="center", color=ink, fontsize=8)
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


def class_scores(classes: dict[str, dict[str, float]], limit: int = 40) -> Figure:
    """F1 of each class, the hardest first."""
    rows = sorted(classes.items(), key=lambda item: item[1]["f1"])[:limit]
    figure = _figure(6, 1.2 + 0.25 * len(rows))
    axes = figure.add_subplot()
    axes.barh([name for name, _ in rows], [row["f1"] for _, row in rows], color="tab:blue")
    axes.invert_yaxis()
    axes.set(xlabel="F1", xlim=(0, 1), title=f"hardest of {len(classes)} classes first")
    return figure


def _figure(width: float, height: float) -> Figure:
    """Without pyplot: nothing global, and no window system is asked for."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")
