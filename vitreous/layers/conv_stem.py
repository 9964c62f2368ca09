"""Convolutions before or behind the patch embedding of a ViT.

A few small convolutions in place of one large step make a ViT easier to train (Xiao et al. 2021),
and many people's own models have some. Each layer is a table in the config.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from torch import Tensor, nn

from vitreous.config import Check, Count, Epsilon, Record, Size, Uncommon, choice, pair
from vitreous.errors import ConfigError
from vitreous.layers.mlp import ACTIVATIONS
from vitreous.layers.patch import PatchSizes, StemConfig

MAX_PADDING = 1024
ConvActivation = Literal[
    "none", "relu", "leaky-relu", "gelu", "gelu-tanh", "quick-gelu", "silu", "tanh"
]


@dataclass(frozen=True, repr=False)
class ConvLayer(Record):
    """A convolution, then a norm, then an activation, then pooling."""

    width: int | None = None
    """Output channels; as many as the input has unless given."""
    kernel: Size = 3
    stride: Size = 1
    padding: int | tuple[int, int] | str = "half"
    """Zeros on each side, or (height, width), or half: of the kernel."""
    groups: int = 1
    """Of channels that do not see each other; as many as channels: depthwise."""
    bias: bool = True
    norm: Literal["none", "batch", "layer", "group"] = "none"
    """batch; layer (over the channels of each position); group."""
    norm_eps: Epsilon = 1e-5
    norm_groups: int = 32
    """Of the group norm."""
    activation: ConvActivation = "none"
    pool: Literal["none", "max", "mean"] = "none"
    """Of neighbouring positions, behind the activation."""
    pool_kernel: Size = 2
    pool_stride: Size | None = None
    """As pool_kernel unless given."""
    pool_padding: Count = 0
    residual: bool = False
    """Whether the input is added to the output."""

    def __post_init__(self) -> None:
        super().__post_init__()
        given = self.padding
        if isinstance(given, str):
            choice("padding", given, ("half",))
            padding = tuple(side // 2 for side in pair("kernel", self.kernel))
        else:
            padding = (given, given) if isinstance(given, int) else tuple(given)
        if len(padding) != 2 or not all(0 <= side <= MAX_PADDING for side in padding):
            raise ConfigError(
                f"padding = {given}: expected a number from 0 to {MAX_PADDING}, or two"
            )
        object.__setattr__(self, "padding", padding)

    def __repr__(self) -> str:
        """As it is given on the command line: the kernel, and what is not as usual."""
        half = tuple(side // 2 for side in _both(self.kernel))
        usual = {"kernel": None, "stride": (1, 1), "padding": half, "pool_kernel": (2, 2)}
        said = []
        for name, value in vars(self).items():
            if value == usual.get(name, getattr(ConvLayer, name)):
                continue
            if isinstance(value, tuple):
                value = value[0] if value[0] == value[1] else list(value)
            said.append(f"{name}={json.dumps(value)}")
        return "{" + ", ".join(said) + "}"

    @property
    def pool_steps(self) -> tuple[int, int]:
        """The stride of the pooling; 1 where there is none."""
        return (1, 1) if self.pool == "none" else _both(self.pool_stride or self.pool_kernel)

    def map_of(self, size: tuple[int, int]) -> tuple[int, int]:
        """Height and width of its output for a map of this size."""
        steps = [(self.kernel, self.stride, self.padding)]
        if self.pool != "none":
            steps.append((self.pool_kernel, self.pool_steps, (self.pool_padding,) * 2))
        height, width = size
        for step in steps:
            sides = zip((height, width), *map(_both, step), strict=True)
            height, width = ((side + 2 * p - k) // s + 1 for side, k, s, p in sides)
        if height < 1 or width < 1:
            raise ConfigError(
                f"a map of {size[0]}x{size[1]} is smaller than the kernel {self.kernel} of a "
                "convolution: use larger images, fewer strides or more padding"
            )
        return height, width


def _both(value: int | str | tuple[int, int]) -> tuple[int, int]:
    assert isinstance(value, tuple)  # `ConvLayer` has spelled it so
    return value


def check_layers(field: str, layers: Sequence[ConvLayer], channels: int) -> int:
    """The channels behind these layers; an error where one of them does not fit."""
    for number, layer in enumerate(layers):
        where, width = f"{field}[{number}]", layer.width or channels
        if channels % layer.groups or width % layer.groups:
            raise ConfigError(
                f"{where}: groups = {layer.groups} does not divide {channels} channels into {width}"
            )
        if layer.norm == "group" and width % layer.norm_groups:
            raise ConfigError(
                f"{where}: norm_groups = {layer.norm_groups} does not divide width = {width}"
            )
        kernel, stride, padding = map(_both, (layer.kernel, layer.stride, layer.padding))
        same = all(k == 2 * p + 1 for k, p in zip(kernel, padding, strict=True))
        if layer.residual and layer.pool != "none":
            raise ConfigError(f"{where}: residual = True with pool = {layer.pool!r}: use one")
        if layer.residual and not (same and width == channels and stride == (1, 1)):
            raise ConfigError(
                f"{where}: residual = True needs stride 1, an odd kernel padded by its half, and "
                f"as many channels as come in ({channels})"
            )
        channels = width
    return channels


def strides(layers: Sequence[ConvLayer]) -> tuple[int, int]:
    """Of all layers together."""
    height = width = 1
    for layer in layers:
        for stride in (_both(layer.stride), layer.pool_steps):
            height, width = height * stride[0], width * stride[1]
    return height, width


class ChannelNorm(nn.LayerNorm):
    """LayerNorm over the channels of each position: (b, c, h, w) -> (b, c, h, w)."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


NORMS: dict[str, Callable[[ConvLayer, int], nn.Module]] = {
    "none": lambda layer, width: nn.Identity(),
    "batch": lambda layer, width: nn.BatchNorm2d(width, eps=layer.norm_eps),
    "layer": lambda layer, width: ChannelNorm(width, eps=layer.norm_eps),
    "group": lambda layer, width: nn.GroupNorm(layer.norm_groups, width, eps=layer.norm_eps),
}
CONV_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    **{name: function for name, function in ACTIVATIONS.items() if name != "silu-gated"},
}


def _pooling(layer: ConvLayer) -> nn.Module:
    if layer.pool == "none":
        return nn.Identity()
    kind = nn.MaxPool2d if layer.pool == "max" else nn.AvgPool2d
    return kind(_both(layer.pool_kernel), layer.pool_steps, layer.pool_padding)


class ConvNormActivation(nn.Module):
    """(b, channels, h, w) -> (b, width, h', w'). See `ConvLayer`."""

    def __init__(self, layer: ConvLayer, channels: int) -> None:
        super().__init__()
        width = layer.width or channels
        kernel, stride, padding = map(_both, (layer.kernel, layer.stride, layer.padding))
        self.conv = nn.Conv2d(
            channels, width, kernel, stride, padding, groups=layer.groups, bias=layer.bias
        )
        self.norm = NORMS[layer.norm](layer, width)
        self.activation, self.residual = layer.activation, layer.residual
        self.pool = _pooling(layer)
        nn.init.kaiming_normal_(self.conv.weight, mode="fan_out", nonlinearity="relu")
        if self.conv.bias is not None:
            nn.init.zeros_(self.conv.bias)

    def forward(self, x: Tensor) -> Tensor:
        made = CONV_ACTIVATIONS[self.activation](self.norm(self.conv(x)))
        return x + made if self.residual else self.pool(made)


Layers = Annotated[
    tuple[ConvLayer, ...], Check(lambda rows: len(rows) < 100, "fewer than 100 layers")
]


@dataclass(frozen=True)
class ConvStemConfig(StemConfig):
    """Convolutions before the patch embedding, whose map is cut into patches, and behind it."""

    kind: Literal["conv"] = "conv"
    layers: Layers = ()
    """Before it, each a table of the fields of `ConvLayer`,"""
    grid_layers: Layers = ()
    """and behind it, over the grid of patches."""
    patch_dim: int | None = None
    """Width of the patch embedding where grid_layers follow; dim unless given."""

    @property
    def stride(self) -> tuple[int, int]:
        return strides(self.layers)

    @property
    def grid_stride(self) -> tuple[int, int]:
        return strides(self.grid_layers)

    def map_of(self, size: tuple[int, int]) -> tuple[int, int]:
        for layer in self.layers:
            size = layer.map_of(size)
        return size

    def grid_of(self, patches: tuple[int, int]) -> tuple[int, int]:
        for layer in self.grid_layers:
            patches = layer.map_of(patches)
        return patches

    def patch_width(self, dim: int) -> int:
        return self.patch_dim or dim

    def out_channels(self, channels: int, dim: int) -> int:
        found = check_layers("stem.layers", self.layers, channels)
        if self.layers and self.layers[0].groups > 1:
            raise ConfigError("stem.layers[0]: groups = 1 is needed where the image is seen first")
        if check_layers("stem.grid_layers", self.grid_layers, self.patch_width(dim)) != dim:
            raise ConfigError(
                f"stem.patch_dim = {self.patch_width(dim)}, dim = {dim}: stem.grid_layers must "
                f"lead from the one to the other, the last with width = {dim}"
            )
        return found

    def make(self, channels: int) -> nn.Module:
        return ConvStem(self.layers, channels) if self.layers else nn.Identity()

    def make_grid(self, dim: int) -> nn.Module:
        layers, width = self.grid_layers, self.patch_width(dim)
        return GridStem(layers, width) if layers else nn.Identity()


class ConvStem(nn.Module):
    """Layers one behind another."""

    def __init__(self, layers: Sequence[ConvLayer], channels: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        for layer in layers:
            self.layers.append(ConvNormActivation(layer, channels))
            channels = layer.width or channels

    def forward(self, images: Tensor) -> Tensor:
        for layer in self.layers:
            images = layer(images)
        return images


class GridStem(ConvStem):
    """The same over the grid of patches, (b, gh, gw, d)."""

    channels_last = True

    def forward(self, patches: Tensor) -> Tensor:
        return super().forward(patches.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


@dataclass(frozen=True)
class NoEmbeddingConfig(Record):
    """No embedding: each position of the stem's map is a token; patch = 1."""

    kind: Annotated[Literal["none"], Uncommon(("none",))] = "none"

    def make(self, sizes: PatchSizes) -> nn.Module:
        return NoEmbedding()


class NoEmbedding(nn.Module):
    """Each position of a map is a token: (b, dim, h, w) -> (b, h, w, dim)."""

    channels_last = True

    def forward(self, maps: Tensor) -> Tensor:
        return maps.permute(0, 2, 3, 1)
