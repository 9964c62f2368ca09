"""LW-DETR: A Transformer Replacement to YOLO for Real-Time Detection (Chen et al. 2024).

The same model as RF-DETR (`rf_detr.py`), which came out of it, over a plain ViT that was
pre-trained for it and with batch norms in the projector.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from vitreous.config import Epsilon, Size
from vitreous.models.rf_detr import RFDETR, RFDETRConfig


@dataclass(frozen=True)
class LWDETRConfig(RFDETRConfig):
    """The defaults are LW-DETR-tiny."""

    image_size: Size = 640
    backbone: str = "vit-ti/16"
    projector_norm: Literal["layer", "batch"] = "batch"
    projector_eps: Epsilon = 1e-5
    queries: int = 100


class LWDETR(RFDETR):
    """(b, c, h, w), or a list of (c, h, w) of any sizes -> `RFDETROutput`. See `LWDETRConfig`."""


def _variant(size: str, depth: int, **fields: Any) -> LWDETRConfig:
    """LW-DETR, table 2: a ViT without class token and last norm, pre-trained at 224 pixels."""
    within, used = ((0, 2, 4), (1, 3, 5)) if depth == 6 else ((0, 1, 3, 6, 7, 9), (2, 4, 5, 9))
    backbone = {
        **{"depth": depth, "heads": 12, "tokens": "none", "pool": "mean", "final_norm": "none"},
        **{"attention.key_bias": False, "layer_scale": 0.1, "windows.side": 4},
        "windows.global_blocks": tuple(block for block in range(depth) if block not in within),
        **{"position.grid": 14, "position.antialias": False},
    }
    return LWDETRConfig(backbone=f"vit-{size}/16", backbone_fields=backbone, blocks=used, **fields)


_LARGE = {"dim": 384, "heads": 12, "cross_heads": 24, "points": 4, "scales": (2.0, 0.5)}
VARIANTS = {
    "lw-detr-ti": _variant("ti", 6),
    "lw-detr-s": _variant("ti", 10, queries=300),
    "lw-detr-m": _variant("s", 10, queries=300),
    "lw-detr-l": _variant("s", 10, queries=300, **_LARGE),
    "lw-detr-xl": _variant("b", 10, queries=300, **_LARGE),
}
