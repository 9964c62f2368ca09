"""State dicts of a ViT: of another resolution, of an older version, with rows for other tokens."""

from __future__ import annotations

from functools import partial

import torch

from vitreous.layers.position import Learned1d, Position, Relative
from vitreous.layers.resample import Grid, Resampling, State
from vitreous.models.vit_config import ViTConfig


def resample(
    position: Position, config: ViTConfig, state: State, mode: str | None, source: Grid | None
) -> Resampling:
    """See `Model.resample`."""
    done = Resampling()
    for name in position.on_grid:
        key = f"position.{name}"
        if key not in state or state[key].shape[1:] != position.get_parameter(name).shape[1:]:
            continue  # import refuses it for its shape
        if isinstance(position, Learned1d):
            grid = _fit_rows(position, config, state, key, source, done)
        else:
            grid = position.made_for(name, state[key], source)
            if grid is None:
                done.refused[key] = f"{len(state[key])} rows " + (
                    "are not the offsets of a square: pass source_grid=(height, width)"
                    if source is None
                    else f"are not the offsets of a grid of {source[0]}x{source[1]}"
                )
        if grid is not None:
            resample = partial(position.resample, name)
            done.resize(state, key, "positions", (grid, position.grid), mode, resample)
    return done


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
    rows = position.divide(len(table), (config.rows, config.prefix), source)
    if rows is None:
        done.refused[key] = f"{len(table)} rows, {ours} of them for tokens before the patches, " + (
            "can be read in no way or in several: pass source_grid=(height, width)"
            if source is None
            else f"do not make a grid of {source[0]}x{source[1]}"
        )
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


def upgraded(position: Position, state: State) -> State:
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


def with_rows(config: ViTConfig, state: State, rows: str) -> State:
    """The reverse of `_fit_rows`."""
    table, count = state["position.table"], config.rows
    if not config.prefix_positions:
        return state  # with rows for no token: every library that has registers has this form
    if rows == "all":
        zeros = table.new_zeros(config.registers, table.shape[1])
        return {**state, "position.table": torch.cat((table[:count], zeros, table[count:]))}
    # Adding a token's row to the token itself leaves the outputs unchanged.
    tokens = ("prefix.class_token", "prefix.distillation_token")[:count]
    moved = {token: state[token] + table[row] for row, token in enumerate(tokens)}
    return {**state, **moved, "position.table": table[count:]}
