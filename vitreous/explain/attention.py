"""Attention, taken from the one attention layer while it computes.

Each layer is shown to a function and then forgotten: what is kept is what that function keeps, so
that a long sequence costs the memory of one layer. Only the gradient for a class needs them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.config import kind_of
from vitreous.errors import ConfigError
from vitreous.layers.head import DistilledOutput
from vitreous.layers.resample import Grid
from vitreous.layers.tap import tap
from vitreous.models.model import Model, Places


@dataclass(frozen=True)
class Layer:
    """The attention of one block: weights (b · windows, heads, queries, keys); rows sum to one.

    Without windows every token sees every other. Tokens are those of `places`: prefix, then
    patches.
    """

    number: int
    name: str
    weights: Tensor
    places: Places
    """Of the keys."""
    part: str = "encoder"
    """Of the model: see `AttentionLayer.part`."""

    @property
    def tokens(self) -> int:
        return self.places.prefix + self.places.grid[0] * self.places.grid[1]

    @property
    def heads(self) -> int:
        return self.weights.shape[1]

    def gather(self, weights: Tensor, values: Tensor) -> Tensor:
        """What each token gathers: weights (b · windows, n, n), values (b, tokens, k) -> alike."""
        windows = self.places.windows
        if windows is None:
            return weights @ values
        b, _, k = values.shape
        windows = windows.to(values.device)
        # A row of zeros behind the last token stands for padding (place -1).
        padded = torch.cat((values, values.new_zeros(b, 1, k)), dim=1)
        found = weights.unflatten(0, (b, len(windows))) @ padded[:, windows]
        result = torch.zeros_like(padded)
        result[:, windows.flatten()] = found.flatten(1, 2)
        return result[:, :-1]

    def attended(self, weights: Tensor, askers: Tensor) -> Tensor:
        """What `askers` (b, tokens), with a weight each, attend to: (b, tokens)."""
        return self.gather(weights.mT, askers[:, :, None])[:, :, 0]

    def on_grid(self, values: Tensor) -> Tensor:
        """(…, tokens) -> (…, gh, gw): what belongs to patches, in its place."""
        return values[..., self.places.prefix :].unflatten(-1, self.places.grid)


See = Callable[[Layer], None]


def look(model: Model, images: Tensor, see: See) -> Any:
    """Show `see` the attention of every block, in order, during one forward; return the output.

    The blocks are those that make the features: of an encoder, not of a decoder. The last one is
    computed for all tokens, not only for those that the head reads.
    """
    if not has_distances(model):
        raise no_attention(model)
    with showing(model, images, see):
        output = model(images)
    if isinstance(output, DistilledOutput):  # in training mode a distilled model gives both
        return (output.class_logits + output.distillation_logits) / 2
    return output


@contextmanager
def showing(model: Model, images: Tensor, see: See, part: str = "encoder") -> Iterator[None]:
    """Inside, while `model` is given `images`, `see` is shown the attention of one of its parts
    (see `AttentionLayer.part`), layer by layer."""
    layers = [a for a in model.attentions((images.shape[2], images.shape[3])) if a.part == part]
    numbers = {layer.name: number for number, layer in enumerate(layers)}

    def tapped(name: str, tensor: Tensor) -> None:
        owner, _, what = name.rpartition(".")
        if what == "weights":
            at = layers[numbers[owner]]
            see(Layer(numbers[owner], owner, tensor, at.columns, part))

    with tap({layer.name: model.get_submodule(layer.name) for layer in layers}, tapped):
        yield


@contextmanager
def showing_points(model: Model, see: Callable[[Tensor, Tensor], None]) -> Iterator[None]:
    """Inside, while `model` is given images, `see` is shown the points of its deformable attention,
    layer by layer: places (b, q, heads, levels, points, 2), xy as fractions of the image, and what
    each counts, (b, q, heads, levels, points)."""
    last: dict[str, Tensor] = {}

    def tapped(name: str, tensor: Tensor) -> None:
        what = name.rpartition(".")[2]
        if what == "places":
            last[what] = tensor
        elif what == "shares":
            see(last["places"], tensor)

    crossing = [layer.name for layer in model.attentions() if layer.part == "cross"]
    with tap({name: model.get_submodule(name) for name in crossing}, tapped):
        yield


def has_attention(model: Model) -> bool:
    """Whether there is attention to the image: in its encoder, or from queries."""
    return any(layer.part in ("encoder", "cross") for layer in model.attentions())


def has_distances(model: Model) -> bool:
    """Whether there is attention between places of the image, in its encoder."""
    return any(layer.part == "encoder" for layer in model.attentions())


def map_places(model: Model, images: Tensor) -> Places:
    """Where the positions of the map are to which a detector's queries attend."""
    layers = model.attentions((images.shape[2], images.shape[3]))
    return next(layer.columns for layer in layers if layer.part == "cross")


def no_attention(model: Model) -> ConfigError:
    core = model.core
    name = core.name or type(core).__name__
    who = name if core is model else f"{name}, the encoder of {model.name or type(model).__name__},"
    return ConfigError(
        f"{who} has no attention to look at: use a model that has, such as a ViT, DeiT, CPVT, "
        "hybrid or Swin"
    )


Reader = Callable[[Layer], Tensor]
"""(tokens,), in sum one: with what weight each token of a layer is read, were it the last one."""


def head_reader(model: Model, image: Tensor) -> Reader:
    """What the head of a classifier reads of an image (1, c, h, w)."""
    pool = kind_of(model.config, "pool") or "mean"
    pooled: list[Tensor] = []
    if any(layer.part == "pool" for layer in model.attentions()):
        with (
            torch.no_grad(),
            showing(model, image, lambda layer: pooled.append(layer.weights), part="pool"),
        ):
            model(image)

    def read(layer: Layer) -> Tensor:
        weights = torch.zeros(layer.tokens, device=layer.weights.device)
        prefix = layer.places.prefix
        if pooled:
            return pooled[0][0].mean(dim=0)[0]  # of (1, heads, 1, tokens)
        match pool:
            case "class" | "first":
                weights[0] = 1
            case "both":
                weights[:2] = 0.5
            case "class+mean":
                weights[0], weights[prefix:] = 0.5, 0.5 / (layer.tokens - prefix)
            case "mean-all" | "max" | "flatten":
                weights[:] = 1 / layer.tokens
            case _:  # the mean of the patches, or all of them
                weights[prefix:] = 1 / (layer.tokens - prefix)
        return weights

    return read


def pixel_reader(pixels: Tensor) -> Reader:
    """The patches in which some pixels lie: (h, w), as large as what the model sees, how much each
    counts."""

    def read(layer: Layer) -> Tensor:
        (gh, gw), (ph, pw) = layer.places.grid, layer.places.pixels
        # the last patches may reach over the edge
        missing = (0, gw * pw - pixels.shape[1], 0, gh * ph - pixels.shape[0])
        padded = F.pad(pixels.float(), missing)
        patches = padded.unflatten(1, (gw, pw)).unflatten(0, (gh, ph)).sum(dim=(1, 3)).flatten()
        weights = torch.cat((patches.new_zeros(layer.places.prefix), patches / patches.sum()))
        return weights.to(layer.weights.device)

    return read


def divided(row: Tensor, grid: Grid, finer: Grid, by_count: bool = False) -> Tensor:
    """(b, patches) -> (b, patches of the finer grid): each gives a quarter to each of its four.

    At an edge some of the four are missing; `by_count` divides by those that are there.
    """
    on_grid = row.unflatten(1, grid)
    if by_count:
        ys, xs = (torch.full((size,), 2.0, device=row.device) for size in grid)
        ys[-1], xs[-1] = 2 - finer[0] % 2, 2 - finer[1] % 2
        on_grid = on_grid / (ys[:, None] * xs[None])
    else:
        on_grid = on_grid / 4
    parts = on_grid.repeat_interleave(2, dim=1).repeat_interleave(2, dim=2)
    return parts[:, : finer[0], : finer[1]].flatten(1)
