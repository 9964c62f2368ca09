"""Chapter 12: masks of coarse maps, DETR as a picture, and matching on an image."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.course.scene import AnsweredScene, scene
from vitreous.pages.figure import ACCENTS, INK, LINE, SOFT, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CHINESE = {
    "image": "图像",
    "true mask": "真实掩码",
    "patches of 4": "图块边长 4",
    "patches of 8": "图块边长 8",
    "patches of 16": "图块边长 16",
    "backbone": "骨干网络",
    "1 x 1 convolution": "1 x 1 卷积",
    "+ positions": "+ 位置",
    "6 encoder layers": "6 个编码层",
    "6 decoder layers": "6 个解码层",
    "100 object queries": "100 个目标查询",
    "keys and values": "键和值",
    "class: linear": "类别：线性层",
    "box: 3 layers, sigmoid": "框：3 层，sigmoid",
    "objects, and their queries' boxes": "目标，以及各自查询的框",
    "cost of each pair; circles: matched": "每一对的代价；圆圈：匹配",
    "query": "查询",
    "layer 1": "第 1 层",
    "layer 2": "第 2 层",
    "layer 3": "第 3 层",
    "circle": "圆",
    "cross": "十字",
    "ring": "环",
    "square": "方块",
    "star": "星",
    "triangle": "三角",
}
BLUE, ORANGE, GREEN = ACCENTS
BRIGHT = ("#ffd60a", "#4cc9f0", "#ff6b6b", "#80ed99", "#ffffff", "#ff9ef5")
"""On pictures, light and dark; one for each class, or for each object."""
SHOWN = 0.2
"""The chance from which on a box is drawn."""


@styled
def ceiling() -> Figure:
    """The best masks that maps of several strides can give."""
    from matplotlib.colors import ListedColormap

    from vitreous.data.formats import open_source

    source = open_source("shapes:100", truth="mask")
    sample = source.splits["test"][15]
    mask = source.truth(sample).long()
    colours = ListedColormap([LINE, *BRIGHT[:4], BLUE, ORANGE])
    figure = new_figure(6.2, 1.7)
    shown = [("image", None), ("true mask", mask)]
    shares = F.one_hot(mask, 7).permute(2, 0, 1)[None].float()
    for patch in (4, 8, 16):
        large = F.interpolate(F.avg_pool2d(shares, patch), mask.shape, mode="bilinear")
        shown.append((f"patches of {patch}", large.argmax(dim=1)[0]))
    for place, (title, classes) in enumerate(shown, 1):
        axes = figure.add_subplot(1, 5, place)
        if classes is None:
            axes.imshow(source.image(sample).permute(1, 2, 0).numpy())
        else:
            axes.imshow(classes.numpy(), cmap=colours, vmin=0, vmax=6, interpolation="nearest")
        axes.set_title(title, fontsize=8, fontweight="normal")
        axes.set_axis_off()
    return figure


@styled
def pipeline() -> Figure:
    """DETR's parts with the shapes between them."""
    from matplotlib.patches import FancyBboxPatch

    figure = new_figure(5.4, 4.4)
    axes = figure.add_subplot()
    axes.set_xlim(0.3, 10.2)
    axes.set_ylim(0, 9.6)
    axes.set_axis_off()

    def box(x: float, y: float, text: str, colour: str, wide: float = 3.3) -> None:
        style = "round,pad=0.06,rounding_size=0.18"
        corner = (x - wide / 2, y - 0.38)
        axes.add_patch(
            FancyBboxPatch(corner, wide, 0.76, boxstyle=style, facecolor="none", edgecolor=colour)
        )
        axes.text(x, y, text, ha="center", va="center", fontsize=8.5, color=INK)

    def arrow(start: tuple[float, float], end: tuple[float, float], text: str = "") -> None:
        axes.annotate(
            "", end, start, arrowprops={"arrowstyle": "-|>", "color": SOFT, "linewidth": 1}
        )
        if text:
            x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
            axes.text(x + 0.15, y, text, fontsize=7.5, color=SOFT, va="center")

    left, right = 2.2, 7.4
    box(left, 9.1, "image", SOFT)
    arrow((left, 8.65), (left, 7.75), "3 x 800 x 800")
    box(left, 7.3, "backbone", BLUE)
    arrow((left, 6.85), (left, 5.95), "2048 x 25 x 25")
    box(left, 5.5, "1 x 1 convolution", BLUE)
    arrow((left, 5.05), (left, 4.15), "625 x 256")
    box(left, 3.7, "6 encoder layers", BLUE)
    axes.text(left, 2.95, "+ positions", ha="center", fontsize=7.5, color=SOFT)
    box(right, 7.3, "100 object queries", ORANGE)
    arrow((right, 6.85), (right, 4.15), "100 x 256")
    box(right, 3.7, "6 decoder layers", ORANGE)
    arrow((left + 1.75, 3.7), (right - 1.75, 3.7))
    axes.text((left + right) / 2, 4.25, "keys and values", ha="center", fontsize=7.5, color=SOFT)
    arrow((right - 0.4, 3.25), (5.6, 1.75))
    arrow((right + 0.4, 3.25), (8.6, 1.75))
    axes.text(right + 1.0, 2.55, "100 x 256", fontsize=7.5, color=SOFT)
    box(4.9, 1.3, "class: linear", GREEN, 2.9)
    box(8.4, 1.3, "box: 3 layers, sigmoid", GREEN, 3.1)
    axes.text(4.9, 0.4, "100 x 92", ha="center", fontsize=7.5, color=SOFT)
    axes.text(8.4, 0.4, "100 x 4", ha="center", fontsize=7.5, color=SOFT)
    return figure


def _frame(axes: Axes, box: Tensor, side: int, colour: str, dash: str, wide: float = 1.5) -> None:
    """A normalised cxcywh box on an image of side x side pixels."""
    from matplotlib.patches import Rectangle

    x, y, width, height = (box * side).tolist()
    corner = (x - width / 2 - 0.5, y - height / 2 - 0.5)
    axes.add_patch(
        Rectangle(
            corner, width, height, fill=False, edgecolor=colour, linestyle=dash, linewidth=wide
        )
    )


def _photo(axes: Axes, here: AnsweredScene) -> None:
    axes.imshow(here.image.permute(1, 2, 0).numpy())
    axes.set_axis_off()


@styled
def matching() -> Figure:
    """The scene with its matched queries, and the cost matrix that matching saw."""
    from vitreous.tasks.objects.losses import by_probability, costs, match

    here = scene()
    target = {"labels": here.labels, "boxes": here.boxes}
    logits, boxes = here.logits[-1:, None], here.found[-1:, None]
    matrix = costs(logits, boxes, [target], by_probability)[0, 0]
    found = match(logits, boxes, [target])
    figure = new_figure(6.2, 3.9)
    photo, table = figure.subplots(2, 1, height_ratios=(2.1, 1))
    _photo(photo, here)
    photo.set_title("objects, and their queries' boxes")
    for query, thing in zip(found.query.tolist(), found.target.tolist(), strict=True):
        colour = BRIGHT[thing % len(BRIGHT)]
        _frame(photo, here.boxes[thing], here.image.shape[1], colour, "-")
        _frame(photo, boxes[0, 0, query], here.image.shape[1], colour, ":")
        x, y, _, height = (here.boxes[thing] * here.image.shape[1]).tolist()
        photo.text(
            x,
            max(y - height / 2 - 1, 5),
            str(query),
            color=colour,
            fontsize=8,
            ha="center",
            va="bottom",
            bbox={"facecolor": "k", "alpha": 0.6, "pad": 1, "edgecolor": "none"},
        )
        table.plot([query], [thing], "o", markersize=9, markerfacecolor="none", color=ORANGE)
    picture = table.imshow(matrix.T.numpy(), cmap="Greys", aspect="auto")
    table.set_title("cost of each pair; circles: matched")
    table.set_yticks(range(len(target["labels"])), [here.names[i] for i in target["labels"]])
    table.set_xticks(range(0, matrix.shape[0], 2))
    table.set_xlabel("query")
    for spine in table.spines.values():
        spine.set_visible(False)
    bar = figure.colorbar(picture, ax=table, pad=0.02)
    bar.outline.set_visible(False)
    return figure


@styled
def layers() -> Figure:
    """The boxes of queries that are sure enough, behind each decoder layer."""
    here = scene()
    figure = new_figure(5.6, 2.1)
    for number, (logits, boxes) in enumerate(zip(here.logits, here.found, strict=True), 1):
        axes = figure.add_subplot(1, len(here.logits), number)
        _photo(axes, here)
        chance, label = logits.softmax(dim=-1)[:, :-1].max(dim=-1)
        for query in torch.nonzero(chance > SHOWN).flatten().tolist():
            colour = BRIGHT[int(label[query]) % len(BRIGHT)]
            _frame(axes, boxes[query], here.image.shape[1], colour, "-", 1.3)
        axes.set_title(f"layer {number}")
    return figure
