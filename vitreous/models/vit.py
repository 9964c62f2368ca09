"""ViT: An Image is Worth 16x16 Words (Dosovitskiy et al. 2021).

An image is cut into patches, each patch becomes a token, a class token is put in front, positions
are added, and a plain transformer encoder does the rest (section 3.1):

    z₀   = [x_class; x¹E; x²E; …; xⁿE] + E_pos      (1)  `embed`
    z'_l = MSA(LN(z_{l-1})) + z_{l-1}               (2)  `encode`: `layers/block.py`
    z_l  = MLP(LN(z'_l)) + z'_l                     (3)
    y    = LN(z_L⁰)                                 (4)  `pool`

What the paper's successors changed is a field of `ViTConfig`, or of a part of it: another position,
another pooling, another head.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn

from vitreous.config import (
    SETTING,
    TRAINING,
    Classes,
    Count,
    Depth,
    Epsilon,
    Fraction,
    Hidden,
    Size,
    choice,
    pair,
)
from vitreous.errors import ConfigError, InputError
from vitreous.layers.attention import Attention, AttentionConfig
from vitreous.layers.block import Block, LayerNormConfig
from vitreous.layers.head import (
    DistilledHead,
    DistilledOutput,
    HeadSizes,
    LinearHeadConfig,
    PoolSizes,
    TokenPoolConfig,
)
from vitreous.layers.init import initialise
from vitreous.layers.kinds import Embedding, Head, Norm, Pool, Position, Stem
from vitreous.layers.mlp import Activation, Mlp, MlpConfig
from vitreous.layers.patch import NoStem, PatchConfig, PatchSizes, PrefixTokens, patch_grid
from vitreous.layers.position import Learned1dConfig, TokenSizes
from vitreous.layers.resample import Grid
from vitreous.layers.tap import show
from vitreous.layers.uncommon import BLOCKS, ActivatedMlp
from vitreous.layers.windows import WindowedBlocks, WindowsConfig
from vitreous.models.model import AttentionLayer, Level, Model, ModelConfig, Places

Tokens = Literal["class", "class+distillation", "none"]
LayerScale = Annotated[float | None, TRAINING]


@dataclass(frozen=True)
class ViTConfig(ModelConfig):
    """What a ViT is made of. The defaults are ViT-B/16 as the paper fine-tunes it."""

    image_size: Size = 224
    """Height and width in pixels, or one number for both."""
    patch: Size = 16
    """Height and width of a patch."""
    pad: Hidden[bool] = False
    """Pad images with zeros at the bottom and right up to whole patches."""
    dynamic_size: Annotated[bool | None, SETTING] = None
    """Whether learned positions are resampled to images of other sizes at run time; unless given,
    for features (and so in a Segmenter or DETR), while the classifier itself refuses them."""
    channels: int = 3
    classes: Classes = 1000
    dim: int = 768
    """Width of a token."""
    depth: Depth = 12
    """Number of blocks."""
    heads: Hidden[int] = 12
    head_dim: int | None = None
    """Width of an attention head; dim / heads unless given."""
    mlp_dim: int | None = None
    """Width inside the MLP; 4 x dim unless given."""
    activation: Activation = "gelu"
    norm: Norm = LayerNormConfig()
    """Of the blocks: layer, batch; and its place."""
    norm_eps: Epsilon = 1e-6
    stem: Stem = NoStem()
    """Convolutions before or behind the patch embedding: none, conv, resnet (of a hybrid)."""
    embedding: Embedding = PatchConfig()
    """Of patches: linear; or none, where the stem's map has the tokens."""
    tokens: Tokens = "class"
    """Tokens before the patches."""
    registers: Count = 0
    """Further learned tokens that nothing reads."""
    position: Position = Learned1dConfig()
    """none, learned-1d, learned-2d, sines-1d, sines-2d, relative, conditional, rotary,
    learned-1d+rotary."""
    embed_norm: bool = False
    """LayerNorm on the tokens, positions added, before the first block (CLIP)."""
    windows: WindowsConfig = WindowsConfig()
    """Attention stays inside windows (LW-DETR, RF-DETR)."""
    attention: AttentionConfig = AttentionConfig()
    """Biases, scale, norm and dropout of the attention."""
    mlp: MlpConfig = MlpConfig()
    """A norm or a second activation in the MLP."""
    layer_scale: LayerScale = None
    """Initial value of a learned factor per channel on each branch; no factor unless given."""
    final_norm: str | bool = "tokens"
    """LayerNorm behind the last block: on tokens (before pooling, True), pooled (after it), both,
    or none (False)."""
    pool: Pool = TokenPoolConfig()
    """What the head sees: class, mean, class+mean, both, none, attention, mean-all, max, first,
    flatten, sequence."""
    head: Head = LinearHeadConfig()
    """linear, projection, tanh, mlp, similarity, none."""
    dropout: Fraction = 0.0
    drop_path: Fraction = 0.0
    """Chance to skip a branch of the last block; grows linearly from 0 at the first."""
    init: Annotated[Literal["trunc-normal", "jax"], TRAINING, SETTING] = "trunc-normal"
    """Initial weights: normal with std 0.02, or as in the paper's code."""

    def __post_init__(self) -> None:
        super().__post_init__()
        norm = self.final_norm
        if isinstance(norm, bool):
            norm = "tokens" if norm else "none"
        norm = choice("final_norm", norm, ("tokens", "pooled", "both", "none"))
        object.__setattr__(self, "final_norm", norm)
        if self.head_dim is not None and self.head_dim * self.heads == self.dim:
            object.__setattr__(self, "head_dim", None)
        if self.head_dim is None and self.dim % self.heads:
            raise ConfigError(
                f"dim = {self.dim} does not divide into {self.heads} heads: change one, "
                "or give head_dim"
            )
        self._check_pool()
        if self.mlp.out_activation and self.activation == "silu-gated":
            raise ConfigError("mlp.out_activation = True with activation = 'silu-gated': use one")
        width = self.stem.out_channels(self.channels, self.dim)
        if self.embedding.kind == "none":
            self._check_stem_tokens(width)
        if self.windows.side > 1:
            self._check_windows()
        self.position.check_sizes(self.token_sizes)

    def _check_pool(self) -> None:
        pool, head = self.pool.kind, self.head.kind
        if pool in ("class", "class+mean") and self.tokens == "none":
            raise ConfigError(f"pool = {pool!r} needs tokens = 'class'; or use pool = 'mean'")
        if pool in ("class+mean", "flatten") and self.final_norm in ("pooled", "both"):
            raise ConfigError(
                f"pool = {pool!r} with final_norm = {self.final_norm!r}: use 'tokens'"
            )
        if pool == "flatten" and self.dynamic_size:
            raise ConfigError("pool = 'flatten' has a head for one image size: no dynamic_size")
        if pool == "both" and self.tokens != "class+distillation":
            raise ConfigError("pool = 'both' needs tokens = 'class+distillation'")
        if pool == "both" and head not in ("linear", "none"):
            raise ConfigError(f"pool = 'both' needs head = 'linear', not {head!r}")

    def _check_windows(self) -> None:
        """Windows are cut once, before the blocks: positions must have been added by then."""
        if not self.position.on_tokens:
            raise ConfigError(
                f"windows.side = {self.windows.side} with position = {self.position.kind!r}, which "
                "acts in or behind the blocks: use 'learned-1d' or 'sines-2d'"
            )
        wrong = [block for block in self.windows.global_blocks if not 0 <= block < self.depth]
        if wrong:
            raise ConfigError(
                f"windows.global_blocks: there is no block {wrong[0]} of {self.depth}"
            )

    def _check_stem_tokens(self, width: int) -> None:
        """The stem's map has the tokens themselves."""
        if self.stem.kind == "none" or pair("patch", self.patch) != (1, 1):
            raise ConfigError("embedding = 'none' needs patch = 1 and stem.layers")
        if width != self.stem.patch_width(self.dim):
            raise ConfigError(
                f"embedding = 'none': stem.layers give {width} channels, tokens have "
                f"{self.stem.patch_width(self.dim)}: change the width of the last layer, or dim"
            )

    @property
    def grid(self) -> Grid:
        """Patches in height and width."""
        return self.grid_of(pair("image_size", self.image_size))

    def grid_of(self, size: tuple[int, int]) -> Grid:
        """Tokens in height and width of an image of this size; an error where they do not fit."""
        side, patch = self.windows.side, pair("patch", self.patch)
        stem = self.stem
        patches = patch_grid(stem.map_of(size), patch, self.pad, stem.stride, side)
        grid = stem.grid_of(patches)
        if grid[0] % side or grid[1] % side:
            raise ConfigError(
                f"a grid of {grid[0]}x{grid[1]} tokens does not divide into {side}x{side} windows: "
                "use another image size, or pad=True"
            )
        return grid

    @property
    def pixels(self) -> tuple[int, int]:
        """Height and width of a token's place in pixels of the image."""
        steps = pair("patch", self.patch), self.stem.stride, self.stem.grid_stride
        height, width = map(math.prod, zip(*steps, strict=True))
        return height, width

    @property
    def rows(self) -> int:
        """How many class and distillation tokens there are."""
        return {"none": 0, "class": 1, "class+distillation": 2}[self.tokens]

    @property
    def prefix(self) -> int:
        """How many tokens stand before the patches, of each window."""
        return self.rows + self.registers

    @property
    def reads(self) -> int | None:
        """How many leading tokens the head reads, where it reads no others."""
        return self.pool.reads if self.windows.side == 1 else None

    def without_pooling(self) -> dict[str, Any]:
        return {"pool": "none"} if self.pool.learned else {}

    @property
    def head_width(self) -> int:
        return self.head_dim or self.dim // self.heads

    @property
    def mlp_width(self) -> int:
        return self.mlp_dim or 4 * self.dim

    @property
    def pooled_width(self) -> int:
        """Channels of what the head sees."""
        return self.pool.width(self.dim, self.prefix + math.prod(self.grid))

    @property
    def token_sizes(self) -> TokenSizes:
        """What positions depend on."""
        return TokenSizes(
            *(self.dim, self.grid, self.rows, self.prefix),
            *(self.depth, self.heads, self.head_width),
        )


class ViT(Model):
    """(b, c, h, w) -> logits (b, classes). See `ViTConfig` for every choice."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.config, self.depth = config, config.depth
        dim, eps, side = config.dim, config.norm_eps, config.windows.side
        self.prefix_length, self.class_tokens = config.prefix * side**2, config.rows
        self.windows = (
            WindowedBlocks(side, config.windows.global_blocks, config.prefix) if side > 1 else None
        )
        self.stem = config.stem.make(config.channels)
        channels = config.stem.out_channels(config.channels, dim)
        patch, width = pair("patch", config.patch), config.stem.patch_width(dim)
        self.patch = config.embedding.make(
            PatchSizes(channels, patch, width, config.pad, side, eps)
        )
        self.grid_stem = config.stem.make_grid(dim)
        self.prefix = PrefixTokens(
            dim,
            class_token=config.rows > 0,
            distillation_token=config.rows > 1,
            registers=config.registers,
        )
        self.position = config.position.make(config.token_sizes)
        self.dropout = nn.Dropout(config.dropout)
        norm = partial(nn.LayerNorm, dim, eps=eps)
        self.embed_norm = norm() if config.embed_norm else nn.Identity()
        drop_path = torch.linspace(0, config.drop_path, config.depth, device="cpu").tolist()
        self.blocks = nn.ModuleList(make_block(config, rate) for rate in drop_path)
        self.norm = norm() if config.final_norm in ("tokens", "both") else nn.Identity()
        self.pooled_norm = norm() if config.final_norm in ("pooled", "both") else nn.Identity()
        self.ends_with_norm = config.final_norm != "none"
        self.pooling = config.pool.make(
            PoolSizes(
                *(dim, self.prefix_length, config.heads, config.head_width),
                *(config.mlp_width, config.activation, eps),
            )
        )
        if config.pool.kind == "both" and config.head.kind == "linear":
            self.head: nn.Module = DistilledHead(dim, config.classes)
        else:
            sizes = HeadSizes(config.pooled_width, config.classes, config.mlp_width, eps)
            self.head = config.head.make(sizes)
        initialise(self, config.init)
        if config.init == "jax":  # the paper's code: the last layer starts at zero
            for name in ("out", "distillation"):
                if hasattr(self.head, name):
                    nn.init.zeros_(getattr(self.head, name).weight)

    def forward(self, images: Tensor) -> Tensor | DistilledOutput:
        self._check(images, dynamic=bool(self.config.dynamic_size))
        x, grid = self.embed(images)  # z₀: (b, p + n, d)
        x = self.encode(x, grid)  # z_L
        return self.head(self.pool(x))  # (b, classes)

    def embed(self, images: Tensor) -> tuple[Tensor, Grid]:
        """Equation 1: z₀ = [x_class; x¹E; …; xⁿE] + E_pos. The paper's model has neither stem nor
        windows; CLIP normalises z₀."""
        self._check(images, dynamic=self.config.dynamic_size is not False)
        patches = self.grid_stem(self.patch(self.stem(images)))  # (b, gh, gw, d)
        grid = (patches.shape[1], patches.shape[2])
        x = self.prefix(show(self, "tokens", patches.flatten(1, 2)))  # (b, p + n, d)
        x = self.dropout(self.position(x, self.config.prefix, grid))
        if self.windows is not None:
            x = self.windows.with_prefixes(x)
        return self.embed_norm(x), grid

    def encode(self, x: Tensor, grid: Grid, first: int = 0, last: int | None = None) -> Tensor:
        """Equations 2 and 3, for the blocks from `first` to before `last`: z_l of z_(l-1).

        E_pos is in z₀; other positions act in the blocks or behind them. Where none does, some of
        the patches may be left out: masked pre-training encodes the visible ones.
        """
        if self.windows is not None:
            return self.windows.encode(list(enumerate(self.blocks))[first:last], x, grid)
        position, p = self.position, self.prefix_length
        rotate = position.rotation(p, grid, x.device)
        for i, block in list(enumerate(self.blocks))[first:last]:
            x = block(x, position.score_bias(i, p, grid), rotate)
            x = position.after(i, x, p, grid)
        return x

    def pool(self, x: Tensor) -> Tensor:
        """Equation 4: y = LN(z_L⁰), or another reading of the tokens."""
        return self.pooled_norm(show(self, "pool", self.pooling(self.norm(x))))

    def final_norm(self, x: Tensor, block: int) -> Tensor:
        return self.pooled_norm(self.norm(x))

    @property
    def width(self) -> int:
        return self.config.dim

    @property
    def pooled_width(self) -> int:
        return self.config.pooled_width

    @property
    def scales_positions(self) -> bool:  # type: ignore[override]
        return self.position.scaled

    def levels(self, size: tuple[int, int]) -> list[Level]:
        config = self.config
        return [Level(config.dim, config.grid_of(size), config.pixels)] * self.depth

    def steps(self) -> dict[str, nn.Module]:
        """Without empty parts, and poolings that learn nothing: what they give is shown."""
        empty = {name for name in ("stem", "grid_stem") if is_empty(getattr(self, name))}
        empty |= set() if self.config.pool.learned else {"pooling"}
        return {name: part for name, part in super().steps().items() if name not in empty}

    def layers(self) -> list[list[nn.Module]]:
        before = [self.stem, self.patch, self.grid_stem]
        before += [self.prefix, self.position, self.embed_norm]
        behind = [self.norm, self.pooling, self.pooled_norm, self.head]
        blocks = ([block, *self.position.parts(i)] for i, block in enumerate(self.blocks))
        return [before, *blocks, behind]

    def undecayed(self) -> list[nn.Parameter]:
        return [*self.prefix.parameters(), *self.position.parameters()]

    def attentions(self, size: tuple[int, int] | None = None) -> list[AttentionLayer]:
        _, grid, pixels = self.levels(size or self.own_size())[-1]
        places = Places(self.prefix_length, grid, pixels)
        found = []
        for i in range(self.depth):
            inside = places
            if self.windows is not None:
                inside = Places(0, grid, pixels, self.windows.places(i, grid))
            found.append(AttentionLayer(f"blocks.{i}.attention", "encoder", inside, inside))
        if self.config.pool.learned:
            probe = Places(1, (0, 0), pixels)
            found.append(AttentionLayer(str(self.pooling.attends), "pool", probe, places))
        return found

    def _check(self, images: Tensor, *, dynamic: bool) -> None:
        self.check_images(images)
        expected, (height, width) = self.own_size(), images.shape[2:]
        if (height, width) == expected:
            return
        if self.config.pool.kind == "flatten" and self.config.head.kind != "none":
            raise InputError(
                f"images of {height}x{width} were given; the head of this model reads all tokens "
                f"of {expected[0]}x{expected[1]} at once: resize the images"
            )
        if not self.position.any_size and not dynamic:
            raise InputError(
                f"images of {height}x{width} were given; this model was made for "
                f"{expected[0]}x{expected[1]}: resize them, or create it by "
                f"vitreous.create(…, dynamic_size=True), or with image_size=({height}, {width}) "
                "and import the weights with resample='bicubic'"
            )
        self.config.grid_of((height, width))


def is_empty(part: nn.Module) -> bool:
    return isinstance(part, nn.Identity)


def make_block(config: ViTConfig, drop_path: float) -> Block:
    dim, eps = config.dim, config.norm_eps
    mlp = ActivatedMlp if config.mlp.out_activation else Mlp
    return BLOCKS[config.norm.place](
        dim,
        Attention(
            *(dim, config.heads, config.head_width, config.attention),
            norm_eps=eps,
            dropout=config.dropout,
        ),
        mlp(
            dim,
            config.mlp_width,
            activation=config.activation,
            norm=config.mlp.norm,
            norm_eps=eps,
            dropout=config.dropout,
        ),
        norm=config.norm,
        norm_eps=eps,
        layer_scale=config.layer_scale,
        drop_path=drop_path,
    )


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
