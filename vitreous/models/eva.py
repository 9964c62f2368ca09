"""EVA-02: A Visual Representation for Neon Genesis (Fang et al. 2023).

A ViT with the parts of language models (section 2): rotary positions on queries and keys beside the
learned table, a gated MLP (SwiGLU), in the B and L models with a LayerNorm inside it, and no bias
on keys. Rotary positions are those of a grid of 16x16 patches, the size of pre-training: a larger
image has more patches between the same places. The head reads the normalised mean of the patches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vitreous.config import Size
from vitreous.layers.mlp import Activation
from vitreous.models.model import Shapes
from vitreous.models.vit import SIZES, Pool, PositionName, ViT, ViTConfig


@dataclass(frozen=True)
class EVAConfig(ViTConfig):
    """A ViT with EVA-02's choices."""

    patch: Size = 14
    position: PositionName = "learned-1d+rotary"
    rotary_grid: Size | None = 16
    pool: Pool = "mean"
    final_norm: str | bool = "pooled"
    activation: Activation = "silu-gated"
    key_bias: bool = False


class EVA(ViT):
    """(b, c, h, w) -> logits (b, classes). See `ViTConfig` for every choice."""

    @classmethod
    def fields_of(cls, shapes: Shapes, axes: Mapping[str, int]) -> list[dict[str, Any]]:
        """Beside the table that shows there are rotary positions, which do not."""
        found = super().fields_of(shapes, axes)
        unseen = {"position": "learned-1d+rotary"}
        return [
            {**fields, **unseen, "guessed": (*fields.get("guessed", ()), *unseen)}
            for fields in found
        ]


# Two thirds of the usual width inside the MLP: the gate is a third matrix of weights.
NETWORKS: dict[str, dict[str, Any]] = {
    "ti": {**SIZES["ti"], "mlp_dim": 512, "image_size": 336},
    "s": {**SIZES["s"], "mlp_dim": 1024, "image_size": 336},
    "b": {**SIZES["b"], "mlp_dim": 2048, "mlp_norm": True, "image_size": 448},
    "l": {**SIZES["l"], "mlp_dim": 2730, "mlp_norm": True, "image_size": 448},
}
VARIANTS = {  # image sizes: of the paper's ImageNet models
    f"eva02-{size}/14": EVAConfig(**fields) for size, fields in NETWORKS.items()
}
