"""ViT: An Image is Worth 16x16 Words (Dosovitskiy et al. 2021).

An image is cut into patches, each patch becomes a token, a class token is put in front, positions
are added, and a plain transformer encoder does the rest. Every choice of the paper and of its
successors is a field of `ViTConfig`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vitreous.config import Size, choice, pair
from vitreous.errors import ConfigError, InputError
from vitreous.layers.attention import Attention, CrossAttention
from vitreous.layers.block import Block
from vitreous.layers.head import DistilledHead, DistilledOutput, LinearHead, MlpHead, TanhHead
from vitreous.layers.init import initialise
from vitreous.layers.mlp import Activation, Mlp
from vitreous.layers.patch import PatchEmbedding, PrefixTokens, Stem, patch_grid
from vitreous.layers.pool import AttentionPool
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
from vitreous.layers.resample import Grid, Resampling, State
from vitreous.layers.tap import show
from vitreous.models.conv_stem import (
    ConvLayer,
    ConvStem,
    GridStem,
    check_layers,
    layers_of,
    strides,
)
from vitreous.models.model import (
    AttentionLayer,
    Level,
    Model,
    ModelConfig,
    Places,
    Shapes,
    factors,
    numbered,
)

PositionName = Literal[
    "none",
    "learned-1d",
    "learned-2d",
    "sines-1d",
    "sines-2d",
    "relative",
    "conditional",
    "rotary",
    "learned-1d+rotary",
]
Pool = Literal["class", "mean", "class+mean", "both", "attention", "none"]


@dataclass(frozen=True)
class ViTConfig(ModelConfig):
    """What a ViT is made of. The defaults are ViT-B/16 as the paper fine-tunes it."""

    image_size: Size = 224
    """Height and width in pixels, or one number for both."""
    patch: Size = 16
    """Height and width of a patch."""
    pad: bool = False
    """Pad images with zeros at the bottom and right up to whole patches."""
    dynamic_size: bool | None = None
    """Whether learned positions are resampled to images of other sizes at run time; unless given,
    for features (and so in a Segmenter or DETR), while the classifier itself refuses them."""
    channels: int = 3
    stem_layers: tuple[ConvLayer, ...] = ()
    """Convolutions before the patch embedding, each a table of the fields of `ConvLayer`; patches
    are cut from their map."""
    grid_layers: tuple[ConvLayer, ...] = ()
    """The same behind the patch embedding, over the grid of patches."""
    patch_dim: int | None = None
    """Width of the patch embedding where grid_layers follow; dim unless given."""
    classes: int = 1000
    dim: int = 768
    """Width of a token."""
    depth: int = 12
    """Number of blocks."""
    heads: int = 12
    head_dim: int | None = None
    """Width of an attention head; dim / heads unless given."""
    mlp_dim: int | None = None
    """Width inside the MLP; 4 x dim unless given."""
    position: PositionName = "learned-1d"
    """See `layers/position.py`."""
    prefix_positions: bool = True
    """Whether class and distillation token have rows in the table of learned-1d positions."""
    rotary_base: float = 10_000.0
    """Rotary positions turn at frequencies from 1 down to nearly 1 / base."""
    rotary_coordinates: Literal["patches", "centred"] = "patches"
    """Of rotary positions: the number of a patch, or its centre, from -2π to 2π over the image."""
    rotary_offset: float = 0.0
    """The number of the first patch."""
    rotary_grid: Size | None = None
    """Patches are numbered as if there were this many, whatever the image's size."""
    rotary_order: Literal["yx", "xy"] = "yx"
    """Which axis turns the first half of a head."""
    rotary_layout: Literal["pairs", "halves"] = "pairs"
    """What turns together: neighbouring channels, or those of the two halves of a head."""
    tokens: Literal["class", "class+distillation", "none"] = "class"
    """Tokens before the patches."""
    registers: int = 0
    """Further learned tokens that nothing reads."""
    pool: Pool = "class"
    """What the head sees: class (token), mean (of patches), class+mean (side by side), both (tokens
    of DeiT), attention (a learned query's, to all tokens), none (all)."""
    pool_heads: int | None = None
    """Heads of attention pooling; as many as in the blocks unless given."""
    pool_mlp_dim: int | None = None
    """Width inside its MLP; that of the blocks unless given."""
    head: Literal["linear", "projection", "tanh", "mlp", "none"] = "linear"
    """projection: a linear layer without bias, into a space shared with text; tanh: with a hidden
    layer, for pre-training; mlp: LayerNorm and two layers with GELU."""
    head_hidden: int | None = None
    """Width inside the tanh head (dim unless given) or the mlp head (the MLP's width)."""
    norm: Literal["pre", "post"] = "pre"
    """LayerNorm before (pre) or after (post) attention and MLP."""
    norm_eps: float = 1e-6
    final_norm: str | bool = "tokens"
    """LayerNorm behind the last block: on tokens (before pooling, True), pooled (after it) or none
    (False)."""
    patch_norm: bool = False
    """LayerNorm before and after the patch embedding, as in vit-pytorch."""
    patch_bias: bool = True
    """Whether the patch embedding has a bias."""
    embed_norm: bool = False
    """LayerNorm on the tokens, positions added, before the first block (CLIP)."""
    activation: Activation = "gelu"
    mlp_norm: bool = False
    """LayerNorm inside the MLP, behind its activation."""
    qkv_bias: bool = True
    key_bias: bool = True
    """Whether keys have a bias where queries and values have one."""
    projection_bias: bool = True
    """Whether the linear layer behind the heads has a bias."""
    qk_scale: float | None = None
    """Factor on the attention scores; head_dim^-0.5 unless given."""
    qk_norm: bool = False
    """LayerNorm on queries and keys."""
    layer_scale: float | None = None
    """Initial value of a learned factor per channel on each branch; no factor unless given."""
    dropout: float = 0.0
    attention_dropout: float = 0.0
    drop_path: float = 0.0
    """Chance to skip a branch of the last block; grows linearly from 0 at the first."""
    init: Literal["trunc-normal", "jax"] = "trunc-normal"
    """Initial weights: normal with std 0.02, or as in the paper's code."""

    def __post_init__(self) -> None:
        super().__post_init__()
        norm = self.final_norm
        if isinstance(norm, bool):
            norm = "tokens" if norm else "none"
        norm = choice("final_norm", norm, ("tokens", "pooled", "none"))
        object.__setattr__(self, "final_norm", norm)
        if self.head_dim is None and self.dim % self.heads:
            raise ConfigError(
                f"dim = {self.dim} does not divide into {self.heads} heads: change one, "
                "or give head_dim"
            )
        parts = {"learned-2d": 2, "sines-1d": 2, "sines-2d": 4}.get(self.position, 1)
        if self.dim % parts:
            raise ConfigError(
                f"dim = {self.dim} with position {self.position!r}: use a multiple of {parts}"
            )
        if "rotary" in self.position and self.head_width % 4:
            raise ConfigError(
                f"heads of width {self.head_width} with position {self.position!r}: use a multiple "
                "of 4, a pair of channels for each axis"
            )
        if self.pool in ("class", "class+mean") and self.tokens == "none":
            raise ConfigError(f"pool = {self.pool!r} needs tokens = 'class'; or use pool = 'mean'")
        if self.pool == "class+mean" and self.final_norm == "pooled":
            raise ConfigError("pool = 'class+mean' with final_norm = 'pooled': use 'tokens'")
        if self.pool_heads is not None and self.dim % self.pool_heads:
            raise ConfigError(
                f"dim = {self.dim} does not divide into {self.pool_heads} heads: change pool_heads"
            )
        if self.pool == "both":
            if self.tokens != "class+distillation":
                raise ConfigError("pool = 'both' needs tokens = 'class+distillation'")
            if self.head not in ("linear", "none"):
                raise ConfigError(f"pool = 'both' needs head = 'linear', not {self.head!r}")
        check_layers("stem_layers", self.stem_layers, self.channels)
        if self.stem_layers and self.stem_layers[0].groups > 1:
            raise ConfigError("stem_layers[0]: groups = 1 is needed where the image is seen first")
        if check_layers("grid_layers", self.grid_layers, self.patch_width) != self.dim:
            raise ConfigError(
                f"patch_dim = {self.patch_width}, dim = {self.dim}: grid_layers must lead from the "
                f"one to the other, the last with width = {self.dim}"
            )
        _ = self.grid

    @property
    def grid(self) -> tuple[int, int]:
        """Patches in height and width."""
        return self.grid_of(pair("image_size", self.image_size))

    def grid_of(self, size: tuple[int, int]) -> tuple[int, int]:
        """Tokens in height and width of an image of this size; an error where they do not fit."""
        grid = patch_grid(self.map_of(size), pair("patch", self.patch), self.pad, self.stem_stride)
        for layer in self.grid_layers:
            grid = layer.map_of(grid)
        return grid

    def map_of(self, size: tuple[int, int]) -> tuple[int, int]:
        """Height and width of what is cut into patches: the image, or a stem's map of it."""
        for layer in self.stem_layers:
            size = layer.map_of(size)
        return size

    @property
    def stem_stride(self) -> tuple[int, int]:
        return strides(self.stem_layers)

    @property
    def pixels(self) -> tuple[int, int]:
        """Height and width of a token's place in pixels of the image."""
        steps = pair("patch", self.patch), self.stem_stride, strides(self.grid_layers)
        height, width = map(math.prod, zip(*steps, strict=True))
        return height, width

    @property
    def patch_width(self) -> int:
        return self.patch_dim or self.dim

    @property
    def rows(self) -> int:
        """How many class and distillation tokens there are."""
        return {"none": 0, "class": 1, "class+distillation": 2}[self.tokens]

    @property
    def table_rows(self) -> int:
        """How many of them have a row in a table of learned positions."""
        return self.rows if self.prefix_positions else 0

    @property
    def prefix(self) -> int:
        """How many tokens stand before the patches."""
        return self.rows + self.registers

    def without_pooling(self) -> dict[str, Any]:
        return {"pool": "none"} if self.pool == "attention" else {}

    @property
    def head_width(self) -> int:
        return self.head_dim or self.dim // self.heads

    @property
    def pooled_width(self) -> int:
        """Channels of what the head sees."""
        return 2 * self.dim if self.pool == "class+mean" else self.dim

    @property
    def mlp_width(self) -> int:
        return self.mlp_dim or 4 * self.dim


class ViT(Model):
    """(b, c, h, w) -> logits (b, classes). See `ViTConfig` for every choice.

    `stem` turns images into a feature map that is cut into patches instead (hybrid).
    """

    behind_maps = ("head.*", "pooling.*")

    def __init__(self, config: ViTConfig, stem: Stem | None = None) -> None:
        super().__init__()
        self.config = config
        dim, self.depth, self.prefix_length = config.dim, config.depth, config.prefix
        self.class_tokens = config.rows
        self.stem = stem = stem or ConvStem(config.stem_layers, config.channels)
        self.patch = PatchEmbedding(
            stem.out_channels,
            pair("patch", config.patch),
            config.patch_width,
            bias=config.patch_bias,
            pad=config.pad,
            norm=config.patch_norm,
            norm_eps=config.norm_eps,
        )
        self.grid_stem = GridStem(config.grid_layers, config.patch_width)
        self.prefix = PrefixTokens(
            dim,
            class_token=config.rows > 0,
            distillation_token=config.rows > 1,
            registers=config.registers,
        )
        self.position = POSITIONS[config.position](config)
        self.dropout = nn.Dropout(config.dropout)
        norm = nn.LayerNorm(dim, eps=config.norm_eps) if config.embed_norm else nn.Identity()
        self.embed_norm = norm
        drop_path = torch.linspace(0, config.drop_path, config.depth, device="cpu").tolist()
        self.blocks = nn.ModuleList(_block(config, rate) for rate in drop_path)
        norms = {config.final_norm: nn.LayerNorm(dim, eps=config.norm_eps)}
        self.norm = norms.get("tokens", nn.Identity())
        self.pooled_norm = norms.get("pooled", nn.Identity())
        self.ends_with_norm = config.final_norm != "none"
        self.pooling = _pooling(config) if config.pool == "attention" else nn.Identity()
        self.head = _head(config)
        initialise(self, config.init)
        if config.init == "jax":  # the paper's code: the last layer starts at zero
            for name in ("out", "distillation"):
                if hasattr(self.head, name):
                    nn.init.zeros_(getattr(self.head, name).weight)
        if stem.input_weight is not None:
            self.input_weight = f"stem.{stem.input_weight}"
        else:
            self.input_weight = "patch.weight"
            if config.patch_norm:
                self.input_norms = ("patch.norm_in.weight", "patch.norm_in.bias")

    def forward(self, images: Tensor) -> Tensor | DistilledOutput:
        self._check(images, dynamic=bool(self.config.dynamic_size))
        x, grid = self.embed(images)
        # Where the head reads only leading tokens, the last block computes no others: exact.
        x = self.encode(x, grid, reads={"class": 1, "both": 2}.get(self.config.pool))
        return self.head(self.pool(x))

    def embed(self, images: Tensor) -> tuple[Tensor, Grid]:
        """Equation 1: z₀ = [x_class; x¹E; …; xⁿE] + E_pos; CLIP normalises it."""
        self._check(images, dynamic=self.config.dynamic_size is not False)
        patches = self.grid_stem(self.patch(self.stem(images)))  # (b, gh, gw, d)
        grid = (patches.shape[1], patches.shape[2])
        x = self.prefix(show(self, "tokens", patches.flatten(1, 2)))  # (b, p + n, d)
        x = self.dropout(self.position(x, self.prefix_length, grid))
        return self.embed_norm(x), grid

    def encode(
        self,
        x: Tensor,
        grid: Grid,
        first: int = 0,
        last: int | None = None,
        *,
        reads: int | None = None,
    ) -> Tensor:
        """Equations 2 and 3, for the blocks from `first` to before `last`: z_l of z_(l-1).

        If positions act on the tokens alone, some of the patches may be left out: masked
        pre-training encodes the visible ones. With `reads=r`, only the first r tokens leave the
        last block.
        """
        position, p = self.position, self.prefix_length
        rotate = position.rotation(p, grid, x.device)
        for i, block in list(enumerate(self.blocks))[first:last]:
            options = {"bias": position.score_bias(i, p, grid), "rotate": rotate}
            if reads is not None and i == self.depth - 1:
                return block(x, **options, queries=reads)
            x = position.after(i, block(x, **options), p, grid)
        return x

    def pool(self, x: Tensor) -> Tensor:
        """Equation 4: y = LN(z_L⁰), or another reading of the tokens."""
        x = self.norm(x)
        match self.config.pool:
            case "class":
                x = x[:, 0]
            case "both":
                x = x[:, :2]
            case "mean":
                x = x[:, self.prefix_length :].mean(dim=1)
            case "class+mean":
                x = torch.cat((x[:, 0], x[:, self.prefix_length :].mean(dim=1)), dim=-1)
            case "attention":
                x = self.pooling(x)
        return self.pooled_norm(show(self, "pool", x))

    def final_norm(self, x: Tensor, block: int) -> Tensor:
        return self.pooled_norm(self.norm(x))

    @property
    def width(self) -> int:
        return self.config.pooled_width

    @property
    def scales_positions(self) -> bool:  # type: ignore[override]
        return self.position.scaled

    def levels(self, size: tuple[int, int]) -> list[Level]:
        config = self.config
        return [Level(config.dim, config.grid_of(size), config.pixels)] * self.depth

    def layers(self) -> list[list[nn.Module]]:
        before = [
            self.stem,
            self.patch,
            self.grid_stem,
            self.prefix,
            self.position,
            self.embed_norm,
        ]
        behind = [self.norm, self.pooling, self.pooled_norm, self.head]
        blocks = ([block, *self.position.parts(i)] for i, block in enumerate(self.blocks))
        return [before, *blocks, behind]

    def undecayed(self) -> list[nn.Parameter]:
        return [*self.prefix.parameters(), *self.position.parameters()]

    def attentions(self, size: tuple[int, int] | None = None) -> list[AttentionLayer]:
        _, grid, pixels = self.levels(size or self.own_size())[-1]
        places = Places(self.prefix_length, grid, pixels)
        found = [
            AttentionLayer(f"blocks.{i}.attention", "encoder", places, places)
            for i in range(self.depth)
        ]
        if self.config.pool == "attention":
            probe = Places(1, (0, 0), pixels)
            found.append(AttentionLayer("pooling.attention", "pool", probe, places))
        return found

    def resample(self, state: State, mode: str | None, source: Grid | None) -> Resampling:
        done, position = Resampling(), self.position
        for name in position.on_grid:
            key = f"position.{name}"
            if key not in state or state[key].ndim != position.get_parameter(name).ndim:
                continue  # import refuses it for its shape
            if isinstance(position, Learned1d):
                grid = self._fit_rows(position, state, key, source, done)
            else:
                grid = position.made_for(name, state[key], source)
                if grid is None:
                    done.refused[key] = f"{len(state[key])} rows " + (
                        "are not the offsets of a square: pass source_grid=(height, width)"
                        if source is None
                        else f"are not the offsets of a grid of {source[0]}x{source[1]}"
                    )
            if grid is not None:
                resample = partial(position.resample, name)
                done.resize(state, key, "positions", (grid, position.grid), mode, resample)
        return done

    def _fit_rows(
        self, position: Learned1d, state: State, key: str, source: Grid | None, done: Resampling
    ) -> Grid | None:
        """Give a table as many rows before the patches as ours has; return the grid of the rest."""
        table, ours = state[key], position.rows
        rows = position.divide(len(table), (self.config.rows, self.config.prefix), source)
        if rows is None:
            done.refused[key] = (
                f"{len(table)} rows, {ours} of them for tokens before the patches, "
                + (
                    "can be read in no way or in several: pass source_grid=(height, width)"
                    if source is None
                    else f"do not make a grid of {source[0]}x{source[1]}"
                )
            )
            return None
        if rows.prefix < ours:
            state[key] = torch.cat((table.new_zeros(ours, table.shape[1]), table))
            done.notes[key] = "without rows for tokens before the patches; they are zero"
        elif rows.prefix > ours:
            # A learned token plus its row is a learned token.
            state[key] = torch.cat((table[:ours], table[rows.prefix :]))
            for token, (first, last) in self._rows_of_tokens().items():
                added = table[max(first, ours) : min(last, rows.prefix)]
                if token in state and len(added):
                    state[token] = state[token] + added.reshape(state[token].shape)
                    done.notes[key] = "rows of tokens before the patches were added to the tokens"
        return rows.grid

    def _rows_of_tokens(self) -> dict[str, tuple[int, int]]:
        """The rows, from and to before, that the tokens have in a table with a row for each."""
        rows, prefix = self.config.rows, self.config.prefix
        tokens = ("prefix.class_token", "prefix.distillation_token")[:rows]
        places = {token: (row, row + 1) for row, token in enumerate(tokens)}
        return {**places, "prefix.registers": (rows, prefix)}

    def upgraded(self, state: State) -> State:
        """Relative positions were (depth, heads, 2·gh-1, 2·gw-1), those of the prefix apart."""
        old = ("position.bias", "position.prefix_bias")
        between, prefix = (state.get(name) for name in old)
        if not isinstance(self.position, Relative) or between is None or between.ndim != 4:
            return state
        kept = {name: value for name, value in state.items() if name not in old}
        for block, offsets in enumerate(between.flatten(2)):
            rows = (offsets,) if prefix is None else (offsets, prefix[block])
            kept[f"position.blocks.{block}.table"] = torch.cat(rows, dim=1).T.contiguous()
        return kept

    def with_rows(self, state: State, rows: str) -> State:
        """The reverse of `_fit_rows`."""
        table, count = state["position.table"], self.config.rows
        if not self.config.prefix_positions:
            return state  # with rows for no token: every library that has registers has this form
        if rows == "all":
            zeros = table.new_zeros(self.config.registers, table.shape[1])
            return {**state, "position.table": torch.cat((table[:count], zeros, table[count:]))}
        # Adding a token's row to the token itself leaves the outputs unchanged.
        tokens = ("prefix.class_token", "prefix.distillation_token")[:count]
        moved = {token: state[token] + table[row] for row, token in enumerate(tokens)}
        return {**state, **moved, "position.table": table[count:]}

    @classmethod
    def fields_of(cls, shapes: Shapes, axes: Mapping[str, int]) -> list[dict[str, Any]]:
        patch, block = shapes.get("patch.weight", ()), "blocks.0"
        joined = shapes.get(f"{block}.attention.projection.weight", ())
        inside, outside = (shapes.get(f"{block}.mlp.fc{k}.weight", ()) for k in (1, 2))
        if (len(patch), len(joined), len(inside), len(outside)) != (4, 2, 2, 2):
            return []
        tokens = "class" if "prefix.class_token" in shapes else "none"
        if "prefix.distillation_token" in shapes:
            tokens = "class+distillation"
        registers = shapes.get("prefix.registers", (0,))[0]
        dim, first = joined[0], shapes.get("stem.layers.0.conv.weight", patch)
        shown: dict[str, Any] = {
            "dim": dim,
            "channels": first[1],
            "patch": patch[2:],
            "depth": numbered(shapes, "blocks"),
            "mlp_dim": outside[1],
            "tokens": tokens,
            "registers": registers,
            **{field: name in shapes for field, name in SHOWN_BY.items()},
            **_attention_fields(shapes, axes, dim, joined[1]),
            **_head_fields(shapes),
        }
        if inside[0] == 2 * outside[1]:
            shown["activation"] = "silu-gated"
        if f"{block}.scale1.gamma" in shapes:
            shown["layer_scale"] = 1e-5  # its first value, which the weights replace
        if f"{block}.attention.qv_bias" in shapes:
            shown |= {"qkv_bias": True, "key_bias": False}
        if "pooling.probe" in shapes:
            shown["pool"] = "attention"
        elif tokens == "none" or shown["final_norm"] == "pooled":
            shown["pool"] = "mean"
        elif shapes.get("head.out.weight", ())[1:] == (2 * dim,):
            shown["pool"] = "class+mean"
        position, grids = _position_fields(shapes, tokens, registers)
        shown |= position
        stems = {
            "stem_layers": layers_of(shapes, "stem", first[1], halves=True),
            "grid_layers": layers_of(shapes, "grid_stem", patch[0], halves=False),
        }
        ph, pw = patch[2:]
        for field, rows in stems.items():
            if rows:
                steps = math.prod(row["stride"] for row in rows)
                ph, pw, shown[field] = ph * steps, pw * steps, rows
                shown["guessed"] = (*shown.get("guessed", ()), field)
        if patch[0] != dim:
            shown["patch_dim"] = patch[0]
        sizes = [(gh * ph, gw * pw) for gh, gw in grids]
        return [{**shown, "image_size": size} for size in sizes] or [shown]

    def _check(self, images: Tensor, *, dynamic: bool) -> None:
        self.check_images(images)
        expected, (height, width) = self.own_size(), images.shape[2:]
        if (height, width) == expected:
            return
        if not self.position.any_size and not dynamic:
            raise InputError(
                f"images of {height}x{width} were given; this model was made for "
                f"{expected[0]}x{expected[1]}: resize them, or create it by "
                f"vitreous.create(…, dynamic_size=True), or with image_size=({height}, {width}) "
                "and import the weights with resample='bicubic'"
            )
        self.config.grid_of((height, width))


SHOWN_BY = {
    "qkv_bias": "blocks.0.attention.qkv.bias",
    "projection_bias": "blocks.0.attention.projection.bias",
    "qk_norm": "blocks.0.attention.q_norm.weight",
    "patch_norm": "patch.norm_in.weight",
    "patch_bias": "patch.bias",
    "embed_norm": "embed_norm.weight",
    "mlp_norm": "blocks.0.mlp.norm.weight",
}
"""Fields that are true where a state dict has this parameter."""


def _attention_fields(
    shapes: Shapes, axes: Mapping[str, int], dim: int, joined: int
) -> dict[str, Any]:
    """Heads, where they show: by a norm or a bias per head, or by the axes of a checkpoint.
    joined: the width of all heads together."""
    heads = axes.get("heads")
    if len(bias := shapes.get("position.blocks.0.table", ())) == 2:
        heads = bias[1]
    if (norm := shapes.get("blocks.0.attention.q_norm.weight")) and joined % norm[0] == 0:
        heads = joined // norm[0] if norm[0] < joined else heads
    if heads is None:
        if joined == dim:
            return {}
        width = 64 if joined % 64 == 0 else joined  # 64 is usual
        guessed = ("heads", "head_dim")
        return {"heads": joined // width, "head_dim": width, "guessed": guessed}
    same = heads * (dim // heads) == joined
    return {"heads": heads, **({} if same else {"head_dim": joined // heads})}


def _head_fields(shapes: Shapes) -> dict[str, Any]:
    found: dict[str, Any] = {"final_norm": "none", "head": "none"}
    if "norm.weight" in shapes:
        found["final_norm"] = "tokens"
    elif "pooled_norm.weight" in shapes:
        found["final_norm"] = "pooled"
    if out := shapes.get("head.out.weight"):
        head = "linear" if "head.out.bias" in shapes else "projection"
        found |= {"head": head, "classes": out[0]}
    if out and (hidden := shapes.get("head.hidden.weight")):
        found["head"] = "mlp" if "head.norm.weight" in shapes else "tanh"
        found["head_hidden"] = hidden[0]
    if "head.distillation.weight" in shapes:
        found["pool"] = "both"
    return found


def _position_fields(
    shapes: Shapes, tokens: str, registers: int
) -> tuple[dict[str, Any], list[Grid]]:
    """The kind of position, where it shows, and the grids that it may be for."""
    if table := shapes.get("position.table"):
        rows = {"none": 0, "class": 1, "class+distillation": 2}[tokens]
        # Which tokens before the patches have a row too: those two, registers as well, or none.
        for before in dict.fromkeys((rows, rows + registers, 0)):
            rest = table[0] - before
            if rest > 0 and len(grids := factors(rest)) == 1:
                return {"position": "learned-1d", "prefix_positions": before >= rows}, grids
        return {"position": "learned-1d"}, factors(table[0] - rows)
    if (y := shapes.get("position.y")) and (x := shapes.get("position.x")):
        return {"position": "learned-2d"}, [(y[0], x[0])]
    if bias := shapes.get("position.blocks.0.table"):
        offsets = max(bias[0] - (3 if registers or tokens != "none" else 0), 0)
        return {"position": "relative"}, [((h + 1) // 2, (w + 1) // 2) for h, w in factors(offsets)]
    generator = "position.generator.weight" in shapes
    return {"position": "conditional"} if generator else {}, []


POSITIONS: dict[str, Callable[[ViTConfig], Position]] = {
    "none": lambda config: Position(),
    "learned-1d": lambda config: Learned1d(config.dim, config.grid, config.table_rows),
    "learned-2d": lambda config: Learned2d(config.dim, config.grid),
    "sines-1d": lambda config: Sines1d(),
    "sines-2d": lambda config: Sines2d(),
    "relative": lambda config: Relative(config.depth, config.heads, config.grid, config.prefix),
    "conditional": lambda config: Conditional(config.dim),
    "rotary": lambda config: _rotary(config),
    "learned-1d+rotary": lambda config: LearnedRotary(
        config.dim, config.grid, config.table_rows, _rotary(config)
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


def _block(config: ViTConfig, drop_path: float) -> Block:
    return Block(
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
        Mlp(
            config.dim,
            config.mlp_width,
            activation=config.activation,
            norm=config.mlp_norm,
            norm_eps=config.norm_eps,
            dropout=config.dropout,
        ),
        norm=config.norm,
        norm_eps=config.norm_eps,
        layer_scale=config.layer_scale,
        drop_path=drop_path,
    )


def _pooling(config: ViTConfig) -> AttentionPool:
    dim, heads = config.dim, config.pool_heads
    hidden = config.pool_mlp_dim or config.mlp_width
    return AttentionPool(
        dim,
        CrossAttention(dim, heads or config.heads, dim // heads if heads else config.head_width),
        Mlp(dim, hidden, activation=config.activation),
        norm_eps=config.norm_eps,
    )


def _head(config: ViTConfig) -> nn.Module:
    dim, classes, hidden = config.pooled_width, config.classes, config.head_hidden
    match config.head:
        case "none":
            return nn.Identity()
        case "projection":
            return LinearHead(dim, classes, bias=False)
        case "tanh":
            return TanhHead(dim, hidden or dim, classes)
        case "mlp":
            return MlpHead(dim, hidden or config.mlp_width, classes, config.norm_eps)
        case "linear" if config.pool == "both":
            return DistilledHead(dim, classes)
    return LinearHead(dim, classes)


# Paper, table 1; Ti, S: Steiner et al. 2021; g, G: Zhai et al. 2021.
SIZES: dict[str, dict[str, Any]] = {
    "ti": {"dim": 192, "depth": 12, "heads": 3, "mlp_dim": 768},
    "s": {"dim": 384, "depth": 12, "heads": 6, "mlp_dim": 1536},
    "b": {"dim": 768, "depth": 12, "heads": 12, "mlp_dim": 3072},
    "l": {"dim": 1024, "depth": 24, "heads": 16, "mlp_dim": 4096},
    "h": {"dim": 1280, "depth": 32, "heads": 16, "mlp_dim": 5120},
    "g": {"dim": 1408, "depth": 40, "heads": 16, "mlp_dim": 6144},
    "G": {"dim": 1664, "depth": 48, "heads": 16, "mlp_dim": 8192},
}
VARIANTS = {
    f"vit-{size}/{patch}": ViTConfig(patch=patch, **fields)
    for size, fields in SIZES.items()
    for patch in (8, 14, 16, 32)
}
