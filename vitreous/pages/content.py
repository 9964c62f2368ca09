"""What pages are made of. Tasks fill these in; templates turn them into HTML."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from vitreous.pages.colours import Colour
from vitreous.pages.pictures import data_url

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image


class Cell(NamedTuple):
    """One cell of a table."""

    text: str
    colour: Colour | None = None
    """Of a swatch before the text."""
    bar: float | None = None
    """From 0 to 1: the length of a bar below the text."""


class Table(NamedTuple):
    """A heading that ends in `>` is aligned to the right."""

    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]


class Picture(NamedTuple):
    """An image inside a page."""

    url: str
    alt: str
    pixelated: bool
    """Whether its pixels are to be seen: smoothing would blur a small image."""


def picture(image: Image, alt: str, *, exact: bool = False) -> Picture:
    return Picture(data_url(image, exact=exact), alt, max(image.size) <= 200)


class Number(NamedTuple):
    """One of the few that stand first on a page."""

    text: str
    note: str = ""
    """What it is to be read with."""


def measured(
    result: Mapping[str, Any],
    key: str,
    digits: int = 1,
    text: Callable[[float], str] | None = None,
) -> Number:
    """A metric with its confidence interval and the baselines beside it; in percent, if there is no
    other `text` for its values."""
    write = text or (lambda value: percent(value, digits))
    notes = []
    if limits := result.get("intervals", {}).get(key):
        low, high = (write(limit).removesuffix(" %") for limit in limits)
        notes.append(f"95 % interval: {low} to {high}")
    for name, other in result.get("baselines", {}).items():
        if other.get(key) is not None:
            notes.append(f"{name}: {write(other[key])}")
    return Number(write(result[key]), "\n".join(notes))


class CaptionedImage(NamedTuple):
    """One image of the data: pictures side by side, and a caption below them."""

    pictures: Sequence[Picture]
    id: str
    caption: str
    note: str = ""


@dataclass(frozen=True)
class Section:
    """A part of a page under its own heading."""

    title: str
    note: str = ""
    figures: Sequence[tuple[Figure, str]] = ()
    """Each with its caption."""
    table: Table | None = None
    legend: Mapping[str, Colour | None] | None = None
    """What the colours of `examples` stand for; None is hatched."""
    examples: Sequence[CaptionedImage] | None = None
    half: bool = False
    """Whether it may stand beside another one."""
    least: float = 19
    """Width of each figure at least, in rem; where there is more room, they stand side by side."""
    measured_on: str = ""
    """The split that its numbers are of, and how many images that has."""


def class_table(
    classes: Mapping[str, Mapping[str, Any]],
    columns: Mapping[str, str],
    score: str,
    colours: Mapping[str, Colour] | None = None,
) -> Table:
    """Metrics of each class, the hardest by `score` first; those without a score come last.

    `columns`: headings by the metrics' keys. The score has a bar.
    """

    def hardness(item: tuple[str, Mapping[str, Any]]) -> tuple[bool, float]:
        return item[1][score] is None, item[1][score] or 0.0

    def cell(key: str, value: Any) -> Cell:
        if value is None:
            return Cell("–")
        if isinstance(value, int):
            return Cell(f"{value:,}")
        return Cell(f"{value:.3f}", bar=value if key == score else None)

    rows = [
        (Cell(name, (colours or {}).get(name)), *(cell(key, row[key]) for key in columns))
        for name, row in sorted(classes.items(), key=hardness)
    ]
    return Table(("class", *(f"{heading}>" for heading in columns.values())), rows)


def percent(value: float | None, digits: int = 1) -> str:
    if value is None or not math.isfinite(value):
        return "–"
    return f"{100 * value:.{digits}f} %"
