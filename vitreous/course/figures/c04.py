"""Chapter 4: which numbers a norm averages, what each part adds to the stream, GELU and ReLU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from vitreous.course.model import digits
from vitreous.data.formats import open_source
from vitreous.pages.figure import ACCENTS, DASHES, INK, LINE, SOFT, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHINESE = {
    "channels": "通道",
    "image 1": "图像 1",
    "image 2": "图像 2",
    "each row a token; coloured: what is averaged for one of these numbers": (
        "每一行是一个标记；有颜色的格子：归一化其中一个数时要平均的数"
    ),
    "the stream": "残差流",
    "what attention adds": "注意力加上的",
    "what the MLP adds": "MLP 加上的",
    "mean length of a token": "标记的平均长度",
    "GELU, exact": "GELU（精确）",
    "GELU by tanh": "GELU（tanh 近似）",
    "error of tanh": "tanh 近似的误差",
}


@styled
def norms() -> Figure:
    """A batch of two images: rows are tokens, columns are channels."""
    from matplotlib.patches import Rectangle

    figure = new_figure(5.4, 2.9)
    for axes, title, colour in zip(
        figure.subplots(1, 2), ("LayerNorm", "BatchNorm"), ACCENTS, strict=False
    ):
        for image in range(2):
            for token in range(4):
                for channel in range(6):
                    layer = title == "LayerNorm" and (image, token) == (0, 1)
                    batch = title == "BatchNorm" and channel == 2
                    face = colour if layer or batch else "none"
                    y = token + 4.7 * image
                    axes.add_patch(
                        Rectangle((channel, y), 0.9, 0.9, facecolor=face, edgecolor=SOFT, lw=0.7)
                    )
            axes.text(-0.4, 2 + 4.7 * image, f"image {image + 1}", ha="right", va="center")
        axes.set(title=title, xlim=(-2.2, 6.1), ylim=(9, -0.2), xticks=[], yticks=[])
        axes.set_xlabel("channels")
        axes.spines[:].set_visible(False)
        axes.set_aspect("equal")
    words = "each row a token; coloured: what is averaged for one of these numbers"
    figure.supxlabel(words, fontsize=9, color=SOFT)
    return figure


@torch.no_grad()
def lengths() -> tuple[list[float], list[float]]:
    """Of the digits model's stream, and of what is added to it, over all test digits."""
    predictor, source = digits(), open_source("digits")
    samples = source.splits["test"]
    images = torch.stack([predictor.view(source.image(each)).values for each in samples])
    x, _ = predictor.model.embed(images)
    stream, added = [float(x.norm(dim=2).mean())], []
    for block in predictor.model.get_submodule("blocks").children():
        for part, norm in (("attention", "norm1"), ("mlp", "norm2")):
            adds = block.get_submodule(part)(block.get_submodule(norm)(x))
            x = x + adds
            added.append(float(adds.norm(dim=2).mean()))
            stream.append(float(x.norm(dim=2).mean()))
    return stream, added


@styled
def stream() -> Figure:
    """How long a token is before and behind each part, and what the part adds."""
    along, added = lengths()
    figure = new_figure(5.2, 2.7)
    axes = figure.subplots()
    places = range(1, len(added) + 1)
    names = ("what attention adds", "what the MLP adds")
    for first, name, colour in zip((0, 1), names, (ACCENTS[0], ACCENTS[1]), strict=True):
        axes.bar(places[first::2], added[first::2], 0.55, color=colour, label=name)
    axes.plot(range(len(along)), along, "o-", color=INK, ms=4, label="the stream")
    axes.set_xticks(range(len(along)), ["z₀", *("z′₁", "z₁", "z′₂", "z₂", "z′₃", "z₃")])
    axes.set(ylabel="mean length of a token", ylim=(0, None))
    axes.grid(axis="y")
    axes.legend(loc="upper left")
    return figure


@styled
def gelu() -> Figure:
    """GELU and ReLU, and how far the tanh form is off."""
    x = torch.linspace(-4, 4, 801)
    exact = torch.nn.functional.gelu(x)
    tanh = torch.nn.functional.gelu(x, approximate="tanh")
    figure = new_figure(5.6, 2.6)
    left, right = figure.subplots(1, 2, width_ratios=(1.6, 1))
    drawn = ((exact, "GELU, exact"), (x.relu(), "ReLU"), (tanh, "GELU by tanh"))
    for (y, name), colour, dashes in zip(drawn, ACCENTS, DASHES, strict=True):
        left.plot(x, y, color=colour, linestyle=dashes, lw=1.8, label=name)
    left.set(xlim=(-4, 2.2), ylim=(-0.4, 2.2))
    left.axhline(0, color=LINE, lw=0.8, zorder=0)
    left.axvline(0, color=LINE, lw=0.8, zorder=0)
    left.legend(loc="upper left")
    right.plot(x, tanh - exact, color=ACCENTS[2], lw=1.5)
    right.axhline(0, color=LINE, lw=0.8, zorder=0)
    right.set(title="error of tanh", ylim=(-6e-4, 6e-4), yticks=[-5e-4, 0, 5e-4])
    right.set_yticklabels(["−0.0005", "0", "0.0005"])
    return figure
