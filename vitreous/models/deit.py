"""DeiT: Training data-efficient image transformers & distillation through attention
(Touvron et al. 2021).

The architecture is ViT's. The distilled models carry a second learned token whose output is trained
to agree with a teacher (section 4); at inference the two heads' outputs are averaged.

DeiT III (Touvron et al. 2022, Revenge of the ViT) is a ViT again, with a learned factor on every
residual branch, and a class token that has no position.
"""

from __future__ import annotations

from typing import Any

from vitreous.layers.head import TokenPoolConfig
from vitreous.layers.position import Learned1dConfig
from vitreous.models.vit import SIZES, ViT, ViTConfig

DeiTConfig = ViTConfig
DeiT = ViT

VARIANTS = {  # paper table 1
    f"deit-{size}/16": ViTConfig(**SIZES[size]) for size in ("ti", "s", "b")
} | {
    f"deit-{size}/16-distilled": ViTConfig(
        tokens="class+distillation", pool=TokenPoolConfig("both"), **SIZES[size]
    )
    for size in ("ti", "s", "b")
}
III: dict[str, Any] = {"position": Learned1dConfig(prefix=False), "layer_scale": 1e-6}
MEDIUM = {"dim": 512, "depth": 12, "heads": 8, "mlp_dim": 2048}
VARIANTS |= {  # DeiT III, table 1; M: its code
    f"deit3-{size}/{patch}": ViTConfig(patch=patch, **III, **{**SIZES, "m": MEDIUM}[size])
    for size, patch in (("s", 16), ("m", 16), ("b", 16), ("l", 16), ("h", 14))
}
