"""Chapter 8: positions on another grid."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.course.model import digits
from vitreous.layers.resample import resample_grid
from vitreous.pages.figure import ACCENTS, INK, LINE, SOFT, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHINESE = {
    "stored, 4 × 4": "原有的 4 × 4",
    "resampled, 8 × 8": "插值后的 8 × 8",
    "as a list, 8 × 8": "当成列表，8 × 8",
    "cosine": "余弦相似度",
    "4 places": "4 个位置",
    "6, same image": "6 个，覆盖同一图像",
    "6, corners aligned": "6 个，角点对齐",
    "border of the image": "图像边界",
}
PLACES = ((0, 0), (0, 3), (1, 1), (2, 2), (3, 1))
"""Of the stored grid."""


@styled
def similarity() -> Figure:
    """E_pos of the digits model: cosines of some places with all others, on three grids."""
    table = digits().model.get_parameter("position.table").detach()[1:]  # (16, d)
    stored = table.unflatten(0, (4, 4))
    fine = resample_grid(stored, (8, 8), "bicubic")
    listed = F.interpolate(table.T[None], size=64, mode="linear")[0].T.unflatten(0, (8, 8))
    rows = {"stored, 4 × 4": stored, "resampled, 8 × 8": fine, "as a list, 8 × 8": listed}
    figure = new_figure(5.2, 3.3)
    axes = figure.subplots(len(rows), len(PLACES))
    for row, (name, grid) in zip(axes, rows.items(), strict=True):
        step = grid.shape[0] // 4
        for each, (y, x) in zip(row, PLACES, strict=True):
            at = (y * step, x * step)
            drawn = each.imshow(_cosines(grid, at).numpy(), cmap="viridis", vmin=-1, vmax=1)
            each.plot(at[1], at[0], "o", color="white", markersize=3)
            each.set_xticks([])
            each.set_yticks([])
        row[0].set_ylabel(name, fontsize=8)
    bar = figure.colorbar(drawn, ax=axes, shrink=0.7, ticks=[-1, 0, 1])
    bar.set_label("cosine")
    return figure


def _cosines(grid: Tensor, at: tuple[int, int]) -> Tensor:
    """(gh, gw)"""
    directions = F.normalize(grid, dim=-1)
    return directions @ directions[at]


@styled
def alignment() -> Figure:
    """Where the centres of 6 places lie beside those of 4: two meanings of the same enlargement."""
    new = torch.arange(6)
    lines = {
        "4 places": (torch.arange(4) + 0.5) / 4,
        "6, same image": (new + 0.5) / 6,
        "6, corners aligned": 0.125 + new * 0.75 / 5,
    }
    figure = new_figure(5.2, 1.7)
    axes = figure.add_subplot()
    for y, (places, colour) in enumerate(zip(lines.values(), (INK, *ACCENTS[:2]), strict=True)):
        axes.plot([0, 1], [-y, -y], color=LINE, linewidth=1)
        axes.plot(places.tolist(), [-y] * len(places), "o", color=colour, markersize=7)
        if y < 2:
            for edge in torch.linspace(0, 1, len(places) + 1).tolist():
                axes.plot([edge, edge], [-y - 0.25, -y + 0.25], color=SOFT, linewidth=0.8)
    for edge in (0, 1):
        axes.plot([edge, edge], [0.5, -2.5], color=SOFT, linestyle=":", linewidth=1)
    axes.text(0, 0.6, "border of the image", fontsize=8, color=SOFT, va="bottom")
    axes.set_yticks([0, -1, -2], list(lines), color=SOFT)
    axes.set_xticks([])
    axes.set_ylim(-2.6, 1.1)
    axes.spines[["left", "bottom"]].set_visible(False)
    return figure
