"""BEiT: BERT Pre-Training of Image Transformers (Bao et al. 2022), and BEiT v2 (Peng et al. 2022).

A ViT that was pre-trained to name the content of masked patches, as BERT names masked words: codes
of a picture tokenizer (v2: of a tokenizer that was taught by CLIP). Positions are biases in
attention, learned for each offset between two patches, block and head, with three more for the
class token. Keys have no bias, branches are scaled (LayerScale), and the head reads the normalised
mean of the patches. v2 differs in its training alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from vitreous.layers.attention import AttentionConfig
from vitreous.layers.grid_positions import RelativeConfig
from vitreous.layers.head import TokenPoolConfig
from vitreous.layers.kinds import Pool, Position
from vitreous.models.vit import SIZES, LayerScale, ViT, ViTConfig


@dataclass(frozen=True)
class BEiTConfig(ViTConfig):
    """A ViT with BEiT's choices. The defaults are BEiT B/16."""

    position: Position = RelativeConfig()
    pool: Pool = TokenPoolConfig("mean")
    final_norm: str | bool = "pooled"
    attention: AttentionConfig = AttentionConfig(key_bias=False)
    layer_scale: LayerScale = 0.1


class BEiT(ViT):
    """(b, c, h, w) -> logits (b, classes). See `ViTConfig` for every choice."""


SCALES = {"b": 0.1, "l": 1e-5}  # the initial LayerScale, by depth

VARIANTS = {
    f"beit-{size}/16": BEiTConfig(layer_scale=scale, **SIZES[size])
    for size, scale in SCALES.items()
}
