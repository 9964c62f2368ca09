"""Chapter 10: where targets come from, softened answers, two tokens, and what a mask leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from vitreous.course.model import digit, digits
from vitreous.course.taught import taught
from vitreous.data.formats import open_source
from vitreous.models import create
from vitreous.pages.figure import ACCENTS, INK, LINE, SOFT, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CHINESE = {
    "images": "图像",
    "encoder": "编码器",
    "stays": "留下",
    "on top (dashed: thrown away)": "上面的部分（虚线：丢弃）",
    "target": "目标",
    "labels": "标签",
    "head": "分类头",
    "distillation": "蒸馏",
    "two heads": "两个头",
    "labels, and a teacher": "标签和教师",
    "decoder": "解码器",
    "hidden pixels": "被遮的像素",
    "LeJEPA": "LeJEPA",
    "projector": "投影器",
    "another view": "另一个视图",
    "supervised": "有监督",
    "probability": "概率",
    "digit": "数字",
    "image": "图像",
    "visible to the encoder": "编码器可见",
    "its input: 4 patches": "它的输入：4 个图块",
    "decoder: mask tokens": "解码器：掩码标记",
    "cosine of the two tokens": "两个标记的余弦相似度",
    "before": "之前",
    "block 1": "第 1 块",
    "block 2": "第 2 块",
    "block 3": "第 3 块",
    "label and teacher": "标签和教师",
    "twice the label": "两个都学标签",
}
BLUE, ORANGE, GREEN = ACCENTS
ROWS = (
    ("supervised", "head", "labels"),
    ("distillation", "two heads", "labels, and a teacher"),
    ("MAE", "decoder", "hidden pixels"),
    ("LeJEPA", "projector", "another view"),
)


def _box(axes: Axes, x: float, y: float, width: float, text: str, colour: str, dash: str) -> None:
    from matplotlib.patches import Rectangle

    edge = Rectangle((x, y - 0.3), width, 0.6, facecolor="none", edgecolor=colour, linestyle=dash)
    edge.set_linewidth(1.2)
    axes.add_patch(edge)
    axes.text(x + width / 2, y, text, ha="center", va="center", fontsize=8, color=INK)


@styled
def ways() -> Figure:
    """What stays and what is thrown away, for four kinds of target."""
    figure = new_figure(6.2, 2.6)
    axes = figure.add_subplot()
    for row, (name, top, target) in enumerate(ROWS):
        axes.text(0, -row, name, fontsize=8, va="center", color=SOFT)
        for x, width, text, colour, dash in (
            (2.4, 1.6, "images", SOFT, "-"),
            (4.6, 1.8, "encoder", BLUE, "-"),
            (7.0, 1.9, top, ORANGE, "-" if name == "distillation" else "--"),
            (9.5, 3.6, target, GREEN, "-"),
        ):
            _box(axes, x, -row, width, text, colour, dash)
        for start, end in ((4.0, 4.6), (6.4, 7.0), (8.9, 9.5)):
            arrow = {"arrowstyle": "->", "color": SOFT, "linewidth": 1}
            axes.annotate("", (end, -row), (start, -row), arrowprops=arrow)
    for x, text in ((5.5, "stays"), (7.95, "on top (dashed: thrown away)"), (11.3, "target")):
        axes.text(x, 0.6, text, ha="center", fontsize=8, color=SOFT)
    axes.set_xlim(-0.1, 13.2)
    axes.set_ylim(-3.5, 1)
    axes.set_axis_off()
    return figure


@styled
def softened() -> Figure:
    """The answer of the digits model to the test digit of which it is least certain."""
    predictor, source = digits(), open_source("digits")
    samples = source.splits["test"]
    images = torch.stack([predictor.prepare(source.image(sample)) for sample in samples])
    with torch.no_grad():
        logits = predictor.model(images)
    number = int(logits.softmax(1).amax(1).argmin())
    figure = new_figure(6.2, 1.8)
    axes = figure.add_subplot(1, 4, 1)
    _picture(axes, source.image(samples[number])[0])
    axes.set_title("image", fontsize=8, fontweight="normal")
    for place, tau in enumerate((1, 3, 10), 2):
        axes = figure.add_subplot(1, 4, place)
        axes.bar(range(10), (logits[number] / tau).softmax(0).tolist(), color=BLUE)
        axes.set_title(f"τ = {tau}", fontsize=8, fontweight="normal")
        axes.set_xticks(range(10), list("0123456789"), fontsize=7)
        axes.set_ylim(0, 1)
        axes.set_yticks([0, 1])
        axes.set_xlabel("digit")
        if place == 2:
            axes.set_ylabel("probability")
    return figure


@styled
def tokens() -> Figure:
    """The cosine of both tokens, by block, for three seeds."""
    figure = new_figure(5.2, 2.6)
    axes = figure.add_subplot()
    labels = {"teacher": "label and teacher", "labels": "twice the label"}
    for (name, runs), colour, dash in zip(
        taught().items(), (BLUE, ORANGE), ["-", "--"], strict=True
    ):
        for seed, run in enumerate(runs):
            label = "_" if seed else labels[name]
            axes.plot(run.cosines, dash, color=colour, marker="o", ms=3, label=label)
    axes.set_xticks(range(4), ["before", "block 1", "block 2", "block 3"])
    axes.set_ylim(-0.6, 1.1)
    axes.axhline(0, color=LINE, linewidth=1)
    axes.set_ylabel("cosine of the two tokens")
    axes.legend(loc="lower right")
    return figure


def _picture(axes: Axes, image: Tensor) -> None:
    axes.imshow(image.float().numpy(), cmap="Greys_r", vmin=0, vmax=255)
    axes.set_xticks([])
    axes.set_yticks([])


@styled
def masking() -> Figure:
    """A digit of 4 x 4 patches, by the mask of the package's own model."""
    inside = {"patch": 2, "dim": 8, "depth": 1, "heads": 2, "mlp_dim": 8}
    sizes: dict[str, Any] = {
        "image_size": 8,
        "channels": 1,
        "decoder_dim": 8,
        "decoder_heads": 2,
    }
    image, _ = digit(3)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        model = create("mae-pretrain", encoder="vit", encoder_fields=inside, **sizes).eval()
        mask = model(image[None].float() / 255).mask[0].bool()
    hidden = mask.repeat_interleave(2, 0).repeat_interleave(2, 1)
    figure = new_figure(6.2, 1.9)
    panels = [figure.add_subplot(1, 4, place) for place in (1, 2, 3, 4)]
    _picture(panels[0], image[0])
    _picture(panels[1], image[0].float().masked_fill(hidden, 110.0))
    cut = image[0].unflatten(1, (4, 2)).unflatten(0, (4, 2)).transpose(1, 2)  # (4, 4, 2, 2)
    gap = torch.full((2, 1), 110)
    row = torch.cat([part for patch in cut[~mask] for part in (patch, gap)][:-1], dim=1)
    _picture(panels[2], row)
    _picture(panels[3], image[0].float().masked_fill(hidden, 110.0))
    for y, x in mask.nonzero().tolist():
        panels[3].text(
            2 * x + 0.5, 2 * y + 0.5, "m", ha="center", va="center", color="w", fontsize=8
        )
    titles = ("image", "visible to the encoder", "its input: 4 patches", "decoder: mask tokens")
    for axes, title in zip(panels, titles, strict=True):
        axes.set_title(title, fontsize=7.5, fontweight="normal")
    return figure
