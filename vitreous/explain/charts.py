"""Small charts as SVG and HTML: no library, no script, readable without colour vision."""

from __future__ import annotations

import base64
import html
import io
import math
from collections.abc import Sequence

import torch
from torch import Tensor

STROKES = ("", "6 4", "2 3")
"""Lines differ by their dashes, not by colour alone."""


def line_chart(
    title: str, lines: dict[str, list[tuple[float, float]]], width: int = 460, height: int = 240
) -> str:
    """Lines over a common horizontal axis (epochs), with a legend and grid."""
    points = [point for line in lines.values() for point in line if math.isfinite(point[1])]
    if not points:
        return ""
    left, right, top, bottom = 52, 12, 30, 28
    x_end = max(max(x for x, _ in points), 1e-9)
    low, high = min(y for _, y in points), max(y for _, y in points)
    low, high = (low - 0.05, high + 0.05) if high - low < 1e-9 else (low, high)

    def place(x: float, y: float) -> str:
        across = left + (width - left - right) * x / x_end
        down = top + (height - top - bottom) * (high - y) / (high - low)
        return f"{across:.1f},{down:.1f}"

    parts = [f'<text x="{left}" y="14" class="title">{html.escape(title)}</text>']
    for tick in range(5):
        value = low + (high - low) * tick / 4
        _, y = place(0, value).split(",")
        parts.append(f'<line x1="{left}" x2="{width - right}" y1="{y}" y2="{y}" class="grid"/>')
        parts.append(f'<text x="{left - 6}" y="{y}" class="tick end">{value:.2g}</text>')
    for tick in range(5):
        value = x_end * tick / 4
        x = left + (width - left - right) * tick / 4
        parts.append(f'<text x="{x:.1f}" y="{height - 8}" class="tick mid">{value:.3g}</text>')
    for number, (name, line) in enumerate(lines.items()):
        path = " ".join(place(x, y) for x, y in line if math.isfinite(y))
        dash = STROKES[number % len(STROKES)]
        parts.append(
            f'<polyline points="{path}" class="line l{number}" stroke-dasharray="{dash}"/>'
        )
        x = left + 150 + 110 * number
        parts.append(
            f'<line x1="{x}" x2="{x + 22}" y1="10" y2="10" class="line l{number}" '
            f'stroke-dasharray="{dash}"/>'
            f'<text x="{x + 27}" y="14" class="tick">{html.escape(name)}</text>'
        )
    return f'<svg viewBox="0 0 {width} {height}" role="img">{"".join(parts)}</svg>'


def confusion_table(names: Sequence[str], counts: Sequence[Sequence[int]], limit: int = 40) -> str:
    """Truth in rows, prediction in columns; each cell shows its number, and shade by its share."""
    if len(names) > limit:
        pairs = [
            (counts[i][j], names[i], names[j])
            for i in range(len(names))
            for j in range(len(names))
            if i != j and counts[i][j]
        ]
        rows = "".join(
            f"<tr><td>{html.escape(a)}</td><td>{html.escape(b)}</td><td class=num>{n}</td></tr>"
            for n, a, b in sorted(pairs, reverse=True)[:30]
        )
        return (
            "<table><tr><th>truth</th><th>taken for</th><th class=num>times</th></tr>"
            f"{rows}</table>"
        )
    head = "".join(f'<th class="tilt"><span>{html.escape(name)}</span></th>' for name in names)
    body = []
    for name, row in zip(names, counts, strict=True):
        total = max(sum(row), 1)
        cells = "".join(
            f'<td class="cell" style="--share:{100 * n / total:.0f}%">{n or ""}</td>' for n in row
        )
        body.append(f"<tr><th>{html.escape(name)}</th>{cells}</tr>")
    return f'<table class="confusion"><tr><th></th>{head}</tr>{"".join(body)}</table>'


def picture(image: Tensor, side: int = 112) -> str:
    """(c, h, w) in 0..1 as an <img> that carries its data."""
    from PIL import Image

    shown = image if image.shape[0] in (1, 3) else image[:1]
    array = (shown.clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    pil = Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)
    if max(pil.size) > 2 * side:
        pil.thumbnail((2 * side, 2 * side))
    buffer = io.BytesIO()
    pil.save(buffer, "PNG" if max(pil.size) <= 64 else "WEBP")
    kind = "png" if max(pil.size) <= 64 else "webp"
    data = base64.b64encode(buffer.getvalue()).decode()
    return f'<img src="data:image/{kind};base64,{data}" width="{side}" alt="">'
