"""A run whose model sees images of another size than it was trained with (ViT, section 3.2).

Everything else that opens a run opens this one as well: an engine exports it, and a predictor is
made of it. Learned positions are resampled as when weights are imported at that size; fixed ones
are computed for the new grid; a Swin pads its maps to whole windows.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from vitreous.config import pair, size_of
from vitreous.data.preprocess import Preprocess
from vitreous.errors import ConfigError
from vitreous.layers.resample import Grid
from vitreous.models.model import Model
from vitreous.run_folder import OpenedRun, RunConfig
from vitreous.weights.blank import without_values
from vitreous.weights.families import state_dict_of

MODE = "bicubic"


class ResizedRun(OpenedRun):
    """The same weights for images of another size."""

    def __init__(self, run: OpenedRun, size: tuple[int, int]) -> None:
        vars(self).update(vars(run))
        self.run = run
        blank = run.blank_model()
        own = pair("image_size", run.config.preprocess.image_size)
        sizes = f"{own[0]}x{own[1]} → {size[0]}x{size[1]}"
        self.config = replace(
            run.config,
            config={**run.config.config, "image_size": size},
            preprocess=_resized(run.config.preprocess, size),
        )
        try:
            with without_values():
                other = self.config.create()
            other.levels(size)
        except ConfigError as error:
            raise ConfigError(f"image_size = {size[0]}x{size[1]}: {error}") from None
        self.source = _grid_of_positions(blank)
        state = dict(blank.state_dict())
        done = state_dict_of(other).resample(other, state, MODE, self.source)
        for name, value in other.state_dict().items():
            if name in state and state[name].shape != value.shape:
                raise ConfigError(
                    f"image_size = {size[0]}x{size[1]}: {run.reference} was made for "
                    f"{own[0]}x{own[1]}, and {name} is of use for no other size: leave image_size "
                    "out"
                )
        self.done = (
            f"image size {sizes}: {_what_was_done(self.source, other, changed=bool(done.changed))}"
        )
        """In words, what becomes of positions."""

    @property
    def fit(self) -> dict[str, Any]:
        return {"resample": MODE, "source_grid": self.source}

    def stored_weights(self) -> Path | dict[str, Tensor]:
        return self.run.stored_weights()

    def blank_model(self, config: RunConfig | None = None) -> Model:
        """Its positions may be larger than the file that they are made of."""
        with without_values():
            return (config or self.config).create()


def at_size(run: OpenedRun, size: int | Sequence[int] | None) -> OpenedRun:
    """The run for images of this size, height and width or one number for both."""
    if size is None or size == ():
        return run
    both = (size,) if isinstance(size, int) else tuple(size)
    wanted = pair("image_size", size_of("image_size", both))
    same = wanted == pair("image_size", run.config.preprocess.image_size)
    return run if same else ResizedRun(run, wanted)


def _resized(preprocess: Preprocess, size: tuple[int, int]) -> Preprocess:
    """The limit of the longer side grows with the shorter one."""
    longest = preprocess.longest
    if longest is not None:
        factor = min(size) / min(pair("image_size", preprocess.image_size))
        longest = max(round(longest * factor), *size)
    return replace(copy.copy(preprocess), image_size=size, longest=longest)


def _grid_of_positions(model: Model) -> Grid | None:
    """The grid that learned positions are for."""
    position: Any = getattr(model.core, "position", None)
    return position.grid if getattr(position, "on_grid", ()) else None


def _what_was_done(source: Grid | None, model: Model, *, changed: bool) -> str:
    core = model.core
    kind = getattr(getattr(core.config, "position", None), "kind", None)
    grid = "{}x{}".format(*core.levels(core.own_size())[0].grid)
    if changed and source is not None:
        return f"positions resampled {source[0]}x{source[1]} → {grid}, {MODE}"
    if kind == "none":
        return f"a grid of {grid}, without positions"
    if kind is not None:
        return f"{kind} positions computed for {grid}"
    if core.attentions():
        return "positions inside windows stay, maps are padded to whole windows"
    return "convolutions, without positions"
