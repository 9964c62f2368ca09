"""DeiT: Training data-efficient image transformers & distillation through attention
(Touvron et al. 2021).

The architecture is ViT's. The distilled models carry a second learned token whose output is trained
to agree with a teacher (section 4); at inference the two heads' outputs are averaged.
"""

from __future__ import annotations

from vitreous.models.vit import SIZES, ViT, ViTConfig

DeiTConfig = ViTConfig
DeiT = ViT

VARIANTS = {  # paper table 1
    f"deit-{size}/16": ViTConfig(**SIZES[size]) for size in ("ti", "s", "b")
} | {
    f"deit-{size}/16-distilled": ViTConfig(tokens="class+distillation", pool="both", **SIZES[size])
    for size in ("ti", "s", "b")
}
