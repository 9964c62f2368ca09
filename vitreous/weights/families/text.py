"""State dicts of text towers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vitreous.weights.families.state_dict import Shapes, StateDict, numbered


class TextStateDict(StateDict):
    def __init__(self, **unseen: str) -> None:
        self.unseen = unseen

    def fields_of(self, shapes: Shapes, axes: Mapping[str, int]) -> list[dict[str, Any]]:
        """How many heads there are, what a token sees and which one is read do not show."""
        tokens, positions = (
            shapes.get(f"embedding.{part}") for part in ("tokens.weight", "positions")
        )
        mlp = shapes.get("blocks.0.mlp.fc1.weight")
        if not (tokens and positions and mlp):
            return []
        shown: dict[str, Any] = {
            "vocabulary": tokens[0],
            "length": positions[0],
            "dim": tokens[1],
            "depth": numbered(shapes, "blocks"),
            "mlp_dim": mlp[0],
            "head": "none",
        }
        if out := shapes.get("head.out.weight"):
            head = "linear" if "head.out.bias" in shapes else "projection"
            shown |= {"head": head, "classes": out[0]}
        return [shown]
