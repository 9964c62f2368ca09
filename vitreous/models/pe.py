"""Perception Encoder: The best visual embeddings are not at the output of the network (Bolya et al.
2025), the core models.

CLIP once more, with what has been learned since: rotary positions on queries and keys beside the
learned ones on tokens, and attention pooling over all tokens, the class token's included. The
largest one has no class token. As in CLIP, the published files end in a projection without bias.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from vitreous.config import Epsilon
from vitreous.layers.cross_attention import AttentionPoolConfig
from vitreous.layers.kinds import Embedding, Pool, Position
from vitreous.layers.patch import PatchConfig
from vitreous.layers.rotary import LearnedRotaryConfig
from vitreous.models.vit import SIZES, ViT, ViTConfig

ROTARY = LearnedRotaryConfig(offset=1.0, reference=14, order="xy")


@dataclass(frozen=True)
class PEConfig(ViTConfig):
    """A ViT with the Perception Encoder's choices. The defaults are PE-core B/16."""

    position: Position = ROTARY
    pool: Pool = AttentionPoolConfig(heads=8)
    embed_norm: bool = True
    embedding: Embedding = PatchConfig(bias=False)
    norm_eps: Epsilon = 1e-5


class PE(ViT):
    """(b, c, h, w) -> logits or, with `head="projection"`, embeddings (b, classes)."""


G: dict[str, Any] = {"dim": 1536, "depth": 50, "heads": 16, "mlp_dim": 8960}
G |= {"pool": AttentionPoolConfig(heads=8, mlp_dim=6144), "tokens": "none"}
VARIANTS = {  # paper, table 1; Ti and S: its repository
    f"pe-{size}/{patch}": PEConfig(
        image_size=image,
        patch=patch,
        position=replace(ROTARY, reference=image // patch, offset=0.0 if size == "G" else 1.0),
        **{**SIZES, "G": G}[size],
    )
    for size, patch, image in (
        *(("ti", 16, 384), ("s", 16, 384), ("b", 16, 224)),
        *(("l", 14, 336), ("G", 14, 448)),
    )
}
