"""Making weights fit a model with another grid of patches, other windows or other channels."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from vitreous.layers.position import Grid, Learned1d, Learned2d, Position, Relative
from vitreous.models.model import Model
from vitreous.models.swin import WindowAttention
from vitreous.weights.rules.report import ImportReport, Misfit

RESAMPLE = "pass resample='bicubic' (--resample bicubic)"


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
        for name, parameter in module.named_parameters():
            full = f"{owner}.{name}"
            if name == "prefix_bias" or full not in values:
                continue
            if values[full].ndim != parameter.ndim:
                continue  # its shape will be refused
            if isinstance(module, Learned1d):
                source = _fit_rows(model, module, full, values, source_grid, report, misfit)
            else:
                source = _grid_of(module, name, values[full])
            if source is None or source == module.grid:
                continue
            sizes = _change(source, module.grid)
            if resample is None:
                misfit.misshaped[full] = f"positions change from {sizes}: {RESAMPLE}"
                continue
            values[full] = module.resample(name, values[full], source, resample)
            report.resampled[full] = f"{sizes}, {resample}"


def fit_windows(
    model: Model,
    values: dict[str, Tensor],
    source_window: Grid | None,
    resample: str | None,
    report: ImportReport,
    misfit: Misfit,
) -> None:
    """Bring the bias tables among `values` to the model's windows, if `resample` says how."""
    for owner, module in model.named_modules():
        full = f"{owner}.bias_table"
        if not isinstance(module, WindowAttention) or full not in values:
            continue
        table = values[full]
        if table.ndim != 2:
            continue  # its shape will be refused
        source = _window_of(table.shape[0], module.window, source_window)
        if source is None:
            misfit.misshaped[full] = f"{table.shape[0]} offsets " + (
                "are not those of a square window: pass source_grid=(height, width)"
                if source_window is None
                else f"are not those of a window of {source_window[0]}x{source_window[1]}"
            )
            continue
        if source == module.window:
            continue
        sizes = _change(source, module.window)
        if resample is None:
            misfit.misshaped[full] = f"windows change from {sizes}: {RESAMPLE}"
            continue
        values[full] = module.resample(table, source, resample)
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
        misfit.misshaped[name] = (
            f"{have} channels, the model has {want}: pass adapt_channels=True (--adapt-channels)"
        )
        return
    change = f"{have} to {want} channels"
    values[name] = adapt_channels(values[name], want)
    report.adapted[name] = change
    for part in ("patch.norm_in.weight", "patch.norm_in.bias"):  # a value per pixel and channel
        if part in values:
            by_channel = values[part].reshape(1, have, -1, 1)
            # Where filters share a picture, each sees it normalised as before: no scaling here.
            kept = adapt_channels(by_channel, want) * (want / have)
            values[part] = kept.flatten()
            report.adapted[part] = change


def adapt_channels(weight: Tensor, channels: int) -> Tensor:
    """(out, c, kh, kw) -> (out, channels, kh, kw) with about the same response.

    More channels repeat the filters in turn, scaled by c / channels, so that the same picture in
    every channel gives about what it gave before (RGB to N as timm does it). Fewer channels take
    the mean of the filters that repeating would have made alike, scaled the same way: there and
    back changes nothing, and RGB to gray is the sum.
    """
    have = weight.shape[1]
    if channels >= have:
        index = torch.arange(channels, device=weight.device) % have
        return weight[:, index] * (have / channels)
    alike = [weight[:, first::channels].mean(dim=1) for first in range(channels)]
    return torch.stack(alike, dim=1) * (have / channels)


class Rows(NamedTuple):
    """How the rows of a position table are divided."""

    prefix: int
    grid: Grid


def divide_rows(
    count: int, *, tokens: int, registers: int, target: Grid, source: Grid | None
) -> Rows | None:
    """Which of `count` rows belong to tokens before the patches, and what grid the others form.

    Libraries give a row to the class and distillation token, or also to registers, or to none of
    them. Without a `source` grid the rest must be as many as the target's, or a square. None when
    there is no such division, or more than one.
    """
    readings: set[Rows] = set()
    for prefix in {tokens, tokens + registers, 0}:
        rest = count - prefix
        side = math.isqrt(max(rest, 0))
        for grid in (source,) if source is not None else (target, (side, side)):
            if rest > 0 and rest == grid[0] * grid[1]:
                readings.add(Rows(prefix, grid))
    usual = Rows(tokens, target)
    if usual in readings:
        return usual
    return readings.pop() if len(readings) == 1 else None


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
    rows = divide_rows(
        table.shape[0],
        tokens=module.rows,
        registers=model.core.config.registers,
        target=module.grid,
        source=source_grid,
    )
    if rows is None:
        misfit.misshaped[full] = (
            f"{table.shape[0]} rows, {module.rows} of them for tokens before the patches, "
            + (
                "can be read in no way or in several: pass source_grid=(height, width)"
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
        values[full] = torch.cat((table[: module.rows], table[rows.prefix :]))
        if registers in values:
            values[registers] = values[registers] + table[module.rows : rows.prefix]
            report.notes.append(f"{full}: the registers' rows were added to {registers}")
    return rows.grid


def _grid_of(module: Position, name: str, value: Tensor) -> Grid:
    """The grid that a parameter of a two-dimensional encoding was made for, by its shape."""
    if isinstance(module, Relative):
        return (value.shape[-2] + 1) // 2, (value.shape[-1] + 1) // 2
    assert isinstance(module, Learned2d)
    gh, gw = module.grid
    return (value.shape[0], gw) if name == "y" else (gh, value.shape[0])


def _window_of(offsets: int, target: Grid, source: Grid | None) -> Grid | None:
    """The window that has so many offsets: the source's own, else the target's or a square one."""
    half = (math.isqrt(offsets) + 1) // 2
    for window in (source,) if source is not None else (target, (half, half)):
        if offsets == (2 * window[0] - 1) * (2 * window[1] - 1):
            return window
    return None


def _change(source: Grid, target: Grid) -> str:
    return f"{source[0]}x{source[1]} to {target[0]}x{target[1]}"
