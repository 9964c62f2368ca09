"""What the state dicts of a family show and need: the base of all families."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from vitreous.errors import Word, advice
from vitreous.layers.resample import Grid, Resampling, State
from vitreous.models.model import Model

Shapes = Mapping[str, tuple[int, ...]]
"""Of a state dict, by our names."""
SOURCE_GRID = (Word("height"), Word("width"))
"""What to give where shapes do not show it."""


def unclear(what: str, alone: str, given: str, source: Grid | None) -> str:
    """Why rows show no grid: `alone` where no `source` grid is given, or else `given`."""
    if source is None:
        return f"{what} {alone}{advice(': pass ', source_grid=SOURCE_GRID)}"
    return f"{what} {given} {source[0]}x{source[1]}"


def numbered(shapes: Shapes, owner: str) -> int:
    """How many numbered parts `owner` has in a state dict: "blocks" of "blocks.0.…", …"""
    numbers = [
        int(name.split(".", 1)[0])
        for name in (each.removeprefix(f"{owner}.") for each in shapes if each.startswith(owner))
        if name.split(".", 1)[0].isdigit()
    ]
    return max(numbers, default=-1) + 1


def factors(number: int) -> list[Grid]:
    """The grids of this many places: a square alone, else those that are most nearly one, high and
    wide."""
    side = next((s for s in range(math.isqrt(number), 0, -1) if number % s == 0), 0)
    other = number // side if side else 0
    return [(side, other), (other, side)][: 1 if side == other else 2] if side else []


class StateDict:
    """The parameters of a family's models, by our names."""

    image_text = False
    """Whether the models were trained with texts, so that weights end in a projection to their
    space."""
    found_if_asked = False
    """Whether a file of such a model is taken for one only where that is asked for, and else for
    the model inside."""
    unseen: Mapping[str, str] = {}
    """Config fields that no weights show, and what other libraries take for the same weights."""
    behind_maps: tuple[str, ...] = ("head.*",)
    """Patterns of the parameters behind its maps: a model around this one has none of them."""

    def input_weight(self, model: Model) -> str:
        """The parameter that sees the image's channels."""
        return "patch.weight"

    def input_norms(self, model: Model) -> tuple[str, ...]:
        """Parameters with a value for each pixel of a patch and each channel."""
        return ()

    def classwise(self, model: Model) -> tuple[str, ...]:
        """Patterns of the parameters that belong to the classes: others come with other classes."""
        return ("head.*",)

    def fields_of(self, shapes: Shapes, axes: Mapping[str, int]) -> list[dict[str, Any]]:
        """The config fields that names and shapes show: one dict for each way to read them, the
        likeliest first; none if they cannot be this paper's.

        axes: lengths that shapes of ours do not show, but another library's do, such as `heads`.
        What does not change names or shapes is left out (see `weights/infer.py`); fields that are
        only as usual are listed under "guessed".
        """
        return []

    def size_for(self, config: Any, grid: Grid) -> tuple[int, int] | None:
        """The image size for which a model with this config has so many tokens; None: no such."""
        return None

    def resample(
        self, model: Model, state: State, mode: str | None, source: Grid | None
    ) -> Resampling:
        """Bring what depends on the resolution, in a state dict, to the model's; in place.

        mode: bicubic or bilinear; None refuses what does not fit. source: the grid (or window) that
        the state was made for, where its shapes do not tell.
        """
        return Resampling()

    def upgraded(self, model: Model, state: State) -> State:
        """A state dict of an older version of the model, in today's names and layouts."""
        return state

    def with_rows(self, model: Model, state: State, rows: str) -> State:
        """A state dict whose position table has a row for every token before the patches ("all")
        or for none of them ("patches"), as some libraries have it; the outputs stay the same."""
        return state

    def derived(self, model: Model) -> dict[str, Tensor]:
        """What other libraries keep in their files although it follows from the sizes, by name."""
        return {}
