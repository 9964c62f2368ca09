"""Making weights fit a model that has another grid of patches, or another number of channels."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from vitreous.layers.position import Grid, Learned1d, Learned2d, Position, Relative
from vitreous.models.model import Model
from vitreous.weights.report import ImportReport, Misfit


def fit_positions(
    model: Model,
    values: dict[str, Tensor],
    source_grid: Grid | None,
    resample: str | None,
    report: ImportReport,
    misfit: Misfit,
) -> None:
    """Bring the position parameters among `values` to the model's grid, if `resample` says how."""
    for owner, module in model.named_modules():
        if not isinstance(module, Learned1d | Learned2d | Relative):
            continue
        for name, _ in module.named_parameters():
            full = f"{owner}.{name}"
            if full not in values or name == "prefix_bias":
                continue
            if isinstance(module, Learned1d):
                source = _fit_rows(model, module, full, values, source_grid, report, misfit)
            else:
                source = _grid_of(module, name, values[full])
            if source is None or source == module.grid:
                continue
            sizes = f"{source[0]}x{source[1]} to {module.grid[0]}x{module.grid[1]}"
            if resample is None:
                misfit.misshaped[full] = f"positions change from {sizes}: pass resample='bicubic'"
                continue
            values[full] = module.resample(name, values[full], source, resample)
            report.resampled[full] = f"{sizes}, {resample}"


def fit_input(
    model: Model,
    values: dict[str, Tensor],
    allowed: bool,
    report: ImportReport,
    misfit: Misfit,
) -> None:
    """Bring the first layer to the model's number of channels, if allowed."""
    name = model.input_weight
    if name not in values or values[name].ndim != 4:
        return
    have, want = values[name].shape[1], model.config.channels
    if have == want:
        return
    if not allowed:
        misfit.misshaped[name] = f"{have} channels, the model has {want}: pass adapt_channels=True"
        return
    values[name] = adapt_channels(values[name], want)
    report.adapted[name] = f"{have} to {want} channels"


def adapt_channels(weight: Tensor, channels: int) -> Tensor:
    """(out, c, kh, kw) -> (out, channels, kh, kw) with about the same response.

    More channels repeat the filters in turn, scaled by c / channels, so that the same picture in
    every channel gives what it gave before (RGB to N as timm does it). Fewer channels add up the
    filters that repeating would have spread, so that 3 to 6 and back changes nothing.
    """
    have = weight.shape[1]
    if channels >= have:
        index = torch.arange(channels, device=weight.device) % have
        return weight[:, index] * (have / channels)
    folded = weight.new_zeros(weight.shape[0], channels, *weight.shape[2:])
    index = torch.arange(have, device=weight.device) % channels
    return folded.index_add_(1, index, weight)


class Rows(NamedTuple):
    """How the rows of a position table are divided."""

    prefix: int
    grid: Grid


def divide_rows(
    count: int, *, tokens: int, registers: int, target: Grid, source: Grid | None
) -> Rows | None:
    """Which of `count` rows belong to tokens before the patches, and what grid the others form.

    Libraries give a row to the class and distillation token, or also to registers, or to none of
    them. Without a `source` grid the rest must be as many as the target's, or a square.
    """
    prefixes = dict.fromkeys((tokens, tokens + registers, 0))
    rests = {prefix: count - prefix for prefix in prefixes if count > prefix}
    grids = [source] if source is not None else [target]
    for prefix, rest in rests.items():
        if rest == grids[0][0] * grids[0][1]:
            return Rows(prefix, grids[0])
    if source is None:
        for prefix, rest in rests.items():
            side = math.isqrt(rest)
            if side * side == rest:
                return Rows(prefix, (side, side))
    return None


def _fit_rows(
    model: Model,
    module: Learned1d,
    full: str,
    values: dict[str, Tensor],
    source_grid: Grid | None,
    report: ImportReport,
    misfit: Misfit,
) -> Grid | None:
    """Give a table as many rows before the patches as ours has; return the grid of the others."""
    table = values[full]
    if table.ndim != 2:
        return None  # its shape will be refused
    rows = divide_rows(
        table.shape[0],
        tokens=module.rows,
        registers=model.config.registers,
        target=module.grid,
        source=source_grid,
    )
    if rows is None:
        misfit.misshaped[full] = (
            f"{table.shape[0]} rows, {module.rows} of them for tokens before the patches, "
            + (
                "are not a square of patches: pass source_grid=(height, width)"
                if source_grid is None
                else f"do not make a grid of {source_grid[0]}x{source_grid[1]}"
            )
        )
        return None
    if rows.prefix < module.rows:
        values[full] = torch.cat((table.new_zeros(module.rows, table.shape[1]), table))
        report.notes.append(f"{full}: without rows for tokens before the patches; they are zero")
    elif rows.prefix > module.rows:
        # Rows for registers: a register plus its row is a register.
        registers = full.removesuffix("position.table") + "prefix.registers"
        if registers in values:
            values[registers] = values[registers] + table[module.rows : rows.prefix]
        values[full] = torch.cat((table[: module.rows], table[rows.prefix :]))
        report.notes.append(f"{full}: the registers' rows were added to {registers}")
    return rows.grid


def _grid_of(module: Position, name: str, value: Tensor) -> Grid:
    """The grid that a parameter of a two-dimensional encoding was made for, by its shape."""
    if isinstance(module, Relative):
        return (value.shape[-2] + 1) // 2, (value.shape[-1] + 1) // 2
    assert isinstance(module, Learned2d)
    gh, gw = module.grid
    return (value.shape[0], gw) if name == "y" else (gh, value.shape[0])
