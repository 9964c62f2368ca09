"""Attention, taken from the one attention layer while it computes.

Each layer is shown to a function and then forgotten: what is kept is what that function keeps, so
that a long sequence costs the memory of one layer. Only the gradient for a class needs them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.errors import ConfigError
from vitreous.layers.attention import Heads
from vitreous.layers.head import DistilledOutput
from vitreous.layers.tap import tapping
from vitreous.models.detr import DETR
from vitreous.models.model import Model, Places

Grid = tuple[int, int]


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
        # A row of zeros behind the last token is what filling stands for (place -1).
        filled = torch.cat((values, values.new_zeros(b, 1, k)), dim=1)
        found = weights.unflatten(0, (b, len(windows))) @ filled[:, windows]
        result = torch.zeros_like(filled)
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
    """Show `see` the attention of every block, in order, during one forward; the logits, back.

    The blocks are those of the model's core, since a decoder's have other tokens; or of a detector
    those of its encoder, which works on what the core gives. The last one is computed for all
    tokens, not only for those that the head reads.
    """
    count = 0

    def counted(layer: Layer) -> None:
        nonlocal count
        count += 1
        see(layer)

    with showing(model, _watched(model), images, counted):
        output = model.features(images).output
    if not count:
        raise no_attention(model)
    if isinstance(output, DistilledOutput):  # in training mode a distilled model gives both
        return (output.class_logits + output.distillation_logits) / 2
    return output


@contextmanager
def showing(model: Model, part: str, images: Tensor, see: See) -> Iterator[None]:
    """Inside, `see` is shown the attention of a part of `model`, by its name, layer by layer, while
    that is given `images`."""
    core, count = model.core, 0
    within = model.get_submodule(part)
    owner, prefix = (core, "") if within is core else (model, f"{part}.")
    size = (images.shape[2], images.shape[3])

    def tap(name: str, tensor: Tensor) -> None:
        nonlocal count
        if name.endswith(".weights"):
            name = prefix + name.removesuffix(".weights")
            see(Layer(count, name, tensor, owner.places(name, size)))
            count += 1

    with tapping(within, tap):
        yield


def _watched(model: Model) -> str:
    """The name of the part whose attention is looked at."""
    if isinstance(model, DETR):
        return "encoder"
    return next(name for name, module in model.named_modules() if module is model.core)


def has_attention(model: Model) -> bool:
    """Whether there is any to look at, in the core or, of a detector, behind it."""
    looking = model if isinstance(model, DETR) else model.core
    return any(isinstance(module, Heads) for module in looking.modules())


def has_distances(model: Model) -> bool:
    """Whether it has attention between places: a detector may be without an encoder."""
    watched = model.get_submodule(_watched(model))
    return any(isinstance(module, Heads) for module in watched.modules())


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


def head_reader(model: Model) -> Reader:
    """What the head of a classifier reads."""
    pool = getattr(model.config, "pool", "mean")

    def read(layer: Layer) -> Tensor:
        weights = torch.zeros(layer.tokens, device=layer.weights.device)
        prefix = layer.places.prefix
        match pool:
            case "class":
                weights[0] = 1
            case "both":
                weights[:2] = 0.5
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
        filled = F.pad(pixels.float(), missing)
        patches = filled.unflatten(1, (gw, pw)).unflatten(0, (gh, ph)).sum(dim=(1, 3)).flatten()
        weights = torch.cat((patches.new_zeros(layer.places.prefix), patches / patches.sum()))
        return weights.to(layer.weights.device)

    return read


class Rollout:
    """Attention rollout (Abnar and Zuidema 2020): how much of each patch reaches each token.

    Per layer the mean of the heads, mixed half and half with the residual connection; then the
    product of all layers. Where patches are merged on the way, a merged one is their mean.

    Layers in which all tokens see all become one matrix. Of windows the means are kept, which are
    small, and followed back at the end: all patches by all patches would be too much.
    """

    def __init__(self) -> None:
        self.steps: list[Layer] = []
        """Each with weights (b · windows, n, n), the residual connection in them."""
        self.layers = 0

    def see(self, layer: Layer) -> None:
        mean = layer.weights.mean(dim=1)
        step = 0.5 * mean + 0.5 * torch.eye(mean.shape[-1], device=mean.device)
        if self.steps and layer.places.windows is None and self.steps[-1].places.windows is None:
            step = step @ self.steps.pop().weights
        self.steps.append(replace(layer, weights=step))
        self.layers += 1

    def map(self, read: Reader, *, own: bool = True) -> Tensor:
        """(b, gh, gw) over the patches of the first layer, each sums to one: what has reached those
        tokens of the last layer that `read` gives.

        Without `own`, what they kept of themselves through all layers is left out: of a single
        patch that is the most, and says nothing. A class token's is not on the map anyway.
        """
        last, first = self.steps[-1], self.steps[0]
        windows = last.places.windows
        images = len(last.weights) // (1 if windows is None else len(windows))
        row = kept = read(last).expand(images, -1)
        for number in reversed(range(len(self.steps))):
            layer = self.steps[number]
            if row.shape[1] != layer.tokens:
                before, here = self.steps[number + 1].places.grid, layer.places.grid
                row, kept = (_divided(part, before, here, True) for part in (row, kept))
            row = layer.attended(layer.weights, row)
        found = first.on_grid(row if own else row - kept * 0.5**self.layers)
        return found / found.sum(dim=(1, 2), keepdim=True).clamp(min=1e-12)


class Distances:
    """Mean attention distance (ViT, figure 7 right and appendix D.7).

    For each layer and head: how many pixels lie between a patch and what it looks at, on average
    over patches and images. Tokens without a place are left out, and what remains sums to one.
    """

    def __init__(self) -> None:
        self.sums: dict[int, Tensor] = {}
        self.counts: dict[int, int] = {}
        self.widest = 0.0
        """The largest distance between two patches."""

    def see(self, layer: Layer) -> None:
        p = layer.places.prefix
        weights = layer.weights[:, :, p:, p:]
        places = coordinates(layer.places).to(weights.device)  # (patches, 2)
        self.widest = max(self.widest, torch.dist(places[0], places[-1]).item())
        windows = layer.places.windows
        if windows is None:
            windows = torch.arange(len(places))[None]
        windows = windows.to(weights.device)
        real = windows >= 0  # (windows, n)
        inside = places[windows.clamp(min=0)]
        between = torch.cdist(inside, inside)  # (windows, n, n)
        weights = weights.unflatten(0, (-1, len(windows)))  # (b, windows, heads, n, n)
        weights = weights * real[:, None, None]
        weights = weights / weights.sum(dim=-1, keepdim=True).clamp(min=1e-12)
        each = (weights * between[:, None]).sum(dim=-1)  # (b, windows, heads, n)
        total = (each * real[:, None]).sum(dim=(0, 1, 3)).double().cpu()
        self.sums[layer.number] = self.sums.get(layer.number, 0) + total
        count = len(weights) * int(real.sum())
        self.counts[layer.number] = self.counts.get(layer.number, 0) + count

    def result(self) -> list[Tensor]:
        """For each layer (heads,), in pixels."""
        return [self.sums[i] / self.counts[i] for i in sorted(self.sums)]


def coordinates(places: Places) -> Tensor:
    """(patches, 2): y and x of the middle of each patch, in pixels of what the model sees."""
    (gh, gw), (ph, pw) = places.grid, places.pixels
    ys = (torch.arange(gh) + 0.5).repeat_interleave(gw) * ph
    xs = (torch.arange(gw) + 0.5).repeat(gh) * pw
    return torch.stack((ys, xs), dim=1)


@torch.no_grad()
def mean_distances(model: Model, batches: Iterable[Tensor]) -> Distances:
    """Over normalised images (b, c, h, w)."""
    distances = Distances()
    for images in batches:
        look(model, images, distances.see)
    if not distances.sums:
        raise ConfigError("mean attention distance needs at least one image")
    return distances


class Wanted(NamedTuple):
    """What a map is made for: a number of the model's output, and the tokens it is read from."""

    score: Callable[[Tensor], Tensor]
    read: Reader


def class_maps(model: Model, image: Tensor, wanted: Iterable[Wanted]) -> Tensor:
    """(wanted, gh, gw): what speaks for each of the numbers, by gradient-weighted attention.

    After Chefer et al. 2021 (Generic attention-model explainability): per layer the attention times
    its gradient for the number, negative parts left out, mean of heads; relevance flows from the
    tokens that are read back through all layers, beside the residual connection. image
    (1, c, h, w). Each map sums to one, unless nothing speaks for the number: then it is zero.
    """
    layers: list[Layer] = []
    with torch.inference_mode(False), torch.enable_grad():
        logits = look(model, image.clone().requires_grad_(), layers.append)
        maps = []
        for score, read in wanted:
            gradients = torch.autograd.grad(
                score(logits), [layer.weights for layer in layers], retain_graph=True
            )
            found = _relevance(read, layers, gradients).clamp(min=0)
            maps.append(found / found.sum().clamp(min=1e-30))
    return torch.stack(maps).detach()


def _relevance(read: Reader, layers: list[Layer], gradients: tuple[Tensor, ...]) -> Tensor:
    """(gh, gw) over the patches of the first layer."""
    start = read(layers[-1])[None]
    relevance = start
    for i in reversed(range(len(layers))):
        layer = layers[i]
        if i + 1 < len(layers) and layer.tokens != layers[i + 1].tokens:
            before, here = layers[i + 1].places.grid, layer.places.grid
            start, relevance = (_divided(part, before, here) for part in (start, relevance))
        step = (layer.weights.detach() * gradients[i]).clamp(min=0).mean(dim=1)
        relevance = relevance + layer.attended(step, relevance)
    # A pooled patch is no evidence by itself: only what attention has brought counts.
    return layers[0].on_grid(relevance - start)[0]


def _divided(row: Tensor, grid: Grid, finer: Grid, by_count: bool = False) -> Tensor:
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
