"""Swin Transformer: Hierarchical Vision Transformer using Shifted Windows (Liu et al. 2021).

Blocks work on a map of tokens, (b, h, w, d). Attention is computed inside windows, which every
second block shifts by half their size, so that information passes between them. Between stages,
patches are merged two by two. So the cost grows with the number of patches and not with its square,
and there are maps of four sizes, as dense tasks need them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitreous.config import (
    Classes,
    Depths,
    Epsilon,
    Fraction,
    Hidden,
    Positive,
    Size,
    Uncommon,
    pair,
)
from vitreous.errors import ConfigError
from vitreous.layers.attention import Attention, AttentionConfig, Rotate
from vitreous.layers.block import Block
from vitreous.layers.grid_positions import relative_index
from vitreous.layers.head import HeadSizes, LinearHeadConfig
from vitreous.layers.init import initialise
from vitreous.layers.mlp import Mlp
from vitreous.layers.patch import PatchEmbedding, PatchSizes
from vitreous.layers.resample import Grid, resample_grid
from vitreous.layers.tap import show
from vitreous.models.model import AttentionLayer, Level, Model, ModelConfig, Places


@dataclass(frozen=True)
class SwinConfig(ModelConfig):
    """What a Swin is made of. The defaults are Swin-T."""

    image_size: Size = 224
    """Height and width in pixels that it is made for; it takes any size."""
    patch: Size = 4
    channels: int = 3
    classes: Classes = 1000
    dim: int = 96
    """Width of a token in the first stage; it doubles with each further one."""
    depths: Depths = (2, 2, 6, 2)
    """Blocks in each stage."""
    heads: Hidden[tuple[int, ...]] = (3, 6, 12, 24)
    """Attention heads in each stage."""
    window: Size = 7
    """Patches in height and width of a window."""
    shifted: Annotated[bool, Uncommon((False,))] = True
    """Whether the windows of every second block are shifted; without, nothing passes between
    windows but by patch merging (table 4)."""
    mlp_ratio: Positive = 4.0
    """Width inside the MLP, as a multiple of the token's."""
    head: LinearHeadConfig = LinearHeadConfig()
    """linear, none."""
    norm_eps: Epsilon = 1e-5
    qkv_bias: bool = True
    dropout: Fraction = 0.0
    attention_dropout: Fraction = 0.0
    drop_path: Fraction = 0.0
    """Chance to skip a branch of the last block; grows linearly from 0 at the first."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.depths) != len(self.heads) or not self.depths:
            raise ConfigError(
                f"depths = {self.depths} and heads = {self.heads}: expected one number each for "
                "every stage"
            )
        if min(*self.depths, *self.heads, 1) < 1:
            raise ConfigError(f"depths = {self.depths}, heads = {self.heads}: expected at least 1")
        for stage, heads in enumerate(self.heads):
            if (self.dim << stage) % heads:
                raise ConfigError(
                    f"stage {stage} is {self.dim << stage} wide, which does not divide into "
                    f"{heads} heads: change dim or heads"
                )


class Windows(NamedTuple):
    """How a map falls into windows, for one size of map."""

    order: Tensor
    """(h · w,): the tokens of the map, window by window."""
    inverse: Tensor
    """(h · w,): and back."""
    offsets: Tensor
    """(n, n): the row of the bias table for the offset between two tokens of a window."""
    mask: Tensor | None
    """(windows, n, n), where windows are shifted: what is added to the scores (figure 4)."""


def windows_of(size: Grid, window: Grid, shift: Grid, device: torch.device) -> Windows:
    """For a map of whole windows. A cyclic shift puts strips from opposite edges into one window.
    The mask keeps them apart: 0 between tokens that were neighbours before, -inf between those that
    were not."""
    (h, w), (wh, ww) = size, window

    def partition(on_map: Tensor) -> Tensor:  # (h, w) -> (windows, n)
        moved = on_map.roll((-shift[0], -shift[1]), (0, 1))
        return moved.view(h // wh, wh, w // ww, ww).transpose(1, 2).reshape(-1, wh * ww)

    order = partition(torch.arange(h * w, device=device).view(h, w)).flatten()
    inverse, index = order.argsort(), relative_index(window, device)
    if not any(shift):
        return Windows(order, inverse, index, None)
    ys, xs = torch.arange(h, device=device), torch.arange(w, device=device)
    wrapped = (ys < shift[0])[:, None] * 2 + (xs < shift[1])[None]  # (h, w)
    strip = partition(wrapped)
    apart = strip[:, :, None] != strip[:, None]
    mask = torch.zeros(apart.shape, device=device).masked_fill(apart, -torch.inf)
    return Windows(order, inverse, index, mask)


class WindowAttention(Attention):
    """Attention inside windows of a map: (b, h, w, d) -> (b, h, w, d) (section 3.2).

    A map that is not made of whole windows is padded with zeros at the bottom and right, as in the
    paper's detection code. `bias_table` ((2·wh-1)·(2·ww-1), heads) has a bias for each offset
    between query and key (equation 4).
    """

    def __init__(
        self, dim: int, heads: int, window: Grid, *, shifted: bool, **options: Any
    ) -> None:
        super().__init__(dim, heads, dim // heads, **options)
        self.window, self.shifted = window, shifted
        offsets = (2 * window[0] - 1) * (2 * window[1] - 1)
        self.bias_table = nn.Parameter(torch.empty(offsets, heads))
        nn.init.trunc_normal_(self.bias_table, std=0.02)

    def forward(
        self, x: Tensor, bias: Tensor | None = None, rotate: Rotate | None = None
    ) -> Tensor:
        """No bias and no rotation are added to those of windows."""
        assert bias is None
        assert rotate is None
        b, h, w, d = x.shape
        size = self.padded((h, w))
        windows = self.windows(size, x.device)
        cut = self.cut(x, size, windows)  # (b · windows, n, d)
        out = super().forward(cut, self._bias(b, windows))
        x = out.reshape(b, -1, d).index_select(1, windows.inverse).view(b, *size, d)
        return x if size == (h, w) else x[:, :h, :w]

    def cut(self, x: Tensor, size: Grid, windows: Windows) -> Tensor:
        """(b, h, w, d), padded to `size` -> (b · windows, n, d). To shift the map and to cut it are
        one gathering of rows."""
        _, h, w, d = x.shape
        if size != (h, w):
            x = F.pad(x, (0, 0, 0, size[1] - w, 0, size[0] - h))
        tokens = x.flatten(1, 2).index_select(1, windows.order)
        return tokens.view(-1, self.window[0] * self.window[1], d)

    def padded(self, size: Grid) -> Grid:
        """The size of a map that is padded to whole windows."""
        (h, w), (wh, ww) = size, self.window
        return h + -h % wh, w + -w % ww

    def shift(self, size: Grid) -> Grid:
        """How far windows are shifted on a map of this size: not at all if there is only one."""
        (h, w), (wh, ww) = size, self.window
        return (wh // 2 * (self.shifted and h > wh), ww // 2 * (self.shifted and w > ww))

    def windows(self, size: Grid, device: torch.device) -> Windows:
        """How a map of whole windows is cut."""
        return windows_of(size, self.window, self.shift(size), device)

    def _bias(self, batch: int, windows: Windows) -> Tensor:
        """(1, heads, n, n), or (b · windows, heads, n, n) where windows are shifted."""
        bias = self.bias_table[windows.offsets].permute(2, 0, 1)[None]
        bias = show(self, "bias", bias, inside=True)
        if windows.mask is None:
            return bias
        return (bias + windows.mask[:, None].to(bias.dtype)).repeat(batch, 1, 1, 1)

    def places(self, size: Grid) -> Tensor:
        """(windows, n): which token of a map each token of a window is; -1 for padding."""
        (h, w), (wh, ww) = size, self.window
        numbers = torch.full(self.padded(size), -1)
        numbers[:h, :w] = torch.arange(h * w).view(h, w)
        order = self.windows(self.padded(size), numbers.device).order
        return numbers.flatten()[order].view(-1, wh * ww)

    def made_for(self, table: Tensor, source: Grid | None) -> Grid | None:
        """The window that a bias table was made for: `source`, else ours or a square one."""
        half = (math.isqrt(len(table)) + 1) // 2
        for window in (source,) if source is not None else (self.window, (half, half)):
            if len(table) == (2 * window[0] - 1) * (2 * window[1] - 1):
                return window
        return None

    def resample(self, table: Tensor, source: Grid, mode: str) -> Tensor:
        """A bias table that was made for windows of `source`, for ours."""
        before, after = ((2 * h - 1, 2 * w - 1) for h, w in (source, self.window))
        return resample_grid(table.unflatten(0, before), after, mode).flatten(0, 1)


class PatchMerging(nn.Module):
    """(b, h, w, d) -> (b, h/2, w/2, 2d): four neighbours become one token (section 3.1)."""

    def __init__(self, dim: int, norm_eps: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4 * dim, eps=norm_eps)
        self.reduction = nn.Linear(4 * dim, 2 * dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        h, w = x.shape[1:3]
        if h % 2 or w % 2:
            x = F.pad(x, (0, 0, 0, w % 2, 0, h % 2))
        b, h, w, d = x.shape
        # the four in the paper's order: down first, then right
        x = x.reshape(b, h // 2, 2, w // 2, 2, d).permute(0, 1, 3, 4, 2, 5).flatten(3)
        return self.reduction(self.norm(x))


class Stage(nn.Module):
    """Patch merging, if any; then blocks with regular and shifted windows in turn."""

    channels_last = True

    def __init__(self, merge: nn.Module, blocks: Iterable[Block]) -> None:
        super().__init__()
        self.merge = merge
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor) -> Tensor:
        x = self.merge(x)
        for block in self.blocks:
            x = block(x)
        return x


class Swin(Model):
    """(b, c, h, w) -> logits (b, classes). See `SwinConfig`."""

    ends_with_norm = True

    def __init__(self, config: SwinConfig) -> None:
        super().__init__()
        self.config, self.depth = config, len(config.depths)
        patch = pair("patch", config.patch)
        self.patch = PatchEmbedding(PatchSizes(config.channels, patch, config.dim, pad=True))
        self.patch_norm = nn.LayerNorm(config.dim, eps=config.norm_eps)
        self.dropout = nn.Dropout(config.dropout)
        rates = torch.linspace(0, config.drop_path, sum(config.depths), device="cpu").split(
            list(config.depths)
        )
        self.stages = nn.ModuleList(
            _stage(config, number, part.tolist()) for number, part in enumerate(rates)
        )
        dim = config.dim << (self.depth - 1)
        self.norm = nn.LayerNorm(dim, eps=config.norm_eps)
        self.head = config.head.make(HeadSizes(dim, config.classes))
        initialise(self, "trunc-normal")

    def forward(self, images: Tensor) -> Tensor:
        x, grid = self.embed(images)
        x = self.encode(x, grid)
        return self.head(self.pool(x))

    def embed(self, images: Tensor) -> tuple[Tensor, Grid]:
        self.check_images(images)
        x = self.dropout(self.patch_norm(self.patch(images)))  # (b, gh, gw, d)
        return x.flatten(1, 2), (x.shape[1], x.shape[2])

    def encode(self, x: Tensor, grid: Grid, first: int = 0, last: int | None = None) -> Tensor:
        """Section 3.1, figure 3: the stages from `first` to before `last`, on the map."""
        x = x.unflatten(1, grid)
        for stage in list(self.stages)[first:last]:
            x = stage(x)
        return x.flatten(1, 2)

    def pool(self, x: Tensor) -> Tensor:
        return show(self, "pool", self.norm(x).mean(dim=1))

    def final_norm(self, x: Tensor, block: int) -> Tensor:
        return self.norm(x) if block == self.depth - 1 else x

    def levels(self, size: tuple[int, int]) -> list[Level]:
        """A pyramid: strides 4, 8, 16 and 32."""
        found = []
        for i in range(self.depth):
            ph, pw = (side << i for side in pair("patch", self.config.patch))
            grid = (-(-size[0] // ph), -(-size[1] // pw))
            found.append(Level(self.config.dim << i, grid, (ph, pw)))
        return found

    def layers(self) -> list[list[nn.Module]]:
        """Patch merging belongs to the first block of its stage."""
        blocks: list[list[nn.Module]] = []
        for stage in self.stages:
            merge, inner = stage.children()
            first, *others = inner.children()
            blocks += [[merge, first], *([block] for block in others)]
        return [[self.patch, self.patch_norm], *blocks, [self.norm, self.head]]

    def behind(self, block: int) -> list[nn.Module]:
        return list(self.stages)[block + 1 :]

    def undecayed(self) -> list[nn.Parameter]:
        return [attention.bias_table for _, _, attention in self.window_attentions()]

    def attentions(self, size: tuple[int, int] | None = None) -> list[AttentionLayer]:
        levels, found = self.levels(size or self.own_size()), []
        for stage, name, attention in self.window_attentions():
            _, grid, pixels = levels[stage]
            places = Places(0, grid, pixels, attention.places(grid))
            found.append(AttentionLayer(name, "encoder", places, places))
        return found

    def window_attentions(self) -> Iterator[tuple[int, str, WindowAttention]]:
        for number, stage in enumerate(self.stages):
            for name, module in stage.named_modules(prefix=f"stages.{number}"):
                if isinstance(module, WindowAttention):
                    yield number, name, module


def _stage(config: SwinConfig, number: int, drop_path: list[float]) -> Stage:
    dim = config.dim << number

    def block(i: int, rate: float) -> Block:
        attention = WindowAttention(
            dim,
            config.heads[number],
            pair("window", config.window),
            shifted=config.shifted and i % 2 == 1,
            config=AttentionConfig(qkv_bias=config.qkv_bias, dropout=config.attention_dropout),
            dropout=config.dropout,
        )
        mlp = Mlp(dim, int(config.mlp_ratio * dim), dropout=config.dropout)
        return Block(dim, attention, mlp, norm_eps=config.norm_eps, drop_path=rate)

    merge = PatchMerging(dim // 2, config.norm_eps) if number else nn.Identity()
    return Stage(merge, (block(i, rate) for i, rate in enumerate(drop_path)))


SIZES: dict[str, dict[str, Any]] = {  # section 3.3
    "t": {"dim": 96, "depths": (2, 2, 6, 2), "heads": (3, 6, 12, 24)},
    "s": {"dim": 96, "depths": (2, 2, 18, 2), "heads": (3, 6, 12, 24)},
    "b": {"dim": 128, "depths": (2, 2, 18, 2), "heads": (4, 8, 16, 32)},
    "l": {"dim": 192, "depths": (2, 2, 18, 2), "heads": (6, 12, 24, 48)},
}
VARIANTS = {f"swin-{size}": SwinConfig(**fields) for size, fields in SIZES.items()} | {
    f"swin-{size}-384": SwinConfig(image_size=384, window=12, **SIZES[size]) for size in ("b", "l")
}
