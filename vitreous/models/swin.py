"""Swin Transformer: Hierarchical Vision Transformer using Shifted Windows (Liu et al. 2021).

Tokens stay on their map, (b, h, w, d). Attention looks only inside windows, every second block
with windows shifted by half their size, so that what is said goes round; between stages, patches
are merged two by two. So cost grows with the number of patches and not with its square, and there
are maps of four sizes, as dense tasks like them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitreous.config import Size, choice, fraction, pair, positive
from vitreous.errors import ConfigError
from vitreous.layers.attention import Attention
from vitreous.layers.block import Block
from vitreous.layers.features import Features, block_indices
from vitreous.layers.head import LinearHead
from vitreous.layers.init import initialise
from vitreous.layers.mlp import Mlp
from vitreous.layers.patch import PatchEmbedding
from vitreous.layers.position import relative_index, resample_grid
from vitreous.models.model import Level, Model, Places

Grid = tuple[int, int]


@dataclass(frozen=True)
class SwinConfig:
    """What a Swin is made of. The defaults are Swin-T."""

    image_size: Size = 224
    """Height and width in pixels; any size can be given, this is the one it is made for."""
    patch: Size = 4
    channels: int = 3
    classes: int = 1000
    dim: int = 96
    """Width of a token in the first stage; it doubles with each further one."""
    depths: tuple[int, ...] = (2, 2, 6, 2)
    """Blocks in each stage."""
    heads: tuple[int, ...] = (3, 6, 12, 24)
    """Attention heads in each stage."""
    window: Size = 7
    """Patches in height and width of a window."""
    mlp_ratio: float = 4.0
    """Width inside the MLP, as a multiple of the token's."""
    head: str = "linear"
    """linear or none."""
    norm_eps: float = 1e-5
    qkv_bias: bool = True
    dropout: float = 0.0
    attention_dropout: float = 0.0
    drop_path: float = 0.0
    """Chance to skip a branch of the last block; grows linearly from 0 at the first."""

    def __post_init__(self) -> None:
        for name in ("image_size", "patch", "window"):
            object.__setattr__(self, name, pair(name, getattr(self, name)))
        object.__setattr__(self, "head", choice("head", self.head, ("linear", "none")))
        if self.classes == 0:
            raise ConfigError("classes = 0: expected at least 1; for features use head='none'")
        positive(self, "channels", "classes", "dim")
        fraction(self, "dropout", "attention_dropout", "drop_path")
        if not 0 < self.mlp_ratio < math.inf:
            raise ConfigError(f"mlp_ratio = {self.mlp_ratio}: expected a number above 0")
        if not 0 < self.norm_eps < 1:
            raise ConfigError(f"norm_eps = {self.norm_eps}: expected a small number above 0")
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


def partition(x: Tensor, window: Grid) -> Tensor:
    """(b, h, w, d) -> (b · windows, wh · ww, d); h and w are whole windows."""
    b, h, w, d = x.shape
    wh, ww = window
    x = x.reshape(b, h // wh, wh, w // ww, ww, d).transpose(2, 3)
    return x.reshape(-1, wh * ww, d)


def reverse(windows: Tensor, window: Grid, size: Grid) -> Tensor:
    """(b · windows, wh · ww, d) -> (b, h, w, d): what `partition` has taken apart."""
    (wh, ww), (h, w) = window, size
    x = windows.reshape(-1, h // wh, w // ww, wh, ww, windows.shape[-1]).transpose(2, 3)
    return x.reshape(-1, h, w, windows.shape[-1])


class Windows(NamedTuple):
    """How a map falls into windows, for one size of map."""

    order: Tensor
    """(h · w,): which token of the map stands where, window by window."""
    inverse: Tensor
    """(h · w,): and back."""
    offsets: Tensor
    """(n, n): where the offset between two tokens of a window stands in the table of biases."""
    mask: Tensor | None
    """(windows, n, n), where windows are shifted: what is added to the scores (figure 4)."""


_MADE: dict[tuple[object, ...], Windows] = {}
"""Made once for each size, and never saved: all of it follows from the sizes."""


def windows_of(size: Grid, window: Grid, shift: Grid, device: torch.device) -> Windows:
    """For a map of whole windows; made once, or, for the compiler, as part of the program."""
    if torch.compiler.is_compiling():
        return _make_windows(size, window, shift, device)
    key = (size, window, shift, device)
    if key not in _MADE:
        if len(_MADE) >= 64:  # images of every size: begin anew
            _MADE.clear()
        with torch.inference_mode(False):
            _MADE[key] = _make_windows(size, window, shift, device)
    return _MADE[key]


def _make_windows(size: Grid, window: Grid, shift: Grid, device: torch.device) -> Windows:
    """A cyclic shift puts strips from opposite edges of the map into one window, which must not
    see each other: 0 where two tokens were neighbours before, -inf where they were not.
    """

    def taken_apart(on_map: Tensor) -> Tensor:
        moved = on_map.roll((-shift[0], -shift[1]), (0, 1))
        return partition(moved[None, :, :, None], window)[:, :, 0]  # (windows, n)

    h, w = size
    order = taken_apart(torch.arange(h * w, device=device).view(h, w)).flatten()
    inverse, index = order.argsort(), relative_index(window, device)
    if not any(shift):
        return Windows(order, inverse, index, None)
    ys, xs = torch.arange(h, device=device), torch.arange(w, device=device)
    came_round = (ys < shift[0])[:, None] * 2 + (xs < shift[1])[None]  # (h, w)
    strip = taken_apart(came_round)
    apart = strip[:, :, None] != strip[:, None]
    mask = torch.zeros(apart.shape, device=device).masked_fill(apart, -torch.inf)
    return Windows(order, inverse, index, mask)


class WindowAttention(Attention):
    """Attention inside windows of a map: (b, h, w, d) -> (b, h, w, d) (section 3.2).

    A map that is not made of whole windows is filled with zeros at the bottom and right, as in the
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

    def forward(self, x: Tensor, bias: Tensor | None = None, queries: int | None = None) -> Tensor:
        b, h, w, d = x.shape
        below, right = -h % self.window[0], -w % self.window[1]
        if below or right:
            x = F.pad(x, (0, 0, 0, right, 0, below))
        size = (h + below, w + right)
        windows = windows_of(size, self.window, self.shift(size), x.device)
        # Shifting and cutting are one gathering of rows, which is faster than rolling the map.
        tokens = x.flatten(1, 2).index_select(1, windows.order)
        tokens = tokens.view(-1, self.window[0] * self.window[1], d)
        out = super().forward(tokens, self._bias(b, windows))
        x = out.reshape(b, -1, d).index_select(1, windows.inverse).view(b, *size, d)
        return x[:, :h, :w] if below or right else x

    def shift(self, size: Grid) -> Grid:
        """How far windows move on a map of this size: not at all where there is only one."""
        if not self.shifted:
            return 0, 0
        y, x = (w // 2 if s > w else 0 for s, w in zip(size, self.window, strict=True))
        return y, x

    def _bias(self, batch: int, windows: Windows) -> Tensor:
        """(heads, n, n), or (b · windows, heads, n, n) where windows are shifted."""
        bias = self.bias_table[windows.offsets].permute(2, 0, 1)
        if windows.mask is None:
            return bias
        return (bias + windows.mask[:, None].to(bias.dtype)).repeat(batch, 1, 1, 1)

    def places(self, size: Grid) -> Tensor:
        """(windows, n): which token of a map each token of a window is; -1 for filling."""
        (h, w), (wh, ww) = size, self.window
        whole = (h + -h % wh, w + -w % ww)
        numbers = torch.full(whole, -1)
        numbers[:h, :w] = torch.arange(h * w).view(h, w)
        order = windows_of(whole, self.window, self.shift(whole), numbers.device).order
        return numbers.flatten()[order].view(-1, wh * ww)

    def resample(self, table: Tensor, source: Grid, mode: str) -> Tensor:
        """A bias table that was made for windows of `source`, for ours."""
        before, after = ((2 * w - 1, 2 * h - 1) for w, h in (source, self.window))
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
    """Patch merging, but for the first stage; then blocks, windows at rest and shifted in turn."""

    def __init__(self, config: SwinConfig, number: int, drop_path: list[float]) -> None:
        super().__init__()
        dim, heads = config.dim << number, config.heads[number]
        self.merge = PatchMerging(dim // 2, config.norm_eps) if number else nn.Identity()
        self.blocks = nn.ModuleList(
            Block(
                dim,
                WindowAttention(
                    dim,
                    heads,
                    pair("window", config.window),
                    shifted=i % 2 == 1,
                    qkv_bias=config.qkv_bias,
                    attention_dropout=config.attention_dropout,
                    dropout=config.dropout,
                ),
                Mlp(dim, int(config.mlp_ratio * dim), dropout=config.dropout),
                norm_eps=config.norm_eps,
                drop_path=rate,
            )
            for i, rate in enumerate(drop_path)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.merge(x)
        for block in self.blocks:
            x = block(x)
        return x


class Swin(Model):
    """(b, c, h, w) -> logits (b, classes). See `SwinConfig`."""

    input_weight = "patch.weight"

    def __init__(self, config: SwinConfig) -> None:
        super().__init__()
        self.config = config
        self.patch = PatchEmbedding(
            config.channels, pair("patch", config.patch), config.dim, pad=True
        )
        self.patch_norm = nn.LayerNorm(config.dim, eps=config.norm_eps)
        self.dropout = nn.Dropout(config.dropout)
        rates = torch.linspace(0, config.drop_path, sum(config.depths), device="cpu").split(
            list(config.depths)
        )
        self.stages = nn.ModuleList(
            Stage(config, number, part.tolist()) for number, part in enumerate(rates)
        )
        dim = config.dim << (len(config.depths) - 1)
        self.norm = nn.LayerNorm(dim, eps=config.norm_eps)
        self.head = LinearHead(dim, config.classes) if config.head == "linear" else nn.Identity()
        initialise(self, "trunc-normal")

    def forward(self, images: Tensor) -> Tensor:
        return self._run(images)[0]

    @property
    def ends_with_norm(self) -> bool:
        return True

    def features(
        self, images: Tensor, blocks: Iterable[int] | None = None, *, norm: bool = False
    ) -> Features:
        """The maps behind the chosen stages (None: the last), and the output, in one pass.

        All four are a pyramid of strides 4, 8, 16 and 32. `norm` puts the final LayerNorm on the
        last one, which is the one that it is made for.
        """
        asked = block_indices(blocks, len(self.stages))
        output, maps = self._run(images)
        if norm:
            maps[-1] = self.norm(maps[-1])
        chosen = [maps[i] for i in asked]
        return Features(
            [m.flatten(1, 2) for m in chosen],
            [m.permute(0, 3, 1, 2) for m in chosen],
            output,
            prefix=0,
        )

    def levels(self, size: tuple[int, int]) -> list[Level]:
        ph, pw = pair("patch", self.config.patch)
        return [
            Level(self.config.dim << stage, grid, (ph << stage, pw << stage))
            for stage, grid in enumerate(self.grids(size))
        ]

    def places(self, attention: str, size: tuple[int, int]) -> Places:
        _, grid, pixels = self.levels(size)[int(attention.split(".")[1])]
        module = self.get_submodule(attention)
        assert isinstance(module, WindowAttention)
        return Places(0, grid, pixels, module.places(grid))

    def grids(self, size: tuple[int, int]) -> list[Grid]:
        """The map's height and width in each stage, for images of this size."""
        patch = pair("patch", self.config.patch)
        grids = [(-(-size[0] // patch[0]), -(-size[1] // patch[1]))]
        for _ in self.config.depths[1:]:
            h, w = grids[-1]
            grids.append((-(-h // 2), -(-w // 2)))
        return grids

    def derived(self) -> dict[str, Tensor]:
        """The index of offsets of each attention, and the mask of each shifted one."""
        found = {}
        grids = self.grids(pair("image_size", self.config.image_size))
        for name, module in self.named_modules():
            if isinstance(module, WindowAttention):
                h, w = grids[int(name.split(".")[1])]
                found[f"{name}.index"] = relative_index(module.window)
                size = (h + -h % module.window[0], w + -w % module.window[1])
                cpu = torch.device("cpu")
                mask = windows_of(size, module.window, module.shift(size), cpu).mask
                if mask is not None:
                    found[f"{name}.mask"] = mask.nan_to_num(neginf=-100.0)
        return found

    def _run(self, images: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The one forward: the output, and the map behind each stage, (b, h, w, d)."""
        self.check_images(images)
        x = self.show("patch", self.patch(images))
        x = self.patch_norm(x)
        self.show("patch_norm", x.permute(0, 3, 1, 2))
        x = self.dropout(x)
        maps = []
        for i, stage in enumerate(self.stages):
            x = stage(x)
            self.show(f"stages.{i}", x.permute(0, 3, 1, 2))
            maps.append(x)
        x = self.norm(x)
        self.show("norm", x.permute(0, 3, 1, 2))
        x = self.show("pool", x.mean(dim=(1, 2)))
        return self.show("head", self.head(x)), maps


SIZES: dict[str, dict[str, Any]] = {  # section 3.3
    "t": {"dim": 96, "depths": (2, 2, 6, 2), "heads": (3, 6, 12, 24)},
    "s": {"dim": 96, "depths": (2, 2, 18, 2), "heads": (3, 6, 12, 24)},
    "b": {"dim": 128, "depths": (2, 2, 18, 2), "heads": (4, 8, 16, 32)},
    "l": {"dim": 192, "depths": (2, 2, 18, 2), "heads": (6, 12, 24, 48)},
}
VARIANTS = {f"swin-{size}": SwinConfig(**fields) for size, fields in SIZES.items()} | {
    f"swin-{size}-384": SwinConfig(image_size=384, window=12, **SIZES[size]) for size in ("b", "l")
}
