"""Every kind of each part of a ViT: a new one is added here."""

from __future__ import annotations

from typing import Annotated

from vitreous.config import PARTLY_HIDDEN
from vitreous.layers.block import LayerNormConfig
from vitreous.layers.conv_stem import ConvStemConfig, NoEmbeddingConfig
from vitreous.layers.cross_attention import AttentionPoolConfig
from vitreous.layers.grid_positions import ConditionalConfig, Learned2dConfig, RelativeConfig
from vitreous.layers.head import LinearHeadConfig, TanhHeadConfig, TokenPoolConfig
from vitreous.layers.patch import NoStem, PatchConfig
from vitreous.layers.position import Learned1dConfig, NoPosition
from vitreous.layers.resnet_stem import ResNetStemConfig
from vitreous.layers.rotary import LearnedRotaryConfig, RotaryConfig
from vitreous.layers.similarity import SimilarityHeadConfig
from vitreous.layers.sines import Sines1dConfig, Sines2dConfig
from vitreous.layers.uncommon import (
    BatchNormConfig,
    MlpHeadConfig,
    SequencePoolConfig,
    UncommonPoolConfig,
)

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
Norm = LayerNormConfig | BatchNormConfig
Head = LinearHeadConfig | TanhHeadConfig | MlpHeadConfig | SimilarityHeadConfig
Stem = NoStem | ConvStemConfig | ResNetStemConfig
Embedding = PatchConfig | NoEmbeddingConfig
