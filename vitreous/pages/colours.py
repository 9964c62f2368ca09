"""The colours of classes, the same in every picture, page and figure."""

from __future__ import annotations

import colorsys
import re
from collections.abc import Sequence
from functools import lru_cache

from vitreous.labels import External

Colour = tuple[int, int, int]

# Told apart by hue and by lightness; no gray, which is for what is ignored.
_FIRST = (
    *("#4363d8", "#f58231", "#3cb44b", "#e6194b", "#911eb4", "#42d4f4", "#ffe119", "#f032e6"),
    *("#9a6324", "#bfef45", "#469990", "#fabed4", "#800000", "#aaffc3", "#808000", "#dcbeff"),
    *("#000075", "#ffd8b1", "#fffac8"),
)


@lru_cache(maxsize=8)
def colours_of(ids: tuple[External, ...]) -> tuple[Colour, ...]:
    """A colour for each class: the data's own where its masks are in colour, or else ours."""
    if _are_colours(ids):
        return tuple(_parsed(str(id)) for id in ids)
    found = [_parsed(text) for text in _FIRST[: len(ids)]]
    number = 0
    while len(found) < len(ids):  # hues that are far apart (the golden ratio), in turn darker
        hue, value = number * 0.618034 % 1, (0.95, 0.7, 0.5)[number % 3]
        red, green, blue = colorsys.hsv_to_rgb(hue, (0.85, 0.55)[number % 2], value)
        colour = (round(255 * red), round(255 * green), round(255 * blue))
        number += 1
        if colour not in found:
            found.append(colour)
    return tuple(found)


def class_colours(names: Sequence[str], ids: Sequence[External]) -> dict[str, Colour]:
    return dict(zip(names, colours_of(tuple(ids)), strict=True))


def as_hex(colour: Colour) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)


def ink_on(colour: Colour) -> str:
    """Black or white, whichever is read better on the colour."""
    red, green, blue = colour
    return "#000000" if 77 * red + 150 * green + 29 * blue > 128 * 256 else "#ffffff"


def _are_colours(ids: Sequence[External]) -> bool:
    return all(isinstance(id, str) and re.fullmatch("#[0-9a-fA-F]{6}", id) for id in ids)


def _parsed(text: str) -> Colour:
    return int(text[1:3], 16), int(text[3:5], 16), int(text[5:7], 16)
