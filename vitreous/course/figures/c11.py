"""Chapter 11: what windows cost, how they are shifted, what reaches where, and the pyramid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from vitreous.config import pair
from vitreous.models import create
from vitreous.models.swin import Swin, windows_of
from vitreous.pages.figure import ACCENTS, INK, LINE, SOFT, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CHINESE = {
    "side of the image, pixels": "图像边长（像素）",
    "GFLOPs of two blocks": "两个编码块的 GFLOPs",
    "attention to the whole map": "对整张图做注意力",
    "windows of 7 x 7": "7 x 7 的窗口",
    "regular windows": "常规窗口",
    "shifted by 2": "移动 2 个标记",
    "after the cyclic shift": "循环移位之后",
    "mask of window 4": "第 4 个窗口的掩码",
    "not shifted": "不移位",
    "shifted": "移位",
    "block 1": "第 1 块",
    "block 2": "第 2 块",
    "block 3": "第 3 块",
    "block 4": "第 4 块",
    "ViT-B/16: one map": "ViT-B/16：一张图",
    "Swin-T: a pyramid": "Swin-T：金字塔",
}
BLUE, ORANGE, GREEN = ACCENTS
PALE = ("#9ec5fe", "#f5b895", "#9ad9ae", "#c9b6f2")
"""Of four windows; the ink on them is black in the dark, too."""


@styled
def cost() -> Figure:
    """Two blocks of Swin-T's first stage, by the package's count."""
    from vitreous.engines.summary import summarise_name

    sides = (112, 168, 224, 336, 448, 672, 896)

    def counted(window: int, side: int) -> float:
        rows = summarise_name("swin-t", image_size=side, depths=(2,), heads=(3,), window=window)
        return next(row.flops for row in rows if row.name == "stages.0") / 1e9

    figure = new_figure(4.6, 2.9)
    axes = figure.add_subplot()
    for label, colour, dash, of in (
        ("attention to the whole map", ORANGE, "--", lambda side: side // 4),
        ("windows of 7 x 7", BLUE, "-", lambda side: 7),
    ):
        values = [counted(of(side), side) for side in sides]
        axes.plot(sides, values, dash, color=colour, label=label, marker="o", markersize=3)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sides, [str(side) for side in sides], fontsize=8)
    axes.set_yticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
    axes.minorticks_off()
    axes.grid(axis="y")
    axes.set_xlabel("side of the image, pixels")
    axes.set_ylabel("GFLOPs of two blocks")
    axes.legend(loc="upper left")
    return figure


def _cells(axes: Axes, kinds: Tensor, numbers: Tensor | None = None) -> None:
    """A map of tokens (h, w), each in the colour of its kind, with its number."""
    from matplotlib.patches import Rectangle

    for y, line in enumerate(kinds.tolist()):
        for x, kind in enumerate(line):
            axes.add_patch(Rectangle((x, y), 1, 1, facecolor=PALE[kind], edgecolor="none"))
            if numbers is not None:
                text = str(int(numbers[y, x]))
                axes.text(x + 0.5, y + 0.5, text, ha="center", va="center", fontsize=5.5, color="k")
    axes.set_xlim(-0.1, kinds.shape[1] + 0.1)
    axes.set_ylim(kinds.shape[0] + 0.1, -0.1)
    axes.set_aspect("equal")
    axes.set_axis_off()


def _borders(axes: Axes, at: tuple[int, ...], side: int) -> None:
    for place in at:
        axes.plot([place, place], [0, side], color=INK, linewidth=1.4)
        axes.plot([0, side], [place, place], color=INK, linewidth=1.4)


@styled
def shift() -> Figure:
    """A map of 8 x 8 tokens and windows of 4 x 4, by the functions that the model calls."""
    size, window = (8, 8), (4, 4)
    cpu = torch.device("cpu")
    numbers = torch.arange(64).view(8, 8)
    regular = windows_of(size, window, (0, 0), cpu)
    shifted = windows_of(size, window, (2, 2), cpu)
    kinds = torch.empty(64, dtype=torch.long)
    kinds[regular.order] = torch.arange(4).repeat_interleave(16)
    rolled = torch.empty(64, dtype=torch.long)
    rolled[shifted.order] = torch.arange(4).repeat_interleave(16)  # by place before the shift
    figure = new_figure(5.2, 5.5)
    panels = [figure.add_subplot(2, 2, place) for place in (1, 2, 3)]
    _cells(panels[0], kinds.view(8, 8), numbers)
    _borders(panels[0], (0, 4, 8), 8)
    panels[0].set_title("regular windows")
    _cells(panels[1], rolled.view(8, 8), numbers)
    _borders(panels[1], (0, 2, 6, 8), 8)
    panels[1].set_title("shifted by 2")
    moved = rolled.view(8, 8).roll((-2, -2), (0, 1))
    _cells(panels[2], moved, numbers.roll((-2, -2), (0, 1)))
    _borders(panels[2], (0, 4, 8), 8)
    for line in ([6, 6], [0, 8]), ([0, 8], [6, 6]):  # what was no neighbour before
        panels[2].plot(*line, color="k", linewidth=1, linestyle=":")
    panels[2].set_title("after the cyclic shift")
    assert shifted.mask is not None
    mask = figure.add_subplot(2, 2, 4)
    allowed = (shifted.mask[3] == 0).float()
    mask.imshow(allowed.numpy(), cmap="Greys_r", vmin=-0.6, vmax=1.2, aspect="equal")
    names = [str(int(each)) for each in shifted.order.view(4, 16)[3]]
    mask.set_xticks(range(16), names, fontsize=6, rotation=90)
    mask.set_yticks(range(16), names, fontsize=6)
    mask.set_title("mask of window 4")
    for spine in mask.spines.values():
        spine.set_visible(False)
    return figure


def reached(model: Swin, row: int, column: int) -> list[Tensor]:
    """Which tokens differ behind each block (h, w) if one patch of the image is changed."""
    size = pair("patch", model.config.patch)[0]
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(11)
        image = torch.rand(1, 3, *model.own_size(), dtype=torch.float64)
        other = image.clone()
        other[:, :, row * size : (row + 1) * size, column * size : (column + 1) * size] = 0
        both = torch.cat((image, other))
        x, grid = model.embed(both)
        x = x.unflatten(1, grid)
        found = []
        for block in model.stages[0].blocks:  # type: ignore[union-attr]
            x = block(x)
            found.append((x[0] - x[1]).abs().amax(dim=-1) > 1e-12)
    return found


def small_swin(shifted: bool) -> Swin:
    """One stage of four blocks over 16 x 16 tokens, in windows of 4 x 4."""
    fields: dict[str, Any] = {"image_size": 64, "depths": (4,), "heads": (3,), "window": 4}
    with torch.random.fork_rng():
        torch.manual_seed(11)
        model = create("swin-t", shifted=shifted, **fields).double().eval()
    assert isinstance(model, Swin)
    return model


@styled
def reach() -> Figure:
    """How far one token is felt after one, two, three and four blocks."""
    from matplotlib.colors import ListedColormap

    figure = new_figure(5.2, 2.9)
    for line, shifted in enumerate((False, True)):
        for number, felt in enumerate(reached(small_swin(shifted), 6, 6)):
            axes = figure.add_subplot(2, 4, 4 * line + number + 1)
            axes.imshow(felt.numpy(), cmap=ListedColormap([LINE, BLUE]), vmin=0, vmax=1)
            axes.plot([6], [6], ".", color="w", markersize=5)
            axes.set_xticks([])
            axes.set_yticks([])
            for place in (3.5, 7.5, 11.5):
                axes.axhline(place, color="w", linewidth=0.6)
                axes.axvline(place, color="w", linewidth=0.6)
            if not line:
                axes.set_title(f"block {number + 1}", fontsize=9)
            if not number:
                axes.set_ylabel("shifted" if shifted else "not shifted", color=SOFT)
    return figure


@styled
def pyramid() -> Figure:
    """The maps of ViT-B/16 and of Swin-T at 224 pixels, with their widths."""
    from matplotlib.patches import Rectangle

    figure = new_figure(6.2, 2.4)
    axes = figure.add_subplot()
    x = 0.0
    for label, name, blocks in (
        ("ViT-B/16: one map", "vit-b/16", 1),
        ("Swin-T: a pyramid", "swin-t", 4),
    ):
        levels = create(name).levels((224, 224))[-blocks:]
        axes.text(x, -8, label, fontsize=9, fontweight="bold", color=INK, va="bottom")
        for channels, (height, width), _ in levels:
            colour = ORANGE if blocks == 1 else BLUE
            axes.add_patch(
                Rectangle((x, 0), width, height, facecolor="none", edgecolor=colour, linewidth=1.2)
            )
            for line in range(1, height):
                axes.plot([x, x + width], [line, line], color=colour, linewidth=0.25)
                axes.plot([x + line, x + line], [0, height], color=colour, linewidth=0.25)
            text = f"{height} x {width}\n{channels}"
            axes.text(x, height + 2, text, fontsize=7.5, color=SOFT, va="top")
            x += max(width, 16) + 7
        x = max(x, 62.0)
    axes.set_xlim(-1, x - 4)
    axes.set_ylim(74, -18)
    axes.set_aspect("equal")
    axes.set_axis_off()
    return figure
