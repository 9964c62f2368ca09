"""The figure of token merging: agreement, accuracy and speed over how much is merged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vitreous.pages.figure import ACCENTS, DASHES, SOFT, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@styled
def merging_curve(rows: Sequence[Mapping[str, Any]], metric: str = "") -> Figure:
    """Of the fields of `vitreous.deploy.merging.Merged`, a row for each number of patches that
    every block merges: above the predictions, below the speed, with each point's factor."""
    rs = [row["merge"] for row in rows]
    figure = new_figure(5.4, 5.0)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    lines = {"same prediction as without merging": [100 * row["agreement"] for row in rows]}
    if all(row["score"] is not None for row in rows):
        lines[metric] = [100 * row["score"] for row in rows]
    for number, (name, values) in enumerate(lines.items()):
        look: dict[str, Any] = {"color": ACCENTS[number], "linestyle": DASHES[number]}
        above.plot(rs, values, marker="o", ms=4, lw=1.8, label=name, **look)
    above.set(ylabel="% of the images")
    above.legend(loc="lower left")
    speeds = [row["images_per_second"] for row in rows]
    below.plot(rs, speeds, color=ACCENTS[2], marker="o", ms=4, lw=1.8)
    for row in rows:
        place = (row["merge"], row["images_per_second"])
        text = f"{row['speed']:.2f}×"
        below.annotate(text, place, (0, 6), textcoords="offset points", ha="center", color=SOFT)
    below.set(ylabel="images per second", xlabel="patches merged in each block (r)", xticks=rs)
    below.set_ylim(0, 1.2 * max(speeds))
    for axes in (above, below):
        axes.grid(axis="y")
    return figure
