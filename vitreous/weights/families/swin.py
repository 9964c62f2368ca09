"""State dicts of Swin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vitreous.layers.grid_positions import relative_index
from vitreous.layers.resample import Grid, Resampling, State
from vitreous.models.model import Model
from vitreous.models.swin import Swin
from vitreous.weights.families.state_dict import Shapes, StateDict, factors, numbered, unclear


class SwinStateDict(StateDict):
    def resample(
        self, model: Model, state: State, mode: str | None, source: Grid | None
    ) -> Resampling:
        assert isinstance(model, Swin)
        done = Resampling()
        for _, name, attention in model.window_attentions():
            key = f"{name}.bias_table"
            if key not in state or state[key].ndim != 2:
                continue  # import refuses it for its shape
            window = attention.made_for(state[key], source)
            if window is None:
                count, those = f"{len(state[key])} offsets", "are not those of"
                square, other = f"{those} a square window", f"{those} a window of"
                done.refused[key] = unclear(count, square, other, source)
                continue
            windows = (window, attention.window)
            done.resize(state, key, "windows", windows, mode, attention.resample)
        return done

    def fields_of(self, shapes: Shapes, axes: Mapping[str, int]) -> list[dict[str, Any]]:
        patch, first = shapes.get("patch.weight", ()), "stages.0.blocks.0"
        inside, table = (
            shapes.get(f"{first}.{part}", ()) for part in ("mlp.fc1.weight", "attention.bias_table")
        )
        if (len(patch), len(inside), len(table)) != (4, 2, 2):
            return []
        stages = range(numbered(shapes, "stages"))
        tables = [shapes.get(f"stages.{i}.blocks.0.attention.bias_table") for i in stages]
        classes = shapes.get("head.out.weight")
        shown = {
            "dim": patch[0],
            "channels": patch[1],
            "patch": patch[2:],
            "depths": tuple(numbered(shapes, f"stages.{i}.blocks") for i in stages),
            "heads": tuple(each[1] if each else 1 for each in tables),
            "mlp_ratio": inside[0] / inside[1],
            "qkv_bias": f"{first}.attention.qkv.bias" in shapes,
            **({"classes": classes[0]} if classes else {"head": "none"}),
        }
        # (2h - 1)(2w - 1) offsets: a square window, if they can be one's
        windows = [((h + 1) // 2, (w + 1) // 2) for h, w in factors(table[0])]
        return [{**shown, "window": window} for window in windows]

    def derived(self, model: Model) -> dict[str, Tensor]:
        """The index of offsets of each attention, and the mask of each shifted one."""
        assert isinstance(model, Swin)
        levels, found = model.levels(model.own_size()), {}
        for stage, name, attention in model.window_attentions():
            found[f"{name}.index"] = relative_index(attention.window)
            size = attention.padded(levels[stage].grid)
            mask = attention.windows(size, torch.device("cpu")).mask
            if mask is not None:
                found[f"{name}.mask"] = mask.nan_to_num(neginf=-100.0)
        return found
