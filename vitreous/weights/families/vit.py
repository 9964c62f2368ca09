"""State dicts of ViT and its descendants."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vitreous.errors import ConfigError
from vitreous.layers.conv_stem import ConvStem
from vitreous.layers.resample import Grid, Resampling, State
from vitreous.layers.rotary import Rotary
from vitreous.models.model import Model
from vitreous.models.vit import ViT
from vitreous.weights.families.positions import resample_positions, upgraded_positions, with_rows
from vitreous.weights.families.state_dict import Shapes, StateDict, factors, numbered

TOKENS = {"none": 0, "class": 1, "class+distillation": 2}
"""How many tokens stand before registers and patches."""
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
        prefix = registers + TOKENS[tokens]
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
    if words := shapes.get("head.words.weight"):
        dim = words[1] if "head.projection.weight" in shapes else None
        found |= {"head": "similarity", "head.dim": dim, "classes": words[0]}
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
        rows = TOKENS[tokens]
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
