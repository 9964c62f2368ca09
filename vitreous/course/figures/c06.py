"""Chapter 6: where the operations of a ViT are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vitreous.pages.figure import ACCENTS, INK, LINE, SOFT, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHINESE = {
    "ViT-B/16: part of the multiplications, %": "ViT-B/16：占乘法次数的百分比",
    "MLP": "MLP",
    "q, k, v and W_O": "q、k、v 和 W_O",
    "between tokens": "标记之间",
    "224 px": "224 像素",
    "384 px": "384 像素",
    "512 px": "512 像素",
    "1024 px": "1024 像素",
    "2048 px": "2048 像素",
}
SIDES = (224, 384, 512, 1024, 2048)


@styled
def shares() -> Figure:
    """The blocks of ViT-B/16 with larger and larger images."""
    figure = new_figure(5.2, 2.7)
    axes = figure.add_subplot()
    names = ("MLP", "q, k, v and W_O", "between tokens")
    for row, side in enumerate(SIDES):
        parts = _parts((side // 16) ** 2 + 1, 768, 3072)
        left = 0.0
        for name, part, colour in zip(names, parts, ACCENTS, strict=True):
            width = 100 * part / sum(parts)
            label = name if row == 0 else None
            axes.barh(row, width, left=left, height=0.7, color=colour, label=label, alpha=0.85)
            if width > 8:
                middle = left + width / 2
                axes.text(middle, row, f"{width:.0f}", ha="center", va="center", color="white")
            left += width
    axes.set_yticks(range(len(SIDES)), [f"{side} px" for side in SIDES], color=INK)
    axes.invert_yaxis()
    axes.set(xlim=(0, 100), xlabel="ViT-B/16: part of the multiplications, %")
    axes.xaxis.label.set_color(SOFT)
    axes.grid(axis="x", color=LINE)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    return figure


def _parts(n: int, d: int, m: int) -> tuple[int, int, int]:
    """Multiplications of a block: its MLP, the layers of its attention, tokens with tokens."""
    return 2 * n * d * m, 4 * n * d * d, 2 * n * n * d
