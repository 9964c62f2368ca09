"""EVA-02: A Visual Representation for Neon Genesis (Fang et al. 2023).

A ViT with the parts of language models (section 2): rotary positions on queries and keys beside the
learned table, a gated MLP (SwiGLU), in the B and L models with a LayerNorm inside it, and no bias
on keys. Rotary positions are those of a grid of 16x16 patches, the size of pre-training: a larger
image has more patches between the same places. The head reads the normalised mean of the patches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vitreous.config import Size
from vitreous.layers.attention import AttentionConfig
from vitreous.layers.head import TokenPoolConfig
from vitreous.layers.kinds import Pool, Position
from vitreous.layers.mlp import Activation, MlpConfig
from vitreous.layers.rotary import LearnedRotaryConfig
from vitreous.models.vit import SIZES, ViT, ViTConfig


@dataclass(frozen=True)
class EVAConfig(ViTConfig):
    """A ViT with EVA-02's choices."""

    patch: Size = 14
    position: Position = LearnedRotaryConfig(reference=16)
    pool: Pool = TokenPoolConfig("mean")
    final_norm: str | bool = "pooled"
    activation: Activation = "silu-gated"
    attention: AttentionConfig = AttentionConfig(key_bias=False)


class EVA(ViT):
    """(b, c, h, w) -> logits (b, classes). See `ViTConfig` for every choice."""


# Two thirds of the usual width inside the MLP: the gate is a third matrix of weights.
NETWORKS: dict[str, dict[str, Any]] = {
    "ti": {**SIZES["ti"], "mlp_dim": 512, "image_size": 336},
    "s": {**SIZES["s"], "mlp_dim": 1024, "image_size": 336},
    "b": {**SIZES["b"], "mlp_dim": 2048, "mlp": MlpConfig(norm=True), "image_size": 448},
    "l": {**SIZES["l"], "mlp_dim": 2730, "mlp": MlpConfig(norm=True), "image_size": 448},
}
VARIANTS = {  # image sizes: of the paper's ImageNet models
    f"eva02-{size}/14": EVAConfig(**fields) for size, fields in NETWORKS.items()
}
