"""Every kind of each part of a ViT: a new one is added here."""

from __future__ import annotations

from typing import Annotated

from vitreous.config import PARTLY_HIDDEN
from vitreous.layers.conditional import ConditionalConfig
from vitreous.layers.conv_stem import ConvStemConfig, NoEmbeddingConfig, NoStem
from vitreous.layers.head import LinearHeadConfig, TanhHeadConfig
from vitreous.layers.learned_2d import Learned2dConfig
from vitreous.layers.patch import PatchConfig
from vitreous.layers.pool import AttentionPoolConfig, TokenPoolConfig
from vitreous.layers.position import Learned1dConfig, NoPosition
from vitreous.layers.relative import RelativeConfig
from vitreous.layers.rotary import LearnedRotaryConfig, RotaryConfig
from vitreous.layers.sines import Sines1dConfig, Sines2dConfig
from vitreous.layers.uncommon_heads import MlpHeadConfig, SequencePoolConfig, UncommonPoolConfig

Position = Annotated[
    NoPosition
    | Learned1dConfig
    | Learned2dConfig
    | Sines1dConfig
    | Sines2dConfig
    | RelativeConfig
    | ConditionalConfig
    | RotaryConfig
    | LearnedRotaryConfig,
    PARTLY_HIDDEN,
]
Pool = Annotated[
    TokenPoolConfig | AttentionPoolConfig | UncommonPoolConfig | SequencePoolConfig, PARTLY_HIDDEN
]
Head = LinearHeadConfig | TanhHeadConfig | MlpHeadConfig
Stem = NoStem | ConvStemConfig
Embedding = PatchConfig | NoEmbeddingConfig
