"""CLIP: Learning Transferable Visual Models From Natural Language Supervision (Radford et al.
2021).

The image tower: a ViT whose tokens are normalised once more before the first block (section 2.4)
and whose patch embedding has no bias. OpenAI's models use a cheap approximation of GELU, those of
open_clip (Cherti et al. 2022) GELU itself; a file does not show which.

The published files end in a projection without bias into the space that images and texts share:
`head = "projection"`, with as many `classes` as that space has dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass

from vitreous.config import Epsilon, Size
from vitreous.layers.kinds import Embedding
from vitreous.layers.mlp import Activation
from vitreous.layers.patch import PatchConfig
from vitreous.models.vit import SIZES, ViT, ViTConfig


@dataclass(frozen=True)
class CLIPConfig(ViTConfig):
    """A ViT with CLIP's choices. The defaults are OpenAI's ViT-B/32."""

    patch: Size = 32
    embed_norm: bool = True
    embedding: Embedding = PatchConfig(bias=False)
    norm_eps: Epsilon = 1e-5
    activation: Activation = "quick-gelu"


class CLIP(ViT):
    """(b, c, h, w) -> logits or, with `head="projection"`, embeddings (b, classes)."""


VARIANTS = {  # paper, table 20; OpenAI's L/14 also exists for images of 336
    f"clip-{size}": CLIPConfig(patch=patch, **SIZES[size[0]])
    for size, patch in (("b/32", 32), ("b/16", 16), ("l/14", 14))
} | {  # open_clip
    f"clip-{size}/14": CLIPConfig(patch=14, activation="gelu", **SIZES[size])
    for size in ("h", "g", "G")
}
