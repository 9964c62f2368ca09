"""From the names in a `ViTConfig` to the modules that a ViT is made of."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from vitreous.config import pair
from vitreous.layers.attention import Attention, CrossAttention
from vitreous.layers.block import Block
from vitreous.layers.head import DistilledHead, LinearHead, MlpHead, TanhHead
from vitreous.layers.mlp import Mlp
from vitreous.layers.patch import MapTokens, PatchEmbedding, Stem
from vitreous.layers.pool import AttentionPool, SequencePool
from vitreous.layers.position import (
    Conditional,
    Learned1d,
    Learned2d,
    LearnedRotary,
    Position,
    Relative,
    Rotary,
    Sines1d,
    Sines2d,
)
from vitreous.layers.uncommon import BLOCKS, ActivatedMlp
from vitreous.models.vit_config import ViTConfig

POSITIONS: dict[str, Callable[[ViTConfig], Position]] = {
    "none": lambda config: Position(),
    "learned-1d": lambda config: Learned1d(
        config.dim, config.stored_grid, config.table_rows, antialias=config.position_antialias
    ),
    "learned-2d": lambda config: Learned2d(config.dim, config.grid),
    "sines-1d": lambda config: Sines1d(config.sines_layout, prefixed=config.sines_prefix),
    "sines-2d": lambda config: Sines2d(),
    "relative": lambda config: Relative(config.depth, config.heads, config.grid, config.prefix),
    "conditional": lambda config: Conditional(config.dim),
    "rotary": lambda config: _rotary(config),
    "learned-1d+rotary": lambda config: LearnedRotary(
        config.dim,
        config.grid,
        config.table_rows,
        _rotary(config),
        antialias=config.position_antialias,
    ),
}


def _rotary(config: ViTConfig) -> Rotary:
    grid = config.rotary_grid
    return Rotary(
        config.head_width,
        base=config.rotary_base,
        coordinates=config.rotary_coordinates,
        offset=config.rotary_offset,
        reference=None if grid is None else pair("rotary_grid", grid),
        order=config.rotary_order,
        layout=config.rotary_layout,
    )


def patch(config: ViTConfig, stem: Stem) -> nn.Module:
    if not config.patch_embedding:
        return MapTokens()
    return PatchEmbedding(
        stem.out_channels,
        pair("patch", config.patch),
        config.patch_width,
        bias=config.patch_bias,
        pad=config.pad,
        windows=config.windows,
        norm=config.patch_norm,
        norm_eps=config.norm_eps,
    )


def block(config: ViTConfig, drop_path: float) -> Block:
    mlp = ActivatedMlp if config.mlp_out_activation else Mlp
    return BLOCKS[config.norm](
        config.dim,
        Attention(
            config.dim,
            config.heads,
            config.head_width,
            qkv_bias=config.qkv_bias,
            key_bias=config.key_bias,
            projection_bias=config.projection_bias,
            scale=config.qk_scale,
            qk_norm=config.qk_norm,
            norm_eps=config.norm_eps,
            attention_dropout=config.attention_dropout,
            dropout=config.dropout,
        ),
        mlp(
            config.dim,
            config.mlp_width,
            activation=config.activation,
            norm=config.mlp_norm,
            norm_eps=config.norm_eps,
            dropout=config.dropout,
        ),
        norm_eps=config.norm_eps,
        layer_scale=config.layer_scale,
        drop_path=drop_path,
    )


def pooling(config: ViTConfig) -> nn.Module:
    if config.pool == "sequence":
        return SequencePool(config.dim)
    if config.pool != "attention":
        return nn.Identity()
    dim, heads = config.dim, config.pool_heads
    hidden = config.pool_mlp_dim or config.mlp_width
    return AttentionPool(
        dim,
        CrossAttention(dim, heads or config.heads, dim // heads if heads else config.head_width),
        Mlp(dim, hidden, activation=config.activation),
        norm_eps=config.norm_eps,
    )


def head(config: ViTConfig) -> nn.Module:
    dim, classes = config.pooled_width, config.classes
    match config.head:
        case "none":
            return nn.Identity()
        case "projection":
            return LinearHead(dim, classes, bias=False)
        case "tanh":
            return TanhHead(dim, config.head_widths[0], classes)
        case "mlp":
            return MlpHead(
                dim,
                config.head_widths,
                classes,
                config.norm_eps,
                norm=config.head_norm,
                activation=config.head_activation,
            )
        case "linear" if config.pool == "both":
            return DistilledHead(dim, classes)
    return LinearHead(dim, classes)
