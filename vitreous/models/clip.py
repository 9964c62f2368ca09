"""CLIP: Learning Transferable Visual Models From Natural Language Supervision (Radford et al.
2021).

Two towers (`two_towers.py`, section 2.4). Images: a ViT whose tokens are normalised once more
before the first block and whose patch embedding has no bias. Texts: a causal transformer, of which
the end token is read. Both end in a projection without bias into the space that they share; the
image tower by itself has a head for classes unless it is told `head = "projection"`.

OpenAI's models use a cheap approximation of GELU, those of open_clip (Cherti et al. 2022) GELU
itself; a file does not show which. MetaCLIP (Xu et al. 2023) and DFN (Fang et al. 2023) train the
same models on other data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vitreous.config import Epsilon, Size
from vitreous.layers.kinds import Embedding
from vitreous.layers.mlp import Activation
from vitreous.layers.patch import PatchConfig
from vitreous.models.text import TextConfig, TextTower
from vitreous.models.two_towers import TwoTowersConfig
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


@dataclass(frozen=True)
class CLIPTextConfig(TextConfig):
    """A text tower with CLIP's choices. The defaults are those of OpenAI's ViT-B."""

    activation: Activation = "quick-gelu"


class CLIPText(TextTower):
    """Token ids (b, n) -> embeddings (b, classes)."""


IMAGES = {  # paper, table 20; OpenAI's L/14 also exists for images of 336
    f"clip-{size}-image": CLIPConfig(patch=patch, **SIZES[size[0]])
    for size, patch in (("b/32", 32), ("b/16", 16), ("l/14", 14))
} | {  # open_clip
    f"clip-{size}/14-image": CLIPConfig(patch=14, activation="gelu", **SIZES[size])
    for size in ("h", "g", "G")
}
TEXT_SIZES: dict[str, dict[str, Any]] = {  # paper, table 20; h, G: open_clip
    "b": {"dim": 512, "heads": 8, "depth": 12, "classes": 512},
    "l": {"dim": 768, "heads": 12, "depth": 12, "classes": 768},
    "h": {"dim": 1024, "heads": 16, "depth": 24, "classes": 1024, "activation": "gelu"},
    "G": {"dim": 1280, "heads": 20, "depth": 32, "classes": 1280, "activation": "gelu"},
}
TEXTS = {f"clip-{size}-text": CLIPTextConfig(**fields) for size, fields in TEXT_SIZES.items()}
VARIANTS = {
    f"clip-{size}": TwoTowersConfig(
        dim=TEXT_SIZES[text]["classes"], image=f"clip-{size}-image", text=f"clip-{text}-text"
    )
    for size, text in (
        *(("b/32", "b"), ("b/16", "b"), ("l/14", "l")),
        *(("h/14", "h"), ("g/14", "h"), ("G/14", "G")),
    )
}
