"""The figure of a benchmark: how many images per second each way computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vitreous.deploy.benchmark import Benchmark
from vitreous.deploy.candidates import ENGINES
from vitreous.pages.figure import ACCENTS, INK, SOFT, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@styled
def benchmark_figure(found: Benchmark) -> Figure:
    """A panel for each batch, a bar for each way, at its best; a thin line ends at the median. Ours
    have one colour, other libraries' another."""
    batches = sorted({each.batch for each in found.timings})
    ways = len({each.way for each in found.timings})
    figure = new_figure(7.2, len(batches) * (0.7 + 0.3 * ways) + 0.4)
    height, width = found.image_size
    threads = f"{found.threads} thread{'s' if found.threads != 1 else ''}"
    figure.suptitle(f"{found.model}, {height}x{width}, {threads}", x=0.01, ha="left", fontsize=11)
    for axes, batch in zip(
        figure.subplots(len(batches), squeeze=False)[:, 0], batches, strict=True
    ):
        _panel(axes, found, batch)
    return figure


def _panel(axes: Axes, found: Benchmark, batch: int) -> None:
    rows = [each for each in found.timings if each.batch == batch]
    speeds = [1000 / each.best for each in rows]
    ours = [each.way.split("+")[0] in ENGINES for each in rows]
    colours = [ACCENTS[0] if own else ACCENTS[1] for own in ours]
    places = range(len(rows))
    axes.barh(places, speeds, height=0.7, color=colours, alpha=0.75)
    for place, each, speed in zip(places, rows, speeds, strict=True):
        axes.plot([1000 / each.median, speed], [place, place], color=INK, lw=1)
        memory = "" if each.memory is None else f", {each.memory / 1e6:,.0f} MB"
        text = f"{each.best:.1f} ms{memory}, {each.agreement:.0%} same answers"
        axes.annotate(
            text,
            (speed, place),
            (4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=SOFT,
        )
    axes.set_yticks(places, [each.way for each in rows])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.65 * max(speeds))  # room for the text
    axes.set_title(f"batches of {batch}")
    axes.set_xlabel("images per second at best; a line to the median")
    axes.grid(axis="x")
