"""What every model has, whatever paper it is from.

A model is four steps, and `forward` is their composition:

    tokens, grid = model.embed(images)      # (b, c, h, w) -> (b, p + gh·gw, d)
    tokens = model.encode(tokens, grid)     # block by block
    output = model.head(model.pool(tokens))

Anything may stand between them: masked pre-training drops tokens behind `embed`. A model that
contains another one (a segmenter, a detector) composes that one, its `core`, instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from torch import Tensor, nn

from vitreous.config import pair
from vitreous.errors import ConfigError, InputError
from vitreous.layers.features import Features, block_indices
from vitreous.layers.resample import Grid, Resampling, State


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
    the image."""
    rows: Places
    """The tokens that attend,"""
    columns: Places
    """and those that they attend to."""

    def inside(self, owner: str, part: str) -> AttentionLayer:
        """The same in a model that contains this one as `owner`."""
        return self._replace(name=f"{owner}.{self.name}", part=part)


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
    input_weight: str
    """The parameter that sees the image's channels."""
    input_norms: tuple[str, ...] = ()
    """Parameters with a value for each pixel of a patch and each channel."""
    classwise: tuple[str, ...] = ("head.*",)
    """Patterns of the parameters that belong to the classes: others come with other classes."""
    prefix_length = 0
    """Tokens before the patches."""
    ends_with_norm = False
    """Whether a norm follows the last block, which `features` leaves out unless asked."""
    depth: int
    """How many blocks or stages there are."""
    head: nn.Module

    @property
    def core(self) -> Model:
        """The model that looks at the image: itself, or the encoder inside it."""
        return self

    @property
    def width(self) -> int:
        """Channels of what the head sees."""
        return self.levels((1 << 10, 1 << 10))[-1].channels

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

    def final_norm(self, x: Tensor, block: int) -> Tensor:
        """The norm that follows the last block, on tokens from behind `block`, where it fits."""
        return x

    def levels(self, size: tuple[int, int]) -> list[Level]:
        """The maps that `features` gives for each block or stage, for images of this size."""
        raise NotImplementedError

    def features(
        self, images: Tensor, blocks: Iterable[int] | None = None, *, norm: bool = False
    ) -> Features:
        """Tokens and maps behind the chosen blocks or stages (None: the last), and the output.

        One pass. `norm` puts the final norm on what it fits: every block of a ViT, the last stage
        of a Swin.
        """
        if norm and not self.ends_with_norm:
            raise ConfigError("norm=True was asked for; this model has no norm behind its blocks")
        asked = block_indices(blocks, self.depth)
        x, grid = self.embed(images)
        levels = self.levels((images.shape[2], images.shape[3]))
        behind: dict[int, Tensor] = {}
        done = 0
        for block in sorted(set(asked)):
            x = behind[block] = self.encode(x, grid, done, block + 1)
            grid, done = levels[block].grid, block + 1
        output = self.head(self.pool(self.encode(x, grid, done)))
        tokens = [self.final_norm(behind[i], i) if norm else behind[i] for i in asked]
        maps = [
            each[:, self.prefix_length :].transpose(1, 2).unflatten(2, levels[i].grid)
            for i, each in zip(asked, tokens, strict=True)
        ]
        return Features(tokens, maps, output, self.prefix_length)

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
        what stands before the blocks, each block, what stands behind them."""
        raise NotImplementedError

    def undecayed(self) -> list[nn.Parameter]:
        """Tokens, positions and queries: parameters of several axes that weight decay spares."""
        return []

    def attentions(self, size: tuple[int, int] | None = None) -> list[AttentionLayer]:
        """Every attention in the order of the forward, for images of this size (or its own)."""
        return []

    def resample(
        self,
        state: State,
        mode: str | None = None,
        source: Grid | None = None,
        owner: str = "",
    ) -> Resampling:
        """Bring what depends on the resolution, in a state dict, to this model's; in place.

        mode: bicubic or bilinear; None refuses what does not fit. source: the grid (or window) that
        the state was made for, where its shapes do not tell. owner: what the names in `state` begin
        with, if this model is a part of another ("encoder.").
        """
        return Resampling()

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
