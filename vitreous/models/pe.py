"""Perception Encoder: The best visual embeddings are not at the output of the network (Bolya et al.
2025), the core models.

CLIP once more, with what has been learned since. The image tower has rotary positions on queries
and keys beside the learned ones on tokens, and attention pooling over all tokens, the class token's
included; the largest one has no class token. The text tower is CLIP's, for shorter texts. As in
CLIP, both end in a projection without bias.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from vitreous.config import Depth, Epsilon, Hidden
from vitreous.layers.cross_attention import AttentionPoolConfig
from vitreous.layers.kinds import Embedding, Pool, Position
from vitreous.layers.patch import PatchConfig
from vitreous.layers.rotary import LearnedRotaryConfig
from vitreous.models.text import TextConfig, TextTower
from vitreous.models.two_towers import TwoTowersConfig
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


@dataclass(frozen=True)
class PETextConfig(TextConfig):
    """A text tower with the Perception Encoder's choices. The defaults are those of B and L."""

    length: int = 32
    classes: int = 1024
    dim: int = 1024
    depth: Depth = 24
    heads: Hidden[int] = 16


class PEText(TextTower):
    """Token ids (b, n) -> embeddings (b, classes)."""


G: dict[str, Any] = {"dim": 1536, "depth": 50, "heads": 16, "mlp_dim": 8960}
G |= {"pool": AttentionPoolConfig(heads=8, mlp_dim=6144), "tokens": "none"}
ROWS = [("ti", 16, 384), ("s", 16, 384), ("b", 16, 224), ("l", 14, 336), ("G", 14, 448)]
IMAGES = {  # paper, table 1; Ti and S: its repository
    f"pe-{size}/{patch}-image": PEConfig(
        image_size=image,
        patch=patch,
        position=replace(ROTARY, reference=image // patch, offset=0.0 if size == "G" else 1.0),
        **{**SIZES, "G": G}[size],
    )
    for size, patch, image in ROWS
}
TEXTS = {
    "pe-s-text": PETextConfig(dim=512, depth=12, heads=8, classes=512),
    "pe-l-text": PETextConfig(),
    "pe-G-text": PETextConfig(length=72, dim=1280, heads=20, classes=1280),
}
VARIANTS = {
    f"pe-{size}/{patch}": TwoTowersConfig(
        image_size=image,
        dim=TEXTS[f"pe-{text}-text"].classes,
        image=f"pe-{size}/{patch}-image",
        text=f"pe-{text}-text",
    )
    for (size, patch, image), text in zip(ROWS, ("s", "s", "l", "l", "G"), strict=True)
}
