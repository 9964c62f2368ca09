"""Chapter 2: tables of sines, and how alike places are to the digits model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from vitreous.course.model import digits
from vitreous.explain.parameters import position_similarity
from vitreous.layers.sines import Sines1d, grid_sines
from vitreous.pages.figure import ACCENTS, SOFT, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHINESE = {
    "1-D table": "一维表",
    "place in the sequence": "序列中的位置",
    "channel": "通道",
    "alike in 1-D": "一维：相似度",
    "alike in 2-D": "二维：相似度",
    "column": "列",
    "row": "行",
    "column of the patch": "图块所在的列",
    "row of the patch": "图块所在的行",
}


@styled
def sines() -> Figure:
    """The table of Vaswani et al. for 14x14 patches, and what it finds alike on the grid."""
    layer = Sines1d("pairs")
    one = layer(torch.zeros(1, 196, 64), 0, (14, 14))[0]
    two = grid_sines(64, (14, 14))
    figure = new_figure(6, 2.5)
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.15, 1, 1))
    left.imshow(one.numpy(), cmap="RdBu_r", aspect="auto", vmin=-1, vmax=1)
    left.set(title="1-D table", xlabel="channel", ylabel="place in the sequence")
    for axes, table, title in ((middle, one, "alike in 1-D"), (right, two, "alike in 2-D")):
        table = torch.nn.functional.normalize(table, dim=1)
        alike = (table @ table[7 * 14 + 7]).reshape(14, 14)
        axes.imshow(alike.numpy(), cmap="Reds", vmin=0.2, vmax=1)
        axes.plot(7, 7, "o", ms=3, color=ACCENTS[0])
        axes.set(title=title, xlabel="column", ylabel="row", xticks=[], yticks=[])
    return figure


@styled
def similarity() -> Figure:
    """The paper's figure 7, centre, for the digits model."""
    alike = position_similarity(digits().model)
    assert alike is not None
    figure = new_figure(4, 4)
    for y in range(4):
        for x in range(4):
            axes = figure.add_subplot(4, 4, 4 * y + x + 1)
            axes.imshow(alike[y, x].numpy(), cmap="RdBu_r", vmin=-1, vmax=1)
            axes.plot(x, y, "o", ms=3, color="white")
            axes.set(xticks=[], yticks=[])
            if y == 3:
                axes.set_xlabel(str(x + 1))
            if x == 0:
                axes.set_ylabel(str(y + 1), rotation=0, labelpad=8)
    figure.supxlabel("column of the patch", fontsize=9, color=SOFT)
    figure.supylabel("row of the patch", fontsize=9, color=SOFT)
    return figure
