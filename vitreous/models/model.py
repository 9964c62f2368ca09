"""What every model has, whatever paper it is from.

A model is four steps, and `forward` is their composition:

    tokens, grid = model.embed(images)      # (b, c, h, w) -> (b, p + gh·gw, d)
    tokens = model.encode(tokens, grid)     # block by block
    output = model.head(model.pool(tokens))

Anything may stand between them: masked pre-training drops tokens behind `embed`. A model around
another one (a segmenter, a detector) decodes the maps of that one, its `core`, instead.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from vitreous.config import Size, choice, pair, positive, type_hints
from vitreous.errors import ConfigError, InputError
from vitreous.layers.resample import Grid, Resampling, State
from vitreous.models.extras import Extras

LARGEST = 2**24
"""Of any number in a config: the sizes that are made of them must be numbers for torch."""
Check = tuple[Callable[[Any], bool], str]
FRACTION: Check = (lambda value: 0 <= value < 1, "a number from 0 to below 1")
COUNT: Check = (lambda value: 0 <= value < 1000, "0 or more, below 1000")
DEPTH: Check = (lambda value: 1 <= value < 1000, "at least 1, below 1000")
DEPTHS: Check = (lambda values: sum(values) < 1000, "fewer than 1000 blocks in all")
LAYERS: Check = (lambda rows: len(rows) < 100, "fewer than 100 layers")
EPSILON: Check = (lambda value: 0 < value < 1, "a small number above 0")
CHECKS: dict[str, Check] = {
    "depth": DEPTH,
    "decoder_depth": DEPTH,
    "depths": DEPTHS,
    "stages": DEPTHS,
    "stem_layers": LAYERS,
    "grid_layers": LAYERS,
    "classes": (
        lambda value: 1 <= value <= LARGEST,
        "at least 1; for a model without, pass head='none'",
    ),
    "dropout": FRACTION,
    "attention_dropout": FRACTION,
    "drop_path": FRACTION,
    "registers": COUNT,
    "pool_padding": COUNT,
    "encoder_depth": COUNT,
    "norm_eps": EPSILON,
    "projector_eps": EPSILON,
    "stem_norm_eps": EPSILON,
    "qk_scale": (math.isfinite, "a finite number"),
    "rotary_base": (lambda value: 1 <= value < math.inf, "1 or more"),
    "rotary_offset": (math.isfinite, "a finite number"),
    "mlp_ratio": (lambda value: 0 < value < math.inf, "a number above 0"),
    "temperature": (lambda value: 1 <= value < math.inf, "1 or more"),
}
"""What a field may be, by its name: the same in every family. Other integers are at least 1."""


POOLS = ("head", "class", "mean", "class+mean")
"""What becomes the vector of an image: see `Model.vectors`."""

Shapes = Mapping[str, tuple[int, ...]]
"""Of a state dict, by our names."""


def numbered(shapes: Shapes, owner: str) -> int:
    """How many numbered parts `owner` has in a state dict: "blocks" of "blocks.0.…", …"""
    numbers = [
        int(name.split(".", 1)[0])
        for name in (each.removeprefix(f"{owner}.") for each in shapes if each.startswith(owner))
        if name.split(".", 1)[0].isdigit()
    ]
    return max(numbers, default=-1) + 1


def factors(number: int) -> list[Grid]:
    """The grids of this many places: a square alone, else those that are most nearly one, high and
    wide."""
    side = next((s for s in range(math.isqrt(number), 0, -1) if number % s == 0), 0)
    other = number // side if side else 0
    return [(side, other), (other, side)][: 1 if side == other else 2] if side else []


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """A config whose fields are checked by their types and names, and spelled in one way: sizes as
    (height, width), choices (`Literal`) as they stand here."""

    def __post_init__(self) -> None:
        hints = type_hints(type(self))
        for name in (field.name for field in dataclasses.fields(self)):
            value, hint = getattr(self, name), hints[name]
            if hint == Size or (hint == Size | None and value is not None):
                object.__setattr__(self, name, pair(name, value))
            elif typing.get_origin(hint) is Literal:
                object.__setattr__(self, name, choice(name, value, typing.get_args(hint)))
            elif name in CHECKS and value is not None:
                allows, expected = CHECKS[name]
                if not allows(value):
                    raise ConfigError(f"{name} = {value!r}: expected {expected}")
            elif hint is int or (hint == int | None and value is not None):
                positive(self, name)
                if value > LARGEST:
                    raise ConfigError(f"{name} = {value:,}: expected at most {LARGEST:,}")

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
    input_weight: str
    """The parameter that sees the image's channels."""
    input_norms: tuple[str, ...] = ()
    """Parameters with a value for each pixel of a patch and each channel."""
    classwise: tuple[str, ...] = ("head.*",)
    """Patterns of the parameters that belong to the classes: others come with other classes."""
    other_classes: ClassVar[int] = 0
    """How many outputs stand behind those of the classes: DETR's "no object"."""
    behind_maps: tuple[str, ...] = ("head.*",)
    """Patterns of the parameters behind its maps: a model around this one has none of them."""
    image_text = False
    """Whether it was trained with texts, so that weights end in a projection to their space."""
    unseen: ClassVar[Mapping[str, str]] = {}
    """Config fields that no weights show, and what other libraries take for the same weights."""
    found_if_asked = False
    """Whether a file of such a model is taken for one only where that is asked for, and else for
    the model inside."""
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
        return getattr(self.config, "head", "") == "projection"

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
        if pool in ("head", getattr(self.config, "pool", None)):
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
        if getattr(self.config, "head", "") in ("none", "projection"):
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
        """The parts that an image goes through, by name: what `summary` and the walk tap.

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

    def resample(self, state: State, mode: str | None, source: Grid | None) -> Resampling:
        """Bring what depends on the resolution, in a state dict, to this model's; in place.

        mode: bicubic or bilinear; None refuses what does not fit. source: the grid (or window) that
        the state was made for, where its shapes do not tell.
        """
        return Resampling()

    def upgraded(self, state: State) -> State:
        """A state dict of an older version of this model, in today's names and layouts."""
        return state

    def with_rows(self, state: State, rows: str) -> State:
        """A state dict whose position table has a row for every token before the patches ("all")
        or for none of them ("patches"), as some libraries have it; the outputs stay the same."""
        return state

    @classmethod
    def fields_of(cls, shapes: Shapes, axes: Mapping[str, int]) -> list[dict[str, Any]]:
        """The config fields that the names and shapes of a state dict show: one dict for each way
        to read it, the likeliest first; none if it cannot be this paper's.

        axes: lengths that shapes of ours do not show, but another library's do, such as `heads`.
        What does not change names or shapes is left out (see `models/infer.py`); fields that are
        only as usual are listed under "guessed".
        """
        return []

    def derived(self) -> dict[str, Tensor]:
        """What other libraries keep in their files although it follows from the sizes, by name."""
        return {}

    def own_size(self) -> tuple[int, int]:
        """Height and width of the images it is made for."""
        return pair("image_size", self.config.image_size)

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


@dataclasses.dataclass(frozen=True)
class CompositeConfig(ModelConfig):
    """The config of a `Composite`."""

    part: ClassVar[str]
    """The field that names the core; the field `…_fields` has the changes to its config."""
    core_defaults: ClassVar[dict[str, Any]] = {"pad": True}
    """Of the core's fields, where it has them: images may have any size."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("image_size", "channels", "classes", "head"):
            if name in self.core_changes:
                raise ConfigError(
                    f"{self.part}.{name} is a field of the model around it: give {name} itself"
                )

    @property
    def core_changes(self) -> dict[str, Any]:
        changes: dict[str, Any] = getattr(self, f"{self.part}_fields")
        return changes

    def core_fields(self) -> dict[str, Any]:
        """The changes with which the model inside is created."""
        own = {name: getattr(self, name) for name in ("image_size", "channels")}
        return {**own, "head": "none", **self.core_changes}


class Composite(Model):
    """A model that decodes the feature maps of another one, its core, held as `config.part`.

    The core is any model with feature maps; tokens that are no patches are left out. `decoded` are
    its blocks or stages whose maps are decoded.
    """

    def __init__(
        self, config: CompositeConfig, core: Model, decoded: Iterable[int] = (-1,)
    ) -> None:
        super().__init__()
        self.config, self.depth, self.decoded = config, core.depth, list(decoded)
        self.add_module(config.part, core)
        self.input_weight = f"{config.part}.{core.input_weight}"
        self.input_norms = tuple(f"{config.part}.{name}" for name in core.input_norms)

    @property
    def core(self) -> Model:
        core: Model = getattr(self, self.config.part)
        return core

    def outputs(
        self, images: Tensor, like: Mapping[str, Tensor] | None = None
    ) -> dict[str, Tensor]:
        return {"logits": self(images)}

    def levels(self, size: tuple[int, int]) -> list[Level]:
        return self.core.levels(size)

    @property
    def width(self) -> int:
        return self.core.width

    def decoded_levels(self, size: tuple[int, int]) -> list[Level]:
        levels = self.levels(size)
        return [levels[block] for block in self.decoded]

    def block_indices(self, blocks: Iterable[int] | None) -> list[int]:
        return super().block_indices(self.decoded if blocks is None else blocks)

    def tokens(
        self, images: Tensor, blocks: Iterable[int] | None = None, *, norm: bool = True
    ) -> list[Tensor]:
        """The core's, behind the blocks that are decoded unless others are given; with the core's
        final norm, if it has one."""
        norm = norm and self.core.ends_with_norm
        return self.core.tokens(images, self.block_indices(blocks), norm=norm)

    def maps(
        self, images: Tensor, blocks: Iterable[int] | None = None, *, norm: bool = True
    ) -> list[Tensor]:
        """(b, d, gh, gw) each: the patches of `tokens`, which are what is decoded."""
        norm = norm and self.core.ends_with_norm
        return self.core.maps(images, self.block_indices(blocks), norm=norm)

    def layers(self) -> list[list[nn.Module]]:
        """The core's; everything behind it learns like the head."""
        *before, behind = self.core.layers()
        return [*before, [*behind, *(part for part in self.children() if part is not self.core)]]

    def undecayed(self) -> list[nn.Parameter]:
        return self.core.undecayed()

    def attentions(self, size: tuple[int, int] | None = None) -> list[AttentionLayer]:
        part = self.config.part
        found = self.core.attentions(size or self.own_size())
        return [each._replace(name=f"{part}.{each.name}", part=part) for each in found]

    def resample(self, state: State, mode: str | None, source: Grid | None) -> Resampling:
        inner = self._state_of_core(state)
        done = self.core.resample(inner, mode, source)
        state |= self._with_owner(inner)
        return done.inside(f"{self.config.part}.")

    def upgraded(self, state: State) -> State:
        inner = self._state_of_core(state)
        others = {
            name: value for name, value in state.items() if name not in self._with_owner(inner)
        }
        return {**others, **self._with_owner(self.core.upgraded(inner))}

    def with_rows(self, state: State, rows: str) -> State:
        inner = self.core.with_rows(self._state_of_core(state), rows)
        return {**state, **self._with_owner(inner)}

    def _state_of_core(self, state: State) -> State:
        owner = f"{self.config.part}."
        return {k.removeprefix(owner): v for k, v in state.items() if k.startswith(owner)}

    def _with_owner(self, state: State) -> State:
        return {f"{self.config.part}.{name}": value for name, value in state.items()}
