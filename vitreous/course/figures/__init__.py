"""Figures of the course: `cNN.py` has those of a chapter, each a function that draws one.

Labels are English; CHINESE, in the same file, has them in Chinese, and pages put them in.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from vitreous.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figure_of(number: int, name: str) -> tuple[Callable[[], Figure], dict[str, str]]:
    """What draws a figure of a chapter, and its labels in Chinese."""
    module = importlib.import_module(f"vitreous.course.figures.c{number:02}")
    draw = getattr(module, name.replace("-", "_"), None)
    if draw is None:
        raise ConfigError(f"::figure {name}: figures/c{number:02}.py has no such function")
    return draw, module.CHINESE
