"""Small charts as SVG and HTML: no library, no script, readable without colour vision."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

from torch import Tensor

from vitreous.pages.pictures import as_picture, data_url

STROKES = ("", "6 4", "2 3")
"""Lines differ by their dashes, not by colour alone."""
DIGIT = 6.4
"""How wide a digit of a tick's label is, in the page's font of 11 pixels."""


def line_chart(
    title: str,
    lines: dict[str, list[tuple[float, float]]],
    across: str,
    up: str,
    width: int = 460,
    height: int = 250,
    *,
    inks: Sequence[tuple[int, int, int]] = (),
    ends: tuple[float, float] | None = None,
) -> str:
    """Lines over a common horizontal axis from 0, with a legend and grid.

    across, up: what the horizontal and the vertical axis show. `inks` are colours that are
    explained elsewhere: there is no legend then. `ends`: what the vertical axis has at least.
    """
    points = [point for line in lines.values() for point in line if math.isfinite(point[1])]
    if not points:
        return ""
    x_ticks = ticks(0, max(max(x for x, _ in points), 1e-9))
    heights = [y for _, y in points] + list(ends or ())
    y_ticks = ticks(min(heights), max(heights))
    x_labels, y_labels = tick_labels(x_ticks), tick_labels(y_ticks)
    x_end, low, high = x_ticks[-1], y_ticks[0], y_ticks[-1]
    left = round(28 + DIGIT * max(map(len, y_labels)))
    right, top, bottom = 16, 30, 44

    def place(x: float, y: float) -> str:
        across = left + (width - left - right) * x / x_end
        down = top + (height - top - bottom) * (high - y) / (high - low)
        return f"{across:.1f},{down:.1f}"

    parts = [f'<text x="{left}" y="14" class="title">{html.escape(title)}</text>']
    for value, label in zip(y_ticks, y_labels, strict=True):
        _, y = place(0, value).split(",")
        parts.append(f'<line x1="{left}" x2="{width - right}" y1="{y}" y2="{y}" class="grid"/>')
        parts.append(f'<text x="{left - 6}" y="{y}" class="tick end">{label}</text>')
    for value, label in zip(x_ticks, x_labels, strict=True):
        x, _ = place(value, low).split(",")
        parts.append(f'<text x="{x}" y="{height - bottom + 16}" class="tick mid">{label}</text>')
    middle = left + (width - left - right) / 2, top + (height - top - bottom) / 2
    parts.append(
        f'<text x="{middle[0]:.1f}" y="{height - 8}" class="axis mid">{html.escape(across)}</text>'
        f'<text transform="translate(13 {middle[1]:.1f}) rotate(-90)" class="axis mid">'
        f"{html.escape(up)}</text>"
    )
    room = [round(44 + DIGIT * len(name)) for name in lines]  # in the legend
    for number, (name, line) in enumerate(lines.items()):
        places = [place(x, y) for x, y in line if math.isfinite(y)]
        dash = STROKES[number % len(STROKES)]
        ink = f' style="stroke:rgb{inks[number]}"' if inks else ""
        parts.append(
            f'<polyline points="{" ".join(places)}" class="line l{number}" '
            f'stroke-dasharray="{dash}"{ink}/>'
        )
        if len(places) == 1:  # a line needs two
            x, y = places[0].split(",")
            parts.append(f'<circle cx="{x}" cy="{y}" r="3.5" class="dot l{number}"/>')
        if inks:
            continue
        start = width - right - sum(room[number:])
        parts.append(
            f'<line x1="{start}" x2="{start + 22}" y1="10" y2="10" class="line l{number}" '
            f'stroke-dasharray="{dash}"/>'
            f'<text x="{start + 27}" y="14" class="tick">{html.escape(name)}</text>'
        )
    return f'<svg viewBox="0 0 {width} {height}" role="img">{"".join(parts)}</svg>'


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """At most so many even numbers in even steps, from at or below `low` to at or above `high`."""
    if high - low <= 1e-6 * max(abs(low), abs(high)):
        room = abs(high) / 10 or 1.0
        low, high = low - room, high + room
    size = 10.0 ** math.floor(math.log10((high - low) / most))
    for step in (size * factor for factor in (1, 2, 5, 10, 20)):
        # the small share forgives what rounding adds to a number that is a tick itself
        first, last = math.floor(low / step + 1e-6), math.ceil(high / step - 1e-6)
        if last - first < most:
            break
    return [number * step for number in range(first, last + 1)]


def tick_labels(values: Sequence[float]) -> list[str]:
    """The numbers with as many digits as tell them apart, and all with the same."""
    step = abs(values[1] - values[0])
    largest = max(map(abs, values))
    if 1e-3 <= largest < 1e5:
        decimals = max(0, -math.floor(math.log10(step) + 1e-6))
        return [f"{value:.{decimals}f}" for value in values]
    decimals = max(0, math.floor(math.log10(largest)) - math.floor(math.log10(step) + 1e-6))
    return [_with_power(value, decimals) if value else "0" for value in values]


def _with_power(value: float, decimals: int) -> str:
    """2.5e-6: as Python writes it, but without a zero before the power."""
    digits, power = f"{value:.{decimals}e}".split("e")
    return f"{digits}e{int(power)}"


def short(name: str, most: int = 20) -> str:
    """A name with its middle left out where it is long: the ends are what tells names apart."""
    if len(name) <= most:
        return name
    end = most // 3
    return f"{name[: most - end - 1]}…{name[-end:]}"


def percent(share: float) -> str:
    """For a narrow cell: whole percent, a dot for less than half of one, nothing for nothing."""
    if not share:
        return ""
    return f"{100 * share:.0f}" if share >= 0.005 else "·"


def confusion_table(
    names: Sequence[str],
    counts: Sequence[Sequence[int]],
    limit: int = 40,
    *,
    shares: bool = False,
) -> str:
    """Truth in rows, prediction in columns; each cell shows its number, and shade by its share.

    With `shares` it shows the share itself, in percent of the truth. Of more classes than `limit`
    only what is most often taken for another one is listed.
    """
    totals = [max(sum(row), 1) for row in counts]
    if len(names) > limit:
        pairs = [
            (counts[i][j] / totals[i] if shares else counts[i][j], names[i], names[j])
            for i in range(len(names))
            for j in range(len(names))
            if i != j and counts[i][j]
        ]
        rows = "".join(
            f"<tr><td>{html.escape(a)}</td><td>{html.escape(b)}</td>"
            f"<td class=num>{f'{100 * n:.1f} %' if shares else n}</td></tr>"
            for n, a, b in sorted(pairs, reverse=True)[:30]
        )
        return (
            "<table><tr><th>truth</th><th>taken for</th>"
            f"<th class=num>{'share' if shares else 'times'}</th></tr>{rows}</table>"
        )
    head = "".join(
        f'<th class="tilt" title="{html.escape(name)}"><span>{html.escape(short(name))}</span></th>'
        for name in names
    )
    body = []
    for name, row, total in zip(names, counts, totals, strict=True):
        cells = "".join(
            f'<td class="cell" style="--share:{100 * n / total:.0f}%">'
            f"{percent(n / total) if shares else n or ''}</td>"
            for n in row
        )
        body.append(
            f'<tr><th title="{html.escape(name)}">{html.escape(short(name))}</th>{cells}</tr>'
        )
    return f'<table class="confusion"><tr><th></th>{head}</tr>{"".join(body)}</table>'


def swatch(colour: tuple[int, int, int]) -> str:
    """The colour that stands for a class, before its name."""
    return f'<i class="swatch" style="background:rgb{colour}"></i>'


def picture(image: Tensor, side: int = 112) -> str:
    """(c, h, w) in 0..1 as an <img> that carries its data."""
    shown = as_picture(image)
    if max(shown.size) > 2 * side:
        shown.thumbnail((2 * side, 2 * side))
    return f'<img src="{data_url(shown)}" width="{side}" alt="">'
