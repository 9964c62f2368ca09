"""SigLIP: Sigmoid Loss for Language Image Pre-Training (Zhai et al. 2023), and SigLIP 2
(Tschannen et al. 2025), whose image towers of fixed resolution are the same.

A ViT without class token: one learned query attends to all patches behind the last block (the "MAP
head" of Zhai et al. 2022), and what it gathers is the image's embedding, without a projection
(`head = "none"`). GELU is computed by its tanh form, as in the original code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vitreous.layers.cross_attention import AttentionPoolConfig
from vitreous.layers.kinds import Pool
from vitreous.layers.mlp import Activation
from vitreous.models.vit import SIZES, Tokens, ViT, ViTConfig


@dataclass(frozen=True)
class SigLIPConfig(ViTConfig):
    """A ViT with SigLIP's choices. The defaults are B/16."""

    tokens: Tokens = "none"
    pool: Pool = AttentionPoolConfig()
    activation: Activation = "gelu-tanh"


class SigLIP(ViT):
    """(b, c, h, w) -> logits or, with `head="none"`, embeddings (b, dim)."""


SHAPE_OPTIMISED: dict[str, Any] = {  # Alabdulmohsin et al. 2023; giant-opt: SigLIP 2
    "so400m": {"dim": 1152, "depth": 27, "heads": 16, "mlp_dim": 4304},
    "g": {"dim": 1536, "depth": 40, "heads": 16, "mlp_dim": 6144},
}
ROWS = [("b", 16, 224), ("b", 32, 256), ("l", 16, 256)]
ROWS += [("so400m", 14, 224), ("so400m", 16, 256), ("g", 16, 256)]
VARIANTS = {
    f"siglip-{size}/{patch}": SigLIPConfig(
        image_size=image, patch=patch, **{**SIZES, **SHAPE_OPTIMISED}[size]
    )
    for size, patch, image in ROWS
}
