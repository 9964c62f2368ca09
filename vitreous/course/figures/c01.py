"""Chapter 1: what the patch embedding looks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vitreous.course.model import digits
from vitreous.pages.figure import SOFT, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHINESE = {
    "each a column of E; blue negative, red positive": "每一个是 E 的一列；蓝色为负，红色为正"
}


@styled
def filters() -> Figure:
    """All 48 filters of the digits model, the strongest first."""
    weight = digits().model.get_parameter("patch.weight").detach()[:, 0]  # (d, p, p)
    order = weight.flatten(1).norm(dim=1).argsort(descending=True)
    figure = new_figure(5.2, 2.2)
    most = float(weight.abs().max())
    for place, number in enumerate(order.tolist()):
        axes = figure.add_subplot(4, 12, place + 1)
        axes.imshow(weight[number].numpy(), cmap="RdBu_r", vmin=-most, vmax=most)
        axes.set_axis_off()
    figure.supxlabel("each a column of E; blue negative, red positive", fontsize=9, color=SOFT)
    return figure
