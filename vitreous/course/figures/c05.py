"""Chapter 5: what the head may read, and when the class token has gathered it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from vitreous.course.model import digits
from vitreous.data.formats import open_source
from vitreous.models.model import Model
from vitreous.pages.figure import ACCENTS, DASHES, INK, LINE, SOFT, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CHINESE = {
    "class token": "类别标记",
    "mean": "平均",
    "both": "两者拼接",
    "patches": "图块",
    "head": "分类头",
    "the head, on row 0": "分类头，读第 0 行",
    "a probe, on row 0": "探针，读第 0 行",
    "a probe, on the mean": "探针，读图块的平均",
    "before": "之前",
    "block 1": "编码块 1",
    "block 2": "编码块 2",
    "block 3": "编码块 3",
    "accuracy, %": "准确率，%",
}
PATCHES = 5
"""That are drawn."""


@styled
def readings() -> Figure:
    """Three ways from the tokens behind the last block to what the head reads."""
    figure = new_figure(5.6, 1.5)
    for place, kind in enumerate(("class token", "mean", "both")):
        axes = figure.add_subplot(1, 3, place + 1)
        _reading(axes, first=kind != "mean", others=kind != "class token")
        axes.set_title(kind, fontsize=9)
    return figure


def _reading(axes: Axes, first: bool, others: bool) -> None:
    from matplotlib.patches import Rectangle

    def cell(x: float, y: float, colour: str, filled: bool) -> None:
        face = colour if filled else "none"
        axes.add_patch(Rectangle((x, y), 0.8, 0.8, facecolor=face, edgecolor=colour))

    def arrow(x: float, y: float, to_x: float, to_y: float) -> None:
        style = {"arrowstyle": "-|>", "color": SOFT, "lw": 0.8}
        axes.annotate("", xy=(to_x, to_y), xytext=(x, y), arrowprops=style)

    cell(0, 3, ACCENTS[1], first)
    for i in range(1, PATCHES + 1):
        cell(i + 0.3, 3, ACCENTS[0], others)
    read = [1.95] if not (first and others) else [1.5, 2.4]
    if first:
        cell(read[0], 1.2, ACCENTS[1], True)
        arrow(0.4, 2.95, read[0] + 0.4, 2.05)
    if others:
        cell(read[-1], 1.2, ACCENTS[0], True)
        for i in range(1, PATCHES + 1):
            arrow(i + 0.7, 2.95, read[-1] + 0.4, 2.05)
    axes.text(2.35, 0.35, "head", ha="center", va="center", fontsize=9, color=INK)
    arrow(2.35, 1.15, 2.35, 0.6)
    axes.text(3.7, 4.05, "patches", ha="center", fontsize=8, color=SOFT)
    axes.set(xlim=(-0.2, 6.3), ylim=(0, 4.6), aspect="equal")
    axes.set_axis_off()


@styled
def gathering() -> Figure:
    """How many test digits are read right from row 0, and from the mean, behind each block."""
    found = _accuracies(digits().model)
    figure = new_figure(4.6, 2.6)
    axes = figure.add_subplot()
    names = ("the head, on row 0", "a probe, on row 0", "a probe, on the mean")
    for name, values, colour, dash in zip(names, found, ACCENTS, DASHES, strict=True):
        axes.plot(range(len(values)), values, color=colour, ls=dash, marker="o", ms=4, label=name)
    axes.set_xticks(range(4), ["before", "block 1", "block 2", "block 3"])
    axes.set(ylim=(0, 103), ylabel="accuracy, %")
    axes.grid(axis="y", color=LINE)
    axes.legend(loc="lower right")
    return figure


@torch.no_grad()
def _accuracies(model: Model) -> tuple[list[float], list[float], list[float]]:
    (images, truth), (known, classes) = _read("test"), _read("train")
    (x, grid), (seen, _) = model.embed(images), model.embed(known)
    found: tuple[list[float], list[float], list[float]] = ([], [], [])
    for block in range(model.depth + 1):
        if block:
            x, seen = (model.encode(each, grid, block - 1, block) for each in (x, seen))
        a, b = model.final_norm(x, block), model.final_norm(seen, block)
        scores = (
            model.head(a[:, 0]),
            _probed(a[:, 0], b[:, 0], classes),
            _probed(a[:, 1:].mean(1), b[:, 1:].mean(1), classes),
        )
        for row, score in zip(found, scores, strict=True):
            row.append(100 * float((score.argmax(1) == truth).double().mean()))
    return found


def _probed(x: Tensor, seen: Tensor, classes: Tensor) -> Tensor:
    """What a linear classifier says of x that is fitted to what was seen, by ridge regression."""
    x, seen = (torch.nn.functional.pad(each, (0, 1), value=1).double() for each in (x, seen))
    wanted = torch.nn.functional.one_hot(classes).double()
    return x @ torch.linalg.solve(seen.T @ seen + torch.eye(seen.shape[1]), seen.T @ wanted)


def _read(split: str) -> tuple[Tensor, Tensor]:
    predictor, source = digits(), open_source("digits")
    samples = source.splits[split]
    images = torch.stack([predictor.prepare(source.image(each)) for each in samples])
    return images, torch.tensor([each.target for each in samples])
