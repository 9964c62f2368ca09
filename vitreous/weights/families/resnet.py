"""State dicts of ResNet, and of what a hybrid has of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vitreous.models.model import Model
from vitreous.weights.families.state_dict import Shapes, StateDict, numbered
from vitreous.weights.families.vit import ViTStateDict


def trunk_fields(shapes: Shapes, owner: str = "") -> dict[str, Any]:
    """The fields of a trunk that the shapes of its parameters show; `owner`: its name and a dot."""
    root = shapes.get(f"{owner}root.conv.weight", ())
    if len(root) != 4:
        return {}
    stages = range(numbered(shapes, f"{owner}stages"))
    return {
        "width": root[0],
        "channels": root[1],
        "stages": tuple(numbered(shapes, f"{owner}stages.{stage}") for stage in stages),
    }


class ResNetStateDict(StateDict):
    def input_weight(self, model: Model) -> str:
        return "root.conv.weight"

    def fields_of(self, shapes: Shapes, axes: Mapping[str, int]) -> list[dict[str, Any]]:
        trunk = trunk_fields(shapes)
        if not trunk or not trunk["stages"]:
            return []
        norm = "root.norm.running_mean" in shapes
        counted = "root.norm.num_batches_tracked" in shapes
        classes = shapes.get("head.out.weight")
        return [
            {
                **trunk,
                "root": "3x3" if shapes["root.conv.weight"][2:] == (3, 3) else "7x7",
                "block": "bottleneck" if "stages.0.0.conv3.weight" in shapes else "basic",
                "norm": ("batch" if counted else "frozen") if norm else "group",
                **({"classes": classes[0]} if classes else {"head": "none"}),
            }
        ]


class HybridStateDict(ViTStateDict):
    def input_weight(self, model: Model) -> str:
        return "stem.root.conv.weight"

    def fields_of(self, shapes: Shapes, axes: Mapping[str, int]) -> list[dict[str, Any]]:
        stem = trunk_fields(shapes, "stem.")
        if not stem:
            return []
        stride = 4 << max(len(stem["stages"]) - 1, 0)
        found = super().fields_of(shapes, axes)
        for fields in found:
            if "image_size" in fields:
                fields["image_size"] = tuple(side * stride for side in fields["image_size"])
        shown = {k if k == "channels" else f"stem.{k}": value for k, value in stem.items()}
        return [{**fields, **shown} for fields in found]
