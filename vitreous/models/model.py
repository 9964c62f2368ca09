"""What every model has, whatever paper it is from.

A model is four steps, and `forward` is their composition:

    tokens, grid = model.embed(images)      # (b, c, h, w) -> (b, p + gh·gw, d)
    tokens = model.encode(tokens, grid)     # block by block
    output = model.head(model.pool(tokens))

Anything may stand between them: masked pre-training drops tokens behind `embed`. A model around
another one (a segmenter, a detector) decodes the maps of that one, its `core`, instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from vitreous.config import Record, choice, kind_of, pair
from vitreous.errors import ConfigError, InputError
from vitreous.layers.resample import Grid
from vitreous.models.extras import Extras

POOLS = ("head", "class", "mean", "class+mean")
"""What becomes the vector of an image: see `Model.vectors`."""


@dataclass(frozen=True)
class ModelConfig(Record):
    """The config of a model."""

    def without_pooling(self) -> dict[str, Any]:
        """The changes for a model whose maps alone are of use: no parameters that pool them."""
        return {}


class Places(NamedTuple):
    """Where the tokens of one attention are in the image."""

    prefix: int
    """Tokens without a place come first,"""
    grid: Grid
    """then patches, row by row,"""
    pixels: tuple[int, int]
    """of this many pixels each."""
    windows: Tensor | None = None
    """(windows, n): where attention stays inside windows, which patch each token of a window is,
    and -1 for padding. None: all tokens see all."""


class AttentionLayer(NamedTuple):
    """An attention that can be tapped: its weights are (…, heads, rows, columns)."""

    name: str
    """Of the module, such as "blocks.3.attention"."""
    part: str
    """encoder: patches attend to each other, and become features; backbone: the same, where another
    encoder follows; decoder: queries or class tokens attend to each other; cross: queries attend to
    the image; pool: one query gathers what the head reads."""
    rows: Places
    """The tokens that attend,"""
    columns: Places
    """and those that they attend to."""


class Level(NamedTuple):
    """One feature map of a model, for images of some size."""

    channels: int
    grid: Grid
    pixels: tuple[int, int]
    """Of the image for each position; at the bottom and right they may reach over its edge."""


class Model(nn.Module):
    """A plain module, (b, channels, height, width) -> output, that knows how it was made."""

    config: Any
    """The frozen config of its family."""
    name: str = ""
    """The name it was created by."""
    extras: Extras = Extras()
    """What its checkpoint had besides, if it was imported."""
    other_classes: ClassVar[int] = 0
    """How many outputs stand behind those of the classes: DETR's "no object"."""
    prefix_length = 0
    """Tokens before the patches."""
    class_tokens = 0
    """How many of them are there to be read: the class token and that of distillation."""
    ends_with_norm = False
    """Whether a norm follows the last block, which `maps` leaves out by default."""
    scales_positions = False
    """Whether positions depend on how large the grid is: then an image that is padded is encoded
    otherwise than by itself."""
    merge = 0
    """How many patches every block merges into others: see `engines/fewer_tokens.py`."""
    sharded = False
    """Whether its parameters are spread over several processes, which then must run every part
    equally often."""
    depth: int
    """How many blocks or stages there are."""
    head: nn.Module

    @property
    def core(self) -> Model:
        """The model that looks at the image: itself, or the encoder inside it."""
        return self

    @property
    def width(self) -> int:
        """Channels of a token behind the last block."""
        return self.levels((1 << 10, 1 << 10))[-1].channels

    @property
    def pooled_width(self) -> int:
        """Channels of what the head sees: some poolings put several tokens side by side."""
        return self.width

    def embed(self, images: Tensor) -> tuple[Tensor, Grid]:
        """(b, c, h, w) -> tokens (b, p + gh·gw, d), their positions added, and the grid."""
        raise NotImplementedError

    def encode(self, x: Tensor, grid: Grid, first: int = 0, last: int | None = None) -> Tensor:
        """The tokens behind the blocks (or stages) from `first` to before `last`, else to the end.

        `grid` is that of the given tokens.
        """
        raise NotImplementedError

    def pool(self, x: Tensor) -> Tensor:
        """Tokens from behind the last block -> what the head sees."""
        raise NotImplementedError

    def pooled(self, images: Tensor) -> Tensor:
        """(b, c, h, w) -> (b, …, d): what the head sees of each image."""
        return self.pool(self.encode(*self.embed(images)))

    @property
    def projects(self) -> bool:
        """Whether the head is no classifier, but gives vectors itself (CLIP)."""
        return kind_of(self.config, "head") == "projection"

    def vector_length(self, pool: str = "head") -> int:
        """d of `vectors`."""
        if pool == "head":
            return int(self.config.classes) if self.projects else self.pooled_width
        return self.width * len(pool.split("+"))

    def vectors(self, images: Tensor, pool: str = "head") -> Tensor:
        """(b, c, h, w) -> (b, d): a vector for each image.

        pool: head is what the head sees, the mean of its tokens where it sees several
        (distillation), and behind a projection (CLIP) what that gives; class is the class token and
        mean the mean of the patches, behind the final norm; class+mean are both, one behind the
        other, (b, 2d).
        """
        pool = choice("pool", pool, POOLS)
        if "class" in pool and not self.class_tokens:
            raise ConfigError(f"pool = {pool!r}: this model has no class token: use 'mean'")
        if pool in ("head", kind_of(self.config, "pool")):
            pooled = self.pooled(images)
            if pool == "head" and self.projects:
                pooled = self.head(pooled)
            return pooled if pooled.ndim == 2 else pooled.flatten(1, -2).mean(dim=1)
        x = self.final_norm(self.encode(*self.embed(images)), self.depth - 1)
        found = {"class": x[:, :1], "mean": x[:, self.prefix_length :]}
        return torch.cat([found[part].mean(dim=1) for part in pool.split("+")], dim=-1)

    def outputs(
        self, images: Tensor, like: Mapping[str, Tensor] | None = None
    ) -> dict[str, Tensor]:
        """What the model gives, as tensors by name with a row for each image: all that an engine
        knows which is not torch. A classifier also gives what its head sees, as `vectors`.

        `like` is what another engine gave for these images. Where rounding decides between equally
        good choices, a model that makes any takes those, so that the rest can be compared.
        """
        pooled = self.pooled(images)
        found = self.head(pooled)
        if kind_of(self.config, "head") in ("none", "projection"):
            return {"vectors": found.flatten(1)}
        vectors = pooled if pooled.ndim == 2 else pooled.flatten(1, -2).mean(dim=1)
        return {"logits": found, "vectors": vectors}

    @classmethod
    def output_of(cls, tensors: Mapping[str, Tensor]) -> Any:
        """What `forward` gives, from what `outputs` gives."""
        return tensors["logits"] if "logits" in tensors else tensors["vectors"]

    def final_norm(self, x: Tensor, block: int) -> Tensor:
        """The norm that follows the last block, on tokens from behind `block`, where it fits."""
        return x

    def levels(self, size: tuple[int, int]) -> list[Level]:
        """The maps that `maps` gives for each block or stage, for images of this size."""
        raise NotImplementedError

    def tokens(
        self, images: Tensor, blocks: Iterable[int] | None = None, *, norm: bool = False
    ) -> list[Tensor]:
        """(b, p + n, d) behind each of these blocks or stages (None: the last), those that are no
        patches first. Blocks behind the last of them are not computed.

        `norm` puts the final norm on what it fits: every block of a ViT, the last stage of a Swin.
        """
        if norm and not self.ends_with_norm:
            raise ConfigError("norm=True: this model has no norm behind its blocks")
        asked = self.block_indices(blocks)
        x, grid = self.embed(images)
        levels = self.levels((images.shape[2], images.shape[3]))
        behind: dict[int, Tensor] = {}
        done = 0
        for block in sorted(set(asked)):
            x = behind[block] = self.encode(x, grid, done, block + 1)
            grid, done = levels[block].grid, block + 1
        return [self.final_norm(behind[i], i) if norm else behind[i] for i in asked]

    def maps(
        self, images: Tensor, blocks: Iterable[int] | None = None, *, norm: bool = False
    ) -> list[Tensor]:
        """(b, d, gh, gw) each: the patches of `tokens`, back in their places."""
        asked = self.block_indices(blocks)
        levels = self.levels((images.shape[2], images.shape[3]))
        return [
            tokens[:, self.prefix_length :].transpose(1, 2).unflatten(2, levels[i].grid)
            for i, tokens in zip(asked, self.tokens(images, asked, norm=norm), strict=True)
        ]

    def block_indices(self, blocks: Iterable[int] | None) -> list[int]:
        """The requested blocks from 0 on; negative ones count from the end; None is the last."""
        asked, depth = [-1] if blocks is None else list(blocks), self.depth
        for index in asked:
            if not isinstance(index, int) or not -depth <= index < depth:
                raise ConfigError(
                    f"maps of block {index} were requested; this model has {depth} blocks: "
                    f"use 0 to {depth - 1}, or -{depth} to -1 to count from the end"
                )
        return [index % depth for index in asked]

    def steps(self) -> dict[str, nn.Module]:
        """The parts that an image goes through, by name: what `summary` and the living page tap.

        A model inside this one is no such part: its maps are shown (`layers.tap.show`).
        """
        found: dict[str, nn.Module] = {"": self}
        for name, part in self.named_children():
            if isinstance(part, nn.ModuleList):
                found |= {f"{name}.{i}": each for i, each in enumerate(part)}
            elif not isinstance(part, nn.Dropout | Model):
                found[name] = part
        return found

    def layers(self) -> list[list[nn.Module]]:
        """All modules with parameters from the input to the head, for layer-wise learning rates:
        what comes before the blocks, each block, what comes behind them."""
        raise NotImplementedError

    def behind(self, block: int) -> list[nn.Module]:
        """The blocks or stages behind one, which its map does not need."""
        return [module for layer in self.layers()[block + 2 : -1] for module in layer]

    def undecayed(self) -> list[nn.Parameter]:
        """Tokens, positions and queries: parameters of several axes that weight decay spares."""
        return []

    def attentions(self, size: tuple[int, int] | None = None) -> list[AttentionLayer]:
        """Every attention in the order of the forward, for images of this size (or its own)."""
        return []

    def own_size(self) -> tuple[int, int]:
        """Height and width of the images it is made for."""
        return pair("image_size", self.config.image_size)

    def example(self) -> dict[str, Tensor]:
        """What `forward` takes, by name: one of each, all zeros, of its own size and device."""
        parameter = next(self.parameters())
        return {"image": parameter.new_zeros(1, self.config.channels, *self.own_size())}

    def check_images(self, images: Tensor) -> None:
        """Images are floating-point (b, channels, h, w) with as many channels as the model has."""
        channels = self.config.channels
        if images.ndim != 4 or images.shape[1] != channels:
            raise InputError(
                f"images of shape {tuple(images.shape)} were given; this model takes (batch, "
                f"{channels}, height, width): for another number of channels create it with "
                "channels=…"
            )
        if not images.is_floating_point():
            raise InputError(
                f"images of type {images.dtype} were given; this model takes normalised "
                "floating-point values: images.float() / 255, then subtract mean, divide by std"
            )
