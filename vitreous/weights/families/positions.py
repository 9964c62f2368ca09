"""Positions in state dicts: for which grid they are, and how they become those of another."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vitreous.layers.grid_positions import Learned2d, Relative
from vitreous.layers.position import Learned1d, Position
from vitreous.layers.resample import Grid, Resampling, State
from vitreous.models.vit import ViTConfig
from vitreous.weights.families.state_dict import unclear


def resample_positions(
    position: Position, config: ViTConfig, state: State, mode: str | None, source: Grid | None
) -> Resampling:
    """See `StateDict.resample`."""
    done = Resampling()
    for name in position.on_grid:
        key = f"position.{name}"
        if key not in state or state[key].shape[1:] != position.get_parameter(name).shape[1:]:
            continue  # import refuses it for its shape
        if isinstance(position, Learned1d):
            grid = _fit_rows(position, config, state, key, source, done)
        else:
            grid = grid_of(position, name, state[key], source)
            if grid is None:
                count, those = f"{len(state[key])} rows", "are not the offsets of"
                square, other = f"{those} a square", f"{those} a grid of"
                done.refused[key] = unclear(count, square, other, source)
        if grid is not None:
            resample = partial(position.resample, name)
            done.resize(state, key, "positions", (grid, position.grid), mode, resample)
    return done


class TableRows(NamedTuple):
    """How the rows of a position table are divided."""

    prefix: int
    grid: Grid


def divide(
    position: Learned1d, count: int, prefixes: Iterable[int], source: Grid | None = None
) -> TableRows | None:
    """Which of `count` rows of another table belong to tokens before the patches, and what grid
    the others form.

    Libraries give a row to the class and distillation token, or also to registers (`prefixes` has
    both numbers), or to none of them. Without a `source` grid the rest must be as many as here, or
    a square. None when there is no such division, or more than one.
    """
    readings: set[TableRows] = set()
    for prefix in {position.rows, *prefixes, 0}:
        rest = count - prefix
        side = math.isqrt(max(rest, 0))
        for grid in (source,) if source is not None else (position.grid, (side, side)):
            if rest > 0 and rest == grid[0] * grid[1]:
                readings.add(TableRows(prefix, grid))
    usual = TableRows(position.rows, position.grid)
    if usual in readings:
        return usual
    return readings.pop() if len(readings) == 1 else None


def grid_of(position: Position, name: str, value: Tensor, source: Grid | None) -> Grid | None:
    """The grid that a value of the parameter `name` was made for, by its shape or because the user
    says so (`source`); None where its shape tells none."""
    if isinstance(position, Learned2d):
        gh, gw = position.grid
        return (len(value), gw) if name == "y" else (gh, len(value))
    assert isinstance(position, Relative)
    offsets = len(value) - position.rows
    half = (math.isqrt(max(offsets, 0)) + 1) // 2
    for grid in (source,) if source is not None else (position.grid, (half, half)):
        if offsets == (2 * grid[0] - 1) * (2 * grid[1] - 1):
            return grid
    return None


def _fit_rows(
    position: Learned1d,
    config: ViTConfig,
    state: State,
    key: str,
    source: Grid | None,
    done: Resampling,
) -> Grid | None:
    """Give a table as many rows before the patches as ours has; return the grid of the rest."""
    table, ours = state[key], position.rows
    rows = divide(position, len(table), (config.rows, config.prefix), source)
    if rows is None:
        count = f"{len(table)} rows, {ours} of them for tokens before the patches,"
        several, other = "can be read in no way or in several", "do not make a grid of"
        done.refused[key] = unclear(count, several, other, source)
        return None
    if rows.prefix < ours:
        state[key] = torch.cat((table.new_zeros(ours, table.shape[1]), table))
        done.notes[key] = "without rows for tokens before the patches; they are zero"
    elif rows.prefix > ours:
        # A learned token plus its row is a learned token.
        state[key] = torch.cat((table[:ours], table[rows.prefix :]))
        for token, (first, last) in _rows_of_tokens(config).items():
            added = table[max(first, ours) : min(last, rows.prefix)]
            if token in state and len(added) and state[token].numel() == added.numel():
                state[token] = state[token] + added.reshape(state[token].shape)
                done.notes[key] = "rows of tokens before the patches were added to the tokens"
    return rows.grid


def _rows_of_tokens(config: ViTConfig) -> dict[str, tuple[int, int]]:
    """The rows, from and to before, that the tokens have in a table with a row for each."""
    rows, prefix = config.rows, config.prefix
    tokens = ("prefix.class_token", "prefix.distillation_token")[:rows]
    places = {token: (row, row + 1) for row, token in enumerate(tokens)}
    return {**places, "prefix.registers": (rows, prefix)}


def upgraded_positions(position: Position, state: State) -> State:
    """Relative positions were (depth, heads, 2·gh-1, 2·gw-1), those of the prefix apart."""
    old = ("position.bias", "position.prefix_bias")
    between, prefix = (state.get(name) for name in old)
    if not isinstance(position, Relative) or between is None or between.ndim != 4:
        return state
    kept = {name: value for name, value in state.items() if name not in old}
    for block, offsets in enumerate(between.flatten(2)):
        rows = (offsets,) if prefix is None else (offsets, prefix[block])
        kept[f"position.blocks.{block}.table"] = torch.cat(rows, dim=1).T.contiguous()
    return kept


def with_rows(config: Any, state: State, rows: str) -> State:
    """The reverse of `_fit_rows`."""
    table, count = state["position.table"], config.rows
    if not config.position.prefix:
        return state  # with rows for no token: every library that has registers has this form
    if rows == "all":
        zeros = table.new_zeros(config.registers, table.shape[1])
        return {**state, "position.table": torch.cat((table[:count], zeros, table[count:]))}
    # Adding a token's row to the token itself leaves the outputs unchanged.
    tokens = ("prefix.class_token", "prefix.distillation_token")[:count]
    moved = {token: state[token] + table[row] for row, token in enumerate(tokens)}
    return {**state, **moved, "position.table": table[count:]}
