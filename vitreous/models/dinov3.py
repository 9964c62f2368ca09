"""DINOv3 (Siméoni et al. 2025).

DINOv2's recipe at a larger scale, distilled into smaller ViTs. Patches of 16 pixels, four registers
("storage tokens"), LayerScale, and no table of positions: queries and keys turn with the centre of
their patch, in coordinates that run over the image whatever its size and shape. So every model
takes every image of whole patches. S+ and H+ have a gated MLP (SwiGLU).

Keys have no bias: in the paper's code a mask holds it at zero. The other biases of queries and
values are zero in the published distilled models, which is why timm's copies leave them out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from vitreous.models.vit import SIZES, PositionName, ViT, ViTConfig


@dataclass(frozen=True)
class DINOv3Config(ViTConfig):
    """A ViT with DINOv3's choices. The defaults are DINOv3 B/16."""

    position: PositionName = "rotary"
    rotary_base: float = 100.0
    rotary_coordinates: Literal["patches", "centred"] = "centred"
    rotary_layout: Literal["pairs", "halves"] = "halves"
    registers: int = 4
    norm_eps: float = 1e-5
    key_bias: bool = False
    layer_scale: float | None = 1e-5


class DINOv3(ViT):
    """(b, c, h, w) -> logits (b, classes), or the class token's vector (b, d) without a head."""

    unseen: ClassVar[Mapping[str, str]] = {
        "pool": "the authors'; timm's models read the 'mean' of the patches"
    }


NETWORKS: dict[str, dict[str, Any]] = {  # S+ and H+: the gate is as wide as what it gates
    "s": SIZES["s"],
    "s+": {**SIZES["s"], "activation": "silu-gated"},
    "b": SIZES["b"],
    "l": SIZES["l"],
    "h+": {"dim": 1280, "depth": 32, "heads": 20, "mlp_dim": 5120, "activation": "silu-gated"},
}
VARIANTS = {f"dinov3-{size}/16": DINOv3Config(**NETWORKS[size]) for size in NETWORKS}
