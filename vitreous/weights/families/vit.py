"""State dicts of ViT and its descendants."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vitreous.errors import ConfigError, advice
from vitreous.layers.conv_stem import ConvStem
from vitreous.layers.grid_positions import Learned2d, Relative
from vitreous.layers.position import Learned1d, Position
from vitreous.layers.resample import Grid, Resampling, State
from vitreous.layers.rotary import Rotary
from vitreous.models.model import Model
from vitreous.models.vit import ViT, ViTConfig
from vitreous.weights.families.state_dict import SOURCE_GRID, Shapes, StateDict, factors, numbered

MAX_MARGIN = 64
"""So many pixels may convolutions without padding take off an image."""


class ViTStateDict(StateDict):
    behind_maps = ("head.*", "pooling.*")

    def __init__(self, *, image_text: bool = False, **unseen: str) -> None:
        self.image_text, self.unseen = image_text, unseen

    def input_weight(self, model: Model) -> str:
        stem = isinstance(model, ViT) and isinstance(model.stem, ConvStem)
        return "stem.layers.0.conv.weight" if stem else "patch.weight"

    def input_norms(self, model: Model) -> tuple[str, ...]:
        first = self.input_weight(model) == "patch.weight"
        norm = first and getattr(model.config.embedding, "norm", False) in (True, "in")
        return ("patch.norm_in.weight", "patch.norm_in.bias") if norm else ()

    def fields_of(self, shapes: Shapes, axes: Mapping[str, int]) -> list[dict[str, Any]]:
        return shown_fields(shapes, axes)

    def size_for(self, config: Any, grid: Grid) -> tuple[int, int] | None:
        """Of several sizes the one nearest to what the strides divide."""
        steps = zip(grid, config.pixels, strict=True)
        height, width = map(math.prod, steps)
        for more in sorted(range(-MAX_MARGIN, MAX_MARGIN + 1), key=abs):
            size = height + more, width + more
            try:
                if config.grid_of(size) == grid:
                    return size
            except ConfigError:
                continue
        return None

    def resample(
        self, model: Model, state: State, mode: str | None, source: Grid | None
    ) -> Resampling:
        assert isinstance(model, ViT)
        return resample_positions(model.position, model.config, state, mode, source)

    def upgraded(self, model: Model, state: State) -> State:
        assert isinstance(model, ViT)
        return upgraded_positions(model.position, state)

    def with_rows(self, model: Model, state: State, rows: str) -> State:
        return with_rows(model.config, state, rows)

    def derived(self, model: Model) -> dict[str, Tensor]:
        """What DINOv3's files have: the periods of rotary positions, and the masks that hold the
        biases of keys at zero."""
        assert isinstance(model, ViT)
        config, found = model.config, {}
        if isinstance(model.position, Rotary):
            found["position.periods"] = model.position.periods()
        if config.attention.qkv_bias and not config.attention.key_bias:
            part = torch.ones(config.heads * config.head_width)
            mask = torch.cat((part, torch.zeros_like(part), part))
            found |= {f"blocks.{i}.attention.bias_mask": mask for i in range(model.depth)}
        return found


class EVAStateDict(ViTStateDict):
    def fields_of(self, shapes: Shapes, axes: Mapping[str, int]) -> list[dict[str, Any]]:
        """Beside the table that shows there are rotary positions, which do not."""
        unseen = {"position": "learned-1d+rotary"}
        return [
            {**fields, **unseen, "guessed": (*fields.get("guessed", ()), *unseen)}
            for fields in super().fields_of(shapes, axes)
        ]


SHOWN_BY = {
    "attention.qkv_bias": "blocks.0.attention.qkv.bias",
    "attention.projection_bias": "blocks.0.attention.projection.bias",
    "attention.qk_norm": "blocks.0.attention.q_norm.weight",
    "embedding.bias": "patch.bias",
    "embed_norm": "embed_norm.weight",
    "mlp.norm": "blocks.0.mlp.norm.weight",
}
"""Fields that are true where a state dict has this parameter."""


def shown_fields(shapes: Shapes, axes: Mapping[str, int]) -> list[dict[str, Any]]:
    """See `StateDict.fields_of`."""
    patch, block = shapes.get("patch.weight", ()), "blocks.0"
    qkv = shapes.get(f"{block}.attention.qkv.weight", ())
    inside, outside = (shapes.get(f"{block}.mlp.fc{k}.weight", ()) for k in (1, 2))
    if (len(qkv), len(inside), len(outside)) != (2, 2, 2):
        return []
    dim, joined = qkv[1], qkv[0] // 3
    if not patch and "stem.layers.0.conv.weight" in shapes:
        patch = (dim, dim, 1, 1)  # the stem's map has the tokens
    if len(patch) != 4:
        return []
    tokens = "class" if "prefix.class_token" in shapes else "none"
    if "prefix.distillation_token" in shapes:
        tokens = "class+distillation"
    registers = shapes.get("prefix.registers", (0,))[0]
    first = shapes.get("stem.layers.0.conv.weight", patch)
    shown: dict[str, Any] = {
        "dim": dim,
        "channels": first[1],
        "patch": patch[2:],
        "depth": numbered(shapes, "blocks"),
        "mlp_dim": outside[1],
        "tokens": tokens,
        "registers": registers,
        "norm": "batch" if f"{block}.norm1.running_mean" in shapes else "layer",
        **{field: name in shapes for field, name in SHOWN_BY.items()},
        **_embedding_fields(shapes),
        **_attention_fields(shapes, axes, dim, joined),
        **_head_fields(shapes),
    }
    if inside[0] == 2 * outside[1]:
        shown["activation"] = "silu-gated"
    if f"{block}.scale1.gamma" in shapes:
        shown["layer_scale"] = 1e-5  # its first value, which the weights replace
    if f"{block}.attention.qv_bias" in shapes:
        shown |= {"attention.qkv_bias": True, "attention.key_bias": False}
    if "pooling.probe" in shapes:
        shown["pool"] = "attention"
    elif "pooling.score.weight" in shapes:
        shown["pool"] = "sequence"
    elif tokens == "none" or shown["final_norm"] == "pooled":
        shown["pool"] = "mean"
    elif shapes.get("head.out.weight", ())[1:] == (2 * dim,):
        shown["pool"] = "class+mean"
    position, grids = _position_fields(shapes, tokens, registers)
    seen = shapes.get("head.hidden.weight", shapes.get("head.out.weight", (0, 0)))[-1] // dim
    if seen > 2 or (seen == 2 and tokens == "none"):  # all tokens at once
        shown["pool"] = "flatten"
        prefix = registers + {"none": 0, "class": 1, "class+distillation": 2}[tokens]
        grids = grids or factors(max(seen - prefix, 0))
    shown |= position
    stems = {
        "stem.layers": layers_of(shapes, "stem", first[1], halves=True),
        "stem.grid_layers": layers_of(shapes, "grid_stem", patch[0], halves=False),
    }
    ph, pw = patch[2:]
    for field, rows in stems.items():
        if rows:
            steps = math.prod(row["stride"] for row in rows)
            ph, pw, shown[field] = ph * steps, pw * steps, rows
            shown["stem"] = "conv"
            shown["guessed"] = (*shown.get("guessed", ()), field)
    if patch[0] != dim:
        shown |= {"stem": "conv", "stem.patch_dim": patch[0]}
    sizes = [{"image_size": (gh * ph, gw * pw), "grid": (gh, gw)} for gh, gw in grids]
    return [{**shown, **size} for size in sizes] or [shown]


def _attention_fields(
    shapes: Shapes, axes: Mapping[str, int], dim: int, joined: int
) -> dict[str, Any]:
    """Heads, where they show: by a norm or a bias per head, or by the axes of a checkpoint.
    joined: the width of all heads together."""
    heads = axes.get("heads")
    if len(bias := shapes.get("position.blocks.0.table", ())) == 2:
        heads = bias[1]
    if (norm := shapes.get("blocks.0.attention.q_norm.weight")) and joined % norm[0] == 0:
        heads = joined // norm[0] if norm[0] < joined else heads
    if heads is None:
        if joined == dim:
            return {}
        width = 64 if joined % 64 == 0 else joined  # 64 is usual
        guessed = ("heads", "head_dim")
        return {"heads": joined // width, "head_dim": width, "guessed": guessed}
    same = heads * (dim // heads) == joined
    return {"heads": heads, **({} if same else {"head_dim": joined // heads})}


def _head_fields(shapes: Shapes) -> dict[str, Any]:
    found: dict[str, Any] = {"final_norm": "none", "head": "none"}
    if "norm.weight" in shapes:
        found["final_norm"] = "both" if "pooled_norm.weight" in shapes else "tokens"
    elif "pooled_norm.weight" in shapes:
        found["final_norm"] = "pooled"
    if out := shapes.get("head.out.weight"):
        head = "linear" if "head.out.bias" in shapes else "projection"
        found |= {"head": head, "classes": out[0]}
    if out and (hidden := shapes.get("head.hidden.weight")):
        further = _further_layers(shapes)
        found["head"] = "mlp" if further or "head.norm.weight" in shapes else "tanh"
        widths = (hidden[0], *further) if further else hidden[0]
        found |= {"head.hidden": widths, "head.norm": "head.norm.weight" in shapes}
    if "head.distillation.weight" in shapes:
        found["pool"] = "both"
    return found


def _further_layers(shapes: Shapes) -> list[int]:
    """The widths of a head's hidden layers behind the first."""
    names = itertools.takewhile(
        shapes.__contains__, (f"head.hidden{k}.weight" for k in itertools.count(2))
    )
    return [shapes[name][0] for name in names]


def _embedding_fields(shapes: Shapes) -> dict[str, Any]:
    if "patch.weight" not in shapes:
        return {"embedding": "none"}
    before, after = (f"patch.norm_{place}.weight" in shapes for place in ("in", "out"))
    norm = (before and after) or (before and "in") or (after and "out")
    return {"embedding": "linear", "embedding.norm": norm}


def _position_fields(
    shapes: Shapes, tokens: str, registers: int
) -> tuple[dict[str, Any], list[Grid]]:
    """The kind of position, where it shows, and the grids that it may be for."""
    if table := shapes.get("position.table"):
        rows = {"none": 0, "class": 1, "class+distillation": 2}[tokens]
        # Which tokens before the patches have a row too: those two, registers as well, or none.
        for before in dict.fromkeys((rows, rows + registers, 0)):
            rest = table[0] - before
            if rest > 0 and len(grids := factors(rest)) == 1:
                return {"position": "learned-1d", "position.prefix": before >= rows}, grids
        return {"position": "learned-1d"}, factors(table[0] - rows)
    if (y := shapes.get("position.y")) and (x := shapes.get("position.x")):
        return {"position": "learned-2d"}, [(y[0], x[0])]
    if bias := shapes.get("position.blocks.0.table"):
        offsets = max(bias[0] - (3 if registers or tokens != "none" else 0), 0)
        return {"position": "relative"}, [((h + 1) // 2, (w + 1) // 2) for h, w in factors(offsets)]
    generator = "position.generator.weight" in shapes
    return {"position": "conditional"} if generator else {}, []


def layers_of(shapes: Shapes, stem: str, channels: int, *, halves: bool) -> list[dict[str, Any]]:
    """The layers of a stem in a state dict; stride and activation do not show, and are guessed.

    halves: whether a map that becomes wider becomes smaller, as before the patches most do.
    """
    rows: list[dict[str, Any]] = []
    for number in range(numbered(shapes, f"{stem}.layers")):
        name = f"{stem}.layers.{number}"
        weight = shapes.get(f"{name}.conv.weight", ())
        if len(weight) != 4 or not weight[1] or channels % weight[1]:
            return []
        norm = "layer" if f"{name}.norm.weight" in shapes else "none"
        rows.append(
            {
                "width": weight[0],
                "kernel": tuple(weight[2:]),
                "stride": 2 if halves and weight[0] > channels else 1,
                "groups": channels // weight[1],
                "bias": f"{name}.conv.bias" in shapes,
                "norm": "batch" if f"{name}.norm.running_mean" in shapes else norm,
                "activation": "none" if norm == "none" else "relu",
            }
        )
        channels = weight[0]
    return rows


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
                done.refused[key] = f"{len(state[key])} rows " + (
                    f"are not the offsets of a square{advice(': pass ', source_grid=SOURCE_GRID)}"
                    if source is None
                    else f"are not the offsets of a grid of {source[0]}x{source[1]}"
                )
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
        done.refused[key] = f"{len(table)} rows, {ours} of them for tokens before the patches, " + (
            f"can be read in no way or in several{advice(': pass ', source_grid=SOURCE_GRID)}"
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
