"""Chapter 3: attention as matrices, and what the scale does to softmax."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from vitreous.course.model import digit, digits
from vitreous.layers.tap import tap
from vitreous.pages.figure import ACCENTS, SOFT, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CHINESE = {
    "scores": "得分",
    "weights": "权重",
    "output": "输出",
    "weights: softmax of scores / 4, along each row; blue frames: patch 6": (
        "权重：得分除以 4，再沿每一行做 softmax；蓝框：图块 6"
    ),
    "17 tokens": "17 个标记",
    "16 numbers": "16 个数",
    "q·k: one key takes nearly all": "q·k：几乎全归一个键",
    "q·k / 8: all have a share": "q·k / 8：人人有份",
    "key": "键",
    "weight": "权重",
}


def seen_by(number: int, block: int, head: int) -> dict[str, Tensor]:
    """What a head computes for a digit, by name: q, k, v, scores, weights, heads."""
    model, found = digits().model, {}
    image = digits().view(digit(number)[0]).values[None]
    attention = model.get_submodule(f"blocks.{block}.attention")

    def see(name: str, tensor: Tensor) -> None:
        if tensor.ndim == 4:
            found[name] = tensor[0, head]

    with torch.no_grad(), tap({"": attention}, see):
        model(image)
    return found


@styled
def matrices() -> Figure:
    """Q times Kᵀ, softmax, times V: the second head of the first block."""
    from matplotlib.patches import Rectangle

    seen = seen_by(7, 0, 1)
    figure = new_figure(6, 4.1)
    above, below = figure.subplots(2, 3, width_ratios=(1, 1, 1))
    drawn = (
        (above[0], "Q", seen["q"], "RdBu_r"),
        (above[1], "Kᵀ", seen["k"].T, "RdBu_r"),
        (above[2], "scores", seen["scores"], "RdBu_r"),
        (below[0], "weights", seen["weights"], "Greys"),
        (below[1], "V", seen["v"], "RdBu_r"),
        (below[2], "output", seen["heads"], "RdBu_r"),
    )
    for axes, title, matrix, colours in drawn:
        most = float(matrix.abs().max())
        least = 0.0 if colours == "Greys" else -most
        axes.imshow(matrix.numpy(), cmap=colours, vmin=least, vmax=most)
        axes.set(title=title, xticks=[], yticks=[])
        axes.set_xlabel("17 tokens" if matrix.shape[1] == 17 else "16 numbers")
        axes.set_ylabel("17 tokens" if matrix.shape[0] == 17 else "16 numbers")
    for row in (above, below):
        between(row[0], "×")
        between(row[1], "=")
    for axes in (above[0], above[2], below[0], below[2]):
        frame = Rectangle(
            (-0.5, 5.5), axes.get_xlim()[1] + 0.5, 1, fill=False, color=ACCENTS[0], lw=1.6
        )
        axes.add_patch(frame)
    words = "weights: softmax of scores / 4, along each row; blue frames: patch 6"
    figure.supxlabel(words, fontsize=9, color=SOFT)
    return figure


def between(axes: Axes, sign: str) -> None:
    """A sign on the right of a matrix."""
    axes.text(1.14, 0.5, sign, transform=axes.transAxes, ha="center", va="center", fontsize=13)


@styled
def scale() -> Figure:
    """Softmax of the same scores of 24 keys, without and with the scale."""
    random = torch.Generator().manual_seed(5)
    q, keys = torch.randn(64, generator=random), torch.randn(24, 64, generator=random)
    scores = keys @ q
    figure = new_figure(5.2, 2.3)
    titles = ("q·k: one key takes nearly all", "q·k / 8: all have a share")
    parts = figure.subplots(1, 2, sharey=True)
    for axes, found, title, colour in zip(
        parts, (scores, scores / 8), titles, ACCENTS[:2][::-1], strict=True
    ):
        axes.bar(range(24), found.softmax(0).numpy(), color=colour)
        axes.set(title=title, xlabel="key", xticks=[])
    parts[0].set_ylabel("weight")
    return figure
