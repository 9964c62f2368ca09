"""The choices of a ViT, and the papers' sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from vitreous.config import Size, checked, choice, pair
from vitreous.errors import ConfigError
from vitreous.layers.mlp import Activation
from vitreous.layers.patch import patch_grid
from vitreous.models.conv_stem import ConvLayer, check_layers, strides
from vitreous.models.model import LARGEST, ModelConfig

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
Pool = Literal[
    "class",
    "mean",
    "mean-all",
    "class+mean",
    "both",
    "attention",
    "sequence",
    "max",
    "first",
    "flatten",
    "none",
]


MAX_MARGIN = 64
"""So many pixels may convolutions without padding take off an image."""


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
    sines_layout: Literal["halves", "pairs"] = "halves"
    """Of sines-1d: all sines before all cosines, or in turn (Vaswani et al. 2017)."""
    sines_prefix: bool = False
    """Of sines-1d: whether the tokens before the patches have the first places."""
    position_grid: Size | None = None
    """The grid that learned-1d positions are stored for, if it is not that of image_size: they are
    resampled at run time (LW-DETR, RF-DETR)."""
    position_antialias: bool = True
    """Whether resampling at run time is antialiased."""
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
    windows: int = 1
    """Attention stays inside windows, so many in height and as many in width, each with tokens
    before its patches of its own (LW-DETR, RF-DETR),"""
    global_blocks: tuple[int, ...] = ()
    """but for these blocks, in which all tokens see each other."""
    registers: int = 0
    """Further learned tokens that nothing reads."""
    pool: Pool = "class"
    """What the head sees: class (token), mean (of patches), mean-all (of all tokens), class+mean
    (side by side), both (tokens of DeiT), attention (a learned query's, to all tokens), sequence
    (the mean by learned weights, of compact transformers), max (of all tokens), first (token,
    whichever it is), flatten (all tokens as one vector), none (all)."""
    pool_heads: int | None = None
    """Heads of attention pooling; as many as in the blocks unless given."""
    pool_mlp_dim: int | None = None
    """Width inside its MLP; that of the blocks unless given."""
    head: Literal["linear", "projection", "tanh", "mlp", "none"] = "linear"
    """projection: a linear layer without bias, into a space shared with text; tanh: with a hidden
    layer, for pre-training; mlp: LayerNorm and two layers with GELU."""
    head_hidden: int | tuple[int, ...] | None = None
    """Width inside the tanh head (dim unless given) or the mlp head (the MLP's width), which may
    have several hidden layers, with a width for each."""
    head_norm: bool = True
    """Whether the mlp head begins with a LayerNorm."""
    head_activation: Activation = "gelu"
    """Of the mlp head."""
    norm: Literal["pre", "post", "stream", "pre+stream"] = "pre"
    """LayerNorm before attention and MLP on their branch (pre), behind the sum (post), or before
    them on the residual stream itself (stream): x = LN(x), then x + f(x). pre+stream: pre for
    attention, stream for the MLP (compact transformers)."""
    norm_eps: float = 1e-6
    final_norm: str | bool = "tokens"
    """LayerNorm behind the last block: on tokens (before pooling, True), pooled (after it), both,
    or none (False)."""
    patch_embedding: bool = True
    """False: the map of stem_layers has the tokens, without a linear layer; patch = 1."""
    patch_norm: bool | Literal["in", "out"] = False
    """LayerNorm before (in) or after (out) the patch embedding; True: both, as in vit-pytorch."""
    patch_bias: bool = True
    """Whether the patch embedding has a bias."""
    embed_norm: bool = False
    """LayerNorm on the tokens, positions added, before the first block (CLIP)."""
    activation: Activation = "gelu"
    mlp_norm: bool = False
    """LayerNorm inside the MLP, behind its activation."""
    mlp_out_activation: bool = False
    """Whether the activation also follows the MLP's second layer, as in Keras' example."""
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
        norm = choice("final_norm", norm, ("tokens", "pooled", "both", "none"))
        object.__setattr__(self, "final_norm", norm)
        unused = {"head_norm": self.head != "mlp", "patch_bias": not self.patch_embedding}
        for name in (name for name, is_unused in unused.items() if is_unused):
            object.__setattr__(self, name, True)  # so that configs of the same model are equal
        if self.head_dim is not None and self.head_dim * self.heads == self.dim:
            object.__setattr__(self, "head_dim", None)
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
        if self.pool in ("class+mean", "flatten") and self.final_norm in ("pooled", "both"):
            raise ConfigError(
                f"pool = {self.pool!r} with final_norm = {self.final_norm!r}: use 'tokens'"
            )
        if self.pool == "flatten" and self.dynamic_size:
            raise ConfigError("pool = 'flatten' has a head for one image size: no dynamic_size")
        if not self.patch_embedding:
            self._check_stem_tokens()
        if self.mlp_out_activation and self.activation == "silu-gated":
            raise ConfigError("mlp_out_activation = True with activation = 'silu-gated': use one")
        if isinstance(self.head_hidden, tuple):
            self._check_head_layers(self.head_hidden)
        if self.pool_heads is not None and self.dim % self.pool_heads:
            raise ConfigError(
                f"dim = {self.dim} does not divide into {self.pool_heads} heads: change pool_heads"
            )
        if self.pool == "both":
            if self.tokens != "class+distillation":
                raise ConfigError("pool = 'both' needs tokens = 'class+distillation'")
            if self.head not in ("linear", "none"):
                raise ConfigError(f"pool = 'both' needs head = 'linear', not {self.head!r}")
        if self.windows > 1:
            self._check_windows()
        if self.position_grid is not None and self.position != "learned-1d":
            raise ConfigError(
                f"position_grid = {self.position_grid} is for position = 'learned-1d', not "
                f"{self.position!r}"
            )
        check_layers("stem_layers", self.stem_layers, self.channels)
        if self.stem_layers and self.stem_layers[0].groups > 1:
            raise ConfigError("stem_layers[0]: groups = 1 is needed where the image is seen first")
        if check_layers("grid_layers", self.grid_layers, self.patch_width) != self.dim:
            raise ConfigError(
                f"patch_dim = {self.patch_width}, dim = {self.dim}: grid_layers must lead from the "
                f"one to the other, the last with width = {self.dim}"
            )
        _ = self.grid

    def _check_windows(self) -> None:
        """Windows are cut once, before the blocks: positions must have been added by then."""
        if self.position in ("relative", "conditional") or "rotary" in self.position:
            raise ConfigError(
                f"windows = {self.windows} with position = {self.position!r}, which acts in or "
                "behind the blocks: use 'learned-1d' or 'sines-2d'"
            )
        wrong = [block for block in self.global_blocks if not 0 <= block < self.depth]
        if wrong:
            raise ConfigError(f"global_blocks: there is no block {wrong[0]} of {self.depth}")

    def _check_head_layers(self, widths: tuple[int, ...]) -> None:
        if not widths or not all(1 <= width <= LARGEST for width in widths):
            raise ConfigError(f"head_hidden = {list(widths)}: expected widths of at least 1")
        if len(widths) > 1 and self.head != "mlp":
            raise ConfigError(
                f"head_hidden = {list(widths)}: a head with several hidden layers is head = 'mlp', "
                f"not {self.head!r}"
            )
        if len(widths) == 1:  # so that configs of the same model are equal
            object.__setattr__(self, "head_hidden", widths[0])

    def _check_stem_tokens(self) -> None:
        """The stem's map has the tokens themselves."""
        width = check_layers("stem_layers", self.stem_layers, self.channels)
        if not self.stem_layers or pair("patch", self.patch) != (1, 1) or self.patch_norm:
            raise ConfigError(
                "patch_embedding = False needs patch = 1, stem_layers and no patch_norm"
            )
        if width != self.patch_width:
            raise ConfigError(
                f"patch_embedding = False: stem_layers give {width} channels, tokens have "
                f"{self.patch_width}: change the width of the last layer, or dim"
            )

    @property
    def grid(self) -> tuple[int, int]:
        """Patches in height and width."""
        return self.grid_of(pair("image_size", self.image_size))

    def grid_of(self, size: tuple[int, int]) -> tuple[int, int]:
        """Tokens in height and width of an image of this size; an error where they do not fit."""
        grid = patch_grid(
            self.map_of(size), pair("patch", self.patch), self.pad, self.stem_stride, self.windows
        )
        for layer in self.grid_layers:
            grid = layer.map_of(grid)
        if grid[0] % self.windows or grid[1] % self.windows:
            raise ConfigError(
                f"a grid of {grid[0]}x{grid[1]} tokens does not divide into {self.windows}x"
                f"{self.windows} windows: use another image size, or pad=True"
            )
        return grid

    def map_of(self, size: tuple[int, int]) -> tuple[int, int]:
        """Height and width of what is cut into patches: the image, or a stem's map of it."""
        for layer in self.stem_layers:
            size = layer.map_of(size)
        return size

    @classmethod
    def size_for(cls, grid: tuple[int, int], fields: Mapping[str, Any]) -> tuple[int, int] | None:
        """The reverse of `grid_of`, by fields of a config: of several sizes the one nearest to what
        the strides divide; None if there is none."""
        parts = ("patch", "stem_layers", "grid_layers")
        read = checked(cls, {name: fields[name] for name in parts if name in fields})
        patch = pair("patch", read.get("patch", cls.patch))
        stem, behind = (read.get(name, ()) for name in parts[1:])
        steps = zip(grid, patch, strides(stem), strides(behind), strict=True)
        height, width = map(math.prod, steps)
        for more in sorted(range(-MAX_MARGIN, MAX_MARGIN + 1), key=abs):
            found = size = height + more, width + more
            try:
                for layer in stem:
                    found = layer.map_of(found)
                found = patch_grid(found, patch, False, strides(stem))
                for layer in behind:
                    found = layer.map_of(found)
            except ConfigError:
                continue
            if found == grid:
                return size
        return None

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
        """How many tokens stand before the patches, of each window."""
        return self.rows + self.registers

    @property
    def reads(self) -> int | None:
        """How many leading tokens the head reads, where it reads no others."""
        if self.windows > 1:
            return None
        return {"class": 1, "first": 1, "both": 2}.get(self.pool)

    @property
    def stored_grid(self) -> tuple[int, int]:
        """That of learned-1d positions."""
        return self.grid if self.position_grid is None else pair("grid", self.position_grid)

    def without_pooling(self) -> dict[str, Any]:
        return {"pool": "none"} if self.pool in ("attention", "sequence") else {}

    @property
    def head_width(self) -> int:
        return self.head_dim or self.dim // self.heads

    @property
    def pooled_width(self) -> int:
        """Channels of what the head sees."""
        if self.pool == "flatten":
            return self.dim * (self.prefix + math.prod(self.grid))
        return 2 * self.dim if self.pool == "class+mean" else self.dim

    @property
    def head_widths(self) -> tuple[int, ...]:
        """Of the hidden layers of a head."""
        if isinstance(self.head_hidden, tuple):
            return self.head_hidden
        usual = self.pooled_width if self.head == "tanh" else self.mlp_width
        return (self.head_hidden or usual,)

    @property
    def mlp_width(self) -> int:
        return self.mlp_dim or 4 * self.dim


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
