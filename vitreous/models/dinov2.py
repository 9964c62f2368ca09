"""DINOv2: Learning Robust Visual Features without Supervision (Oquab et al. 2023), and TIPSv2.

ViTs with patches of 14 pixels and LayerScale, trained without labels so that their features serve
as they are: a linear layer or nearest neighbours on top of them is often enough. The giant model
has a gated MLP (SwiGLU). The `-reg` models have four registers (Darcet et al. 2023), which keep
the attention maps free of stray patches that the model would use as notes otherwise.

The head of the paper's classifiers reads the class token beside the mean of the patches
(`pool="class+mean"`); for vectors, the class token is what it was trained for.

TIPSv2 (Google 2026, arXiv 2604.12012) trains the same network on images with text. Its one
register is a second class token, and its images are not normalised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vitreous.config import Size
from vitreous.models.vit import SIZES, LayerScale, ViT, ViTConfig


@dataclass(frozen=True)
class DINOv2Config(ViTConfig):
    """A ViT with DINOv2's choices. The defaults are DINOv2 B/14."""

    # the size of the last stage of pre-training (section 4), for which positions are stored
    image_size: Size = 518
    patch: Size = 14
    layer_scale: LayerScale = 1e-5


class DINOv2(ViT):
    """(b, c, h, w) -> logits (b, classes), or the class token's vector (b, d) without a head."""


GIANT = {"dim": 1536, "depth": 40, "heads": 24, "mlp_dim": 4096, "activation": "silu-gated"}
NETWORKS: dict[str, dict[str, Any]] = {size: SIZES[size] for size in ("s", "b", "l")}
NETWORKS["g"] = GIANT
SO400M = {"dim": 1152, "depth": 27, "heads": 16, "mlp_dim": 4304}  # Alabdulmohsin et al. 2023

VARIANTS = (
    {f"dinov2-{size}/14": DINOv2Config(**fields) for size, fields in NETWORKS.items()}
    | {
        f"dinov2-{size}/14-reg": DINOv2Config(registers=4, **fields)
        for size, fields in NETWORKS.items()
    }
    | {
        f"tipsv2-{size}/14": DINOv2Config(image_size=448, layer_scale=1.0, registers=1, **fields)
        for size, fields in {"b": SIZES["b"], "l": SIZES["l"], "so400m": SO400M, "g": GIANT}.items()
    }
)
