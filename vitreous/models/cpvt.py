"""CPVT: Conditional Positional Encodings for Vision Transformers (Chu et al. 2021).

A DeiT whose learned position embedding is replaced by a generator (section 3.2): a depthwise
convolution over the grid behind the first block. It needs no resizing at another resolution.
The `-gap` models average the patches instead of reading a class token (section 3.3), which makes
them translation equivariant up to the image's border.
"""

from __future__ import annotations

from vitreous.layers.grid_positions import ConditionalConfig
from vitreous.layers.head import TokenPoolConfig
from vitreous.models.vit import SIZES, ViT, ViTConfig

CPVTConfig = ViTConfig
CPVT = ViT

VARIANTS = {
    f"cpvt-{size}/16": ViTConfig(position=ConditionalConfig(), **SIZES[size])
    for size in ("ti", "s", "b")
} | {
    f"cpvt-{size}/16-gap": ViTConfig(
        position=ConditionalConfig(), tokens="none", pool=TokenPoolConfig("mean"), **SIZES[size]
    )
    for size in ("ti", "s", "b")
}
