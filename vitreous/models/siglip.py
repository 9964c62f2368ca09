"""SigLIP: Sigmoid Loss for Language Image Pre-Training (Zhai et al. 2023), and SigLIP 2
(Tschannen et al. 2025), whose models of fixed resolution are the same but for the vocabulary.

Two towers (`two_towers.py`). Images: a ViT without class token; one learned query attends to all
patches behind the last block (the "MAP head" of Zhai et al. 2022), and what it gathers is the
image's vector, without a projection. Texts: a transformer whose tokens see each other, of which the
last is read, padding or not, and projected with a bias. So texts are always padded to the same
length. The similarity has a bias too, as each pair of image and text is judged by itself. GELU is
computed by its tanh form, as in the original code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vitreous.config import Epsilon, Hidden
from vitreous.layers.cross_attention import AttentionPoolConfig
from vitreous.layers.head import LinearHeadConfig
from vitreous.layers.kinds import Pool
from vitreous.layers.mlp import Activation
from vitreous.layers.text import TextPool, TextPoolConfig
from vitreous.models.text import TextConfig, TextTower
from vitreous.models.two_towers import TwoTowersConfig
from vitreous.models.vit import SIZES, Tokens, ViT, ViTConfig


@dataclass(frozen=True)
class SigLIPConfig(ViTConfig):
    """A ViT with SigLIP's choices. The defaults are B/16."""

    tokens: Tokens = "none"
    pool: Pool = AttentionPoolConfig()
    activation: Activation = "gelu-tanh"


class SigLIP(ViT):
    """(b, c, h, w) -> logits or, with `head="none"`, embeddings (b, dim)."""


@dataclass(frozen=True)
class SigLIPTextConfig(TextConfig):
    """A text tower with SigLIP's choices. The defaults are those of B/16."""

    vocabulary: int = 32_000
    length: int = 64
    classes: int = 768
    dim: int = 768
    heads: Hidden[int] = 12
    activation: Activation = "gelu-tanh"
    norm_eps: Epsilon = 1e-6
    causal: Hidden[bool] = False
    pool: TextPool = TextPoolConfig("last")
    head: LinearHeadConfig = LinearHeadConfig("linear")


class SigLIPText(TextTower):
    """Token ids (b, n) -> embeddings (b, classes)."""


SHAPE_OPTIMISED: dict[str, Any] = {  # Alabdulmohsin et al. 2023; giant-opt: SigLIP 2
    "so400m": {"dim": 1152, "depth": 27, "heads": 16, "mlp_dim": 4304},
    "g": {"dim": 1536, "depth": 40, "heads": 16, "mlp_dim": 6144},
}
ROWS = [("b", 16, 224), ("b", 32, 256), ("l", 16, 256)]
ROWS += [("so400m", 14, 224), ("so400m", 16, 256), ("g", 16, 256)]
IMAGES = {
    f"siglip-{size}/{patch}-image": SigLIPConfig(
        image_size=image, patch=patch, **{**SIZES, **SHAPE_OPTIMISED}[size]
    )
    for size, patch, image in ROWS
}
TEXTS = {  # the giant's is that of so400m
    f"siglip-{size}-text": SigLIPTextConfig(
        classes=fields["dim"],
        **{name: fields[name] for name in ("dim", "depth", "heads", "mlp_dim")},
    )
    for size, fields in {**SIZES, **SHAPE_OPTIMISED}.items()
    if size in ("b", "l", "so400m")
}
SIGLIP_2 = {"vocabulary": 256_000}
"""Its tokenizer is Gemma's."""
TEXT_FIELDS: dict[str, dict[str, Any]] = {
    # SigLIP has b/16, l/16 and so400m/14; of the last, images of 224 came with texts of 16 tokens
    "so400m/14": {"length": 16},
    **dict.fromkeys(("b/32", "so400m/16", "g/16"), SIGLIP_2),
}
VARIANTS = {
    f"siglip-{size}/{patch}": TwoTowersConfig(
        image_size=image,
        dim=IMAGES[f"siglip-{size}/{patch}-image"].dim,
        image=f"siglip-{size}/{patch}-image",
        text=f"siglip-{'so400m' if size == 'g' else size}-text",
        text_fields=TEXT_FIELDS.get(f"{size}/{patch}", {}),
        projection=False,
        temperature=0.1,
        logit_bias=-10.0,
    )
    for size, patch, image in ROWS
}
