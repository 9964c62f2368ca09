"""Hybrid: a ViT whose patches come from the feature map of a ResNet (ViT paper, section 3.1 and
appendix B; the small ones from Steiner et al. 2021). The ResNet is BiT's
(`layers/resnet_stem.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vitreous.config import Size
from vitreous.errors import ConfigError
from vitreous.layers.kinds import Stem
from vitreous.layers.resnet_stem import ResNetStemConfig
from vitreous.models.vit import SIZES, ViT, ViTConfig


@dataclass(frozen=True)
class HybridConfig(ViTConfig):
    """A ViT behind a ResNet. `patch` counts in positions of its feature map."""

    patch: Size = 1
    stem: Stem = ResNetStemConfig()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stem.kind != "resnet":
            raise ConfigError("stem: a hybrid's stem is its ResNet; use a 'vit' instead")


class Hybrid(ViT):
    """(b, c, h, w) -> logits (b, classes): a ViT over the map of a ResNet."""


def _variant(size: str, *stages: int, **fields: Any) -> HybridConfig:
    return HybridConfig(stem=ResNetStemConfig(stages=stages), **SIZES[size], **fields)


VARIANTS = {
    # The stem alone, cut into 8x8 patches: "/16" is the name that its authors gave it.
    "r+vit-ti/16": _variant("ti", patch=8),
    "r26+vit-s/32": _variant("s", 2, 2, 2, 2),
    "r26+vit-b/32": _variant("b", 2, 2, 2, 2),
    # Nine blocks in the third stage: the paper moves the fourth stage's three blocks there to
    # keep a stride of 16 with the same number of layers.
    "r50+vit-b/16": _variant("b", 3, 4, 9),
    "r50+vit-l/32": _variant("l", 3, 4, 6, 3),
}
