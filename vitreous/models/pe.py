"""Perception Encoder: The best visual embeddings are not at the output of the network (Bolya et al.
2025), the core models.

CLIP once more, with what has been learned since: rotary positions on queries and keys beside the
learned ones on tokens, and attention pooling over all tokens, the class token's included. The
largest one has no class token. As in CLIP, the published files end in a projection without bias.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from vitreous.config import Size
from vitreous.models.vit import SIZES, Pool, PositionName, ViT, ViTConfig


@dataclass(frozen=True)
class PEConfig(ViTConfig):
    """A ViT with the Perception Encoder's choices. The defaults are PE-core B/16."""

    position: PositionName = "learned-1d+rotary"
    rotary_offset: float = 1.0
    rotary_grid: Size | None = 14
    rotary_order: Literal["yx", "xy"] = "xy"
    pool: Pool = "attention"
    pool_heads: int | None = 8
    embed_norm: bool = True
    patch_bias: bool = False
    norm_eps: float = 1e-5


class PE(ViT):
    """(b, c, h, w) -> logits or, with `head="projection"`, embeddings (b, classes)."""

    image_text = True


G: dict[str, Any] = {"dim": 1536, "depth": 50, "heads": 16, "mlp_dim": 8960}
G |= {"pool_mlp_dim": 6144, "tokens": "none", "rotary_offset": 0.0}
VARIANTS = {  # paper, table 1; Ti and S: its repository
    f"pe-{size}/{patch}": PEConfig(
        image_size=image, patch=patch, rotary_grid=image // patch, **{**SIZES, "G": G}[size]
    )
    for size, patch, image in (
        *(("ti", 16, 384), ("s", 16, 384), ("b", 16, 224)),
        *(("l", 14, 336), ("G", 14, 448)),
    )
}
