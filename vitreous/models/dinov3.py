"""DINOv3 (Siméoni et al. 2025).

DINOv2's recipe at a larger scale, distilled into smaller ViTs. Patches of 16 pixels, four registers
("storage tokens"), LayerScale, and no table of positions: queries and keys turn with the centre of
their patch, in coordinates that run over the image whatever its size and shape. So every model
takes every image of whole patches. S+ and H+ have a gated MLP (SwiGLU).

Keys have no bias: in the paper's code a mask holds it at zero. The other biases of queries and
values are zero in the published distilled models, which is why timm's copies leave them out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vitreous.config import Count, Epsilon
from vitreous.layers.attention import AttentionConfig
from vitreous.layers.kinds import Position
from vitreous.layers.rotary import RotaryConfig
from vitreous.models.vit import SIZES, LayerScale, ViT, ViTConfig


@dataclass(frozen=True)
class DINOv3Config(ViTConfig):
    """A ViT with DINOv3's choices. The defaults are DINOv3 B/16."""

    position: Position = RotaryConfig(base=100.0, coordinates="centred", layout="halves")
    registers: Count = 4
    norm_eps: Epsilon = 1e-5
    attention: AttentionConfig = AttentionConfig(key_bias=False)
    layer_scale: LayerScale = 1e-5


class DINOv3(ViT):
    """(b, c, h, w) -> logits (b, classes), or the class token's vector (b, d) without a head."""


NETWORKS: dict[str, dict[str, Any]] = {  # S+ and H+: the gate is as wide as what it gates
    "s": SIZES["s"],
    "s+": {**SIZES["s"], "activation": "silu-gated"},
    "b": SIZES["b"],
    "l": SIZES["l"],
    "h+": {"dim": 1280, "depth": 32, "heads": 20, "mlp_dim": 5120, "activation": "silu-gated"},
}
VARIANTS = {f"dinov3-{size}/16": DINOv3Config(**NETWORKS[size]) for size in NETWORKS}
