"""ViT: An Image is Worth 16x16 Words (Dosovitskiy et al. 2021).

An image is cut into patches, each patch becomes a token, a class token is put in front, positions
are added, and a plain transformer encoder does the rest. Every choice of the paper and of its
successors is a field of `ViTConfig`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from vitreous.errors import InputError
from vitreous.layers.head import DistilledOutput
from vitreous.layers.init import initialise
from vitreous.layers.patch import PrefixTokens, Stem
from vitreous.layers.position import Rotary
from vitreous.layers.resample import Grid, Resampling, State
from vitreous.layers.tap import show
from vitreous.models import vit_fields, vit_parts, vit_state
from vitreous.models.conv_stem import ConvStem, GridStem
from vitreous.models.model import AttentionLayer, Level, Model, Places, Shapes
from vitreous.models.vit_config import SIZES, VARIANTS, Pool, PositionName, ViTConfig
from vitreous.models.vit_parts import POSITIONS

__all__ = ["POSITIONS", "SIZES", "VARIANTS", "Pool", "PositionName", "ViT", "ViTConfig"]


class ViT(Model):
    """(b, c, h, w) -> logits (b, classes). See `ViTConfig` for every choice.

    `stem` turns images into a feature map that is cut into patches instead (hybrid).
    """

    behind_maps = ("head.*", "pooling.*")

    def __init__(self, config: ViTConfig, stem: Stem | None = None) -> None:
        super().__init__()
        self.config = config
        dim, self.depth = config.dim, config.depth
        self.prefix_length = config.prefix * config.windows**2
        self.class_tokens = config.rows
        self.stem = stem = stem or ConvStem(config.stem_layers, config.channels)
        self.patch = vit_parts.patch(config, stem)
        self.grid_stem = GridStem(config.grid_layers, config.patch_width)
        self.prefix = PrefixTokens(
            dim,
            class_token=config.rows > 0,
            distillation_token=config.rows > 1,
            registers=config.registers,
        )
        self.position = POSITIONS[config.position](config)
        self.dropout = nn.Dropout(config.dropout)
        norm = partial(nn.LayerNorm, dim, eps=config.norm_eps)
        self.embed_norm = norm() if config.embed_norm else nn.Identity()
        drop_path = torch.linspace(0, config.drop_path, config.depth, device="cpu").tolist()
        self.blocks = nn.ModuleList(vit_parts.block(config, rate) for rate in drop_path)
        self.norm = norm() if config.final_norm in ("tokens", "both") else nn.Identity()
        self.pooled_norm = norm() if config.final_norm in ("pooled", "both") else nn.Identity()
        self.ends_with_norm = config.final_norm != "none"
        self.pooling = vit_parts.pooling(config)
        self.head = vit_parts.head(config)
        initialise(self, config.init)
        if config.init == "jax":  # the paper's code: the last layer starts at zero
            for name in ("out", "distillation"):
                if hasattr(self.head, name):
                    nn.init.zeros_(getattr(self.head, name).weight)
        if stem.input_weight is not None:
            self.input_weight = f"stem.{stem.input_weight}"
        else:
            self.input_weight = "patch.weight"
            if config.patch_norm in (True, "in"):
                self.input_norms = ("patch.norm_in.weight", "patch.norm_in.bias")

    def forward(self, images: Tensor) -> Tensor | DistilledOutput:
        self._check(images, dynamic=bool(self.config.dynamic_size))
        return self.head(self.pooled(images))

    def embed(self, images: Tensor) -> tuple[Tensor, Grid]:
        """Equation 1: z₀ = [x_class; x¹E; …; xⁿE] + E_pos; CLIP normalises it."""
        self._check(images, dynamic=self.config.dynamic_size is not False)
        patches = self.grid_stem(self.patch(self.stem(images)))  # (b, gh, gw, d)
        grid = (patches.shape[1], patches.shape[2])
        x = self.prefix(show(self, "tokens", patches.flatten(1, 2)))  # (b, p + n, d)
        x = self.dropout(self.position(x, self.config.prefix, grid))
        if self.config.windows > 1:  # each has class token and registers of its own
            before, patches = x[:, : self.config.prefix], x[:, self.config.prefix :]
            x = torch.cat((before.repeat(1, self.config.windows**2, 1), patches), dim=1)
        return self.embed_norm(x), grid

    def encode(self, x: Tensor, grid: Grid, first: int = 0, last: int | None = None) -> Tensor:
        """Equations 2 and 3, for the blocks from `first` to before `last`: z_l of z_(l-1).

        If positions act on the tokens alone, some of the patches may be left out: masked
        pre-training encodes the visible ones.
        """
        if self.config.windows > 1:
            return self._encode_windows(x, grid, first, last)
        position, p = self.position, self.prefix_length
        rotate = position.rotation(p, grid, x.device)
        for i, block in list(enumerate(self.blocks))[first:last]:
            x = block(x, position.score_bias(i, p, grid), rotate)
            x = position.after(i, x, p, grid)
        return x

    def _encode_windows(self, x: Tensor, grid: Grid, first: int, last: int | None) -> Tensor:
        """The same where attention stays inside windows but for `global_blocks`, which see the
        windows one behind another: nothing is moved between blocks (LW-DETR, section 3.2)."""
        side, prefix = self.config.windows, self.config.prefix
        b, d = x.shape[0], x.shape[2]
        x = into_windows(x, grid, side, prefix)  # (b·w², p + n / w², d)
        for i, block in list(enumerate(self.blocks))[first:last]:
            if i in self.config.global_blocks:
                x = block(x.reshape(b, -1, d)).reshape(b * side * side, -1, d)
            else:
                x = block(x)
        return out_of_windows(x, grid, side, prefix)

    def pool(self, x: Tensor) -> Tensor:
        """Equation 4: y = LN(z_L⁰), or another reading of the tokens."""
        x = self.norm(x)
        match self.config.pool:
            case "class" | "first":
                x = x[:, 0]
            case "both":
                x = x[:, :2]
            case "mean":
                x = x[:, self.prefix_length :].mean(dim=1)
            case "mean-all":
                x = x.mean(dim=1)
            case "flatten":
                x = x.flatten(1)
            case "class+mean":
                x = torch.cat((x[:, 0], x[:, self.prefix_length :].mean(dim=1)), dim=-1)
            case "max":
                x = x.amax(dim=1)
            case "attention" | "sequence":
                x = self.pooling(x)
        return self.pooled_norm(show(self, "pool", x))

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
        inside = [self._places(i, places) for i in range(self.depth)]
        found = [
            AttentionLayer(f"blocks.{i}.attention", "encoder", each, each)
            for i, each in enumerate(inside)
        ]
        pooling = {"attention": "pooling.attention", "sequence": "pooling"}.get(self.config.pool)
        if pooling is not None:
            probe = Places(1, (0, 0), pixels)
            found.append(AttentionLayer(pooling, "pool", probe, places))
        return found

    def _places(self, block: int, places: Places) -> Places:
        """Where the tokens of a block are that stand in windows."""
        side, prefix = self.config.windows, self.config.prefix
        if side == 1:
            return places
        numbers = torch.arange(places.grid[0] * places.grid[1])
        before = torch.full((side * side * prefix,), -1)
        tokens = torch.cat((before, numbers))[None, :, None]
        windows = into_windows(tokens, places.grid, side, prefix)[:, :, 0]
        if block in self.config.global_blocks:
            windows = windows.reshape(1, -1)
        return Places(0, places.grid, places.pixels, windows)

    def resample(self, state: State, mode: str | None, source: Grid | None) -> Resampling:
        return vit_state.resample(self.position, self.config, state, mode, source)

    def upgraded(self, state: State) -> State:
        return vit_state.upgraded(self.position, state)

    def with_rows(self, state: State, rows: str) -> State:
        return vit_state.with_rows(self.config, state, rows)

    @classmethod
    def fields_of(cls, shapes: Shapes, axes: Mapping[str, int]) -> list[dict[str, Any]]:
        return vit_fields.fields_of(shapes, axes)

    def derived(self) -> dict[str, Tensor]:
        """What DINOv3's files have: the periods of rotary positions, and the masks that hold the
        biases of keys at zero."""
        config, found = self.config, {}
        if isinstance(self.position, Rotary):
            found["position.periods"] = self.position.periods()
        if config.qkv_bias and not config.key_bias:
            part = torch.ones(config.heads * config.head_width)
            mask = torch.cat((part, torch.zeros_like(part), part))
            found |= {f"blocks.{i}.attention.bias_mask": mask for i in range(self.depth)}
        return found

    def _check(self, images: Tensor, *, dynamic: bool) -> None:
        self.check_images(images)
        expected, (height, width) = self.own_size(), images.shape[2:]
        if (height, width) == expected:
            return
        if self.config.pool == "flatten" and self.config.head != "none":
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


def into_windows(x: Tensor, grid: Grid, side: int, prefix: int) -> Tensor:
    """(b, side²·prefix + gh·gw, d) -> (b·side², prefix + gh·gw/side², d), row by row of windows."""
    b, _, d = x.shape
    before = x[:, : side * side * prefix].reshape(b * side * side, prefix, d)
    high, wide = grid[0] // side, grid[1] // side
    patches = x[:, side * side * prefix :].reshape(b, side, high, side, wide, d)
    patches = patches.transpose(2, 3).reshape(b * side * side, high * wide, d)
    return torch.cat((before, patches), dim=1) if prefix else patches


def out_of_windows(x: Tensor, grid: Grid, side: int, prefix: int) -> Tensor:
    """The reverse of `into_windows`."""
    d, high, wide = x.shape[2], grid[0] // side, grid[1] // side
    patches = x[:, prefix:].reshape(-1, side, side, high, wide, d).transpose(2, 3)
    patches = patches.reshape(-1, grid[0] * grid[1], d)
    if not prefix:
        return patches
    before = x[:, :prefix].reshape(-1, side * side * prefix, d)
    return torch.cat((before, patches), dim=1)
