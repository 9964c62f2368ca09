"""Attention, taken from the one attention layer while it computes.

Each layer is shown to a function and then forgotten: what is kept is what that function keeps, so
that a long sequence costs the memory of one layer. Only the gradient for a class needs them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from vitreous.errors import ConfigError
from vitreous.layers.head import DistilledOutput
from vitreous.layers.tap import tapping
from vitreous.models.model import Model


@dataclass(frozen=True)
class Layer:
    """The attention of one block: weights (b, heads, queries, keys), whose rows sum to one."""

    number: int
    name: str
    weights: Tensor


@dataclass(frozen=True)
class Layout:
    """Where tokens stand: `prefix` without a place, then the patches of a grid, row by row."""

    prefix: int
    grid: tuple[int, int]
    image_size: tuple[int, int]
    """Pixels that the grid covers."""

    @property
    def cell(self) -> tuple[float, float]:
        """Height and width of a patch in pixels of the image that the model sees."""
        return self.image_size[0] / self.grid[0], self.image_size[1] / self.grid[1]

    @property
    def patches(self) -> int:
        return self.grid[0] * self.grid[1]

    def on_grid(self, values: Tensor) -> Tensor:
        """(…, prefix + patches) -> (…, gh, gw): what belongs to patches, in its place."""
        return values[..., self.prefix :].unflatten(-1, self.grid)

    def distances(self) -> Tensor:
        """(patches, patches): between the middles of two patches, in pixels."""
        ys = torch.arange(self.grid[0]).repeat_interleave(self.grid[1]) * self.cell[0]
        xs = torch.arange(self.grid[1]).repeat(self.grid[0]) * self.cell[1]
        return torch.hypot(ys[:, None] - ys[None], xs[:, None] - xs[None])


def layout_of(model: Model, images: Tensor) -> Layout:
    """How the tokens of these images stand in the model."""
    height, width = images.shape[2:]
    config = model.config
    if not hasattr(config, "prefix"):
        raise _no_attention(model)
    grid = config.grid_of((height, width))
    if config.pad:  # the last patches reach over the edge of the image
        height, width = (g * p for g, p in zip(grid, config.patch, strict=True))
    return Layout(config.prefix, grid, (height, width))


def look(model: Model, images: Tensor, see: Callable[[Layer], None]) -> Tensor:
    """Show `see` the attention of every block, in order, during one forward; the logits, back.

    The last block is computed for all tokens, not only for those that the head reads.
    """
    count = 0

    def tap(name: str, tensor: Tensor) -> None:
        nonlocal count
        if name.endswith(".weights"):
            see(Layer(count, name.removesuffix(".weights"), tensor))
            count += 1

    with tapping(model, tap):
        output = model.features(images).output
    if not count:
        raise _no_attention(model)
    if isinstance(output, DistilledOutput):  # in training mode a distilled model gives both
        return (output.class_logits + output.distillation_logits) / 2
    return output


def reading(model: Model, layout: Layout) -> Tensor:
    """(prefix + patches,): with what weight the head reads each token behind the last block."""
    weights = torch.zeros(layout.prefix + layout.patches)
    match model.config.pool:
        case "class":
            weights[0] = 1
        case "both":
            weights[:2] = 0.5
        case _:  # the mean of the patches, or all of them
            weights[layout.prefix :] = 1 / layout.patches
    return weights


class Rollout:
    """Attention rollout (Abnar and Zuidema 2020): how much of each patch reaches each token.

    Per layer the mean of the heads, mixed half and half with the residual connection; then the
    product of all layers.
    """

    def __init__(self) -> None:
        self.matrix: Tensor | None = None
        """(b, tokens, tokens)"""

    def see(self, layer: Layer) -> None:
        mean = layer.weights.mean(dim=1)
        step = 0.5 * mean + 0.5 * torch.eye(mean.shape[-1], device=mean.device)
        self.matrix = step if self.matrix is None else step @ self.matrix


class Distances:
    """Mean attention distance (ViT, figure 7 right and appendix D.7).

    For each layer and head: how many pixels lie between a patch and what it looks at, on average
    over patches and images. Tokens without a place are left out, and what remains sums to one.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout, self.between = layout, layout.distances()
        self.sums: dict[int, Tensor] = {}
        self.images = 0

    def see(self, layer: Layer) -> None:
        p = self.layout.prefix
        weights = layer.weights[:, :, p:, p:]
        weights = weights / weights.sum(dim=-1, keepdim=True).clamp(min=1e-12)
        between = self.between.to(weights.device)
        mean = (weights * between).sum(dim=-1).mean(dim=-1).sum(dim=0).double().cpu()
        self.sums[layer.number] = self.sums.get(layer.number, 0) + mean
        if layer.number == 0:
            self.images += len(weights)

    def result(self) -> Tensor:
        """(layers, heads), in pixels."""
        return torch.stack([self.sums[i] for i in sorted(self.sums)]) / max(self.images, 1)


@torch.no_grad()
def mean_distances(model: Model, batches: Iterable[Tensor]) -> Tensor:
    """(layers, heads), in pixels, over normalised images (b, c, h, w)."""
    distances: Distances | None = None
    for images in batches:
        distances = distances or Distances(layout_of(model, images))
        look(model, images, distances.see)
    if distances is None:
        raise ConfigError("mean attention distance needs at least one image")
    return distances.result()


def class_maps(model: Model, image: Tensor, classes: Iterable[int]) -> Tensor:
    """(classes, gh, gw): what speaks for each class, by gradient-weighted attention.

    After Chefer et al. 2021 (Generic attention-model explainability): per layer the attention times
    its gradient for the class, negative parts left out, mean of heads; relevance flows from the
    tokens that the head reads back through all layers, beside the residual connection. image
    (1, c, h, w). Each map sums to one, unless nothing speaks for the class: then it is zero.
    """
    layout = layout_of(model, image)
    layers: list[Tensor] = []
    with torch.enable_grad():
        logits = look(model, image.requires_grad_(True), lambda layer: layers.append(layer.weights))
        start = reading(model, layout).to(image.device)
        maps = []
        for number in classes:
            gradients = torch.autograd.grad(logits[0, number], layers, retain_graph=True)
            relevance = start
            for weights, gradient in zip(reversed(layers), reversed(gradients), strict=True):
                step = (weights.detach() * gradient)[0].clamp(min=0).mean(dim=0)
                relevance = relevance + relevance @ step
            # A pooled patch is no evidence by itself: only what attention has brought counts.
            found = layout.on_grid(relevance - start).clamp(min=0)
            maps.append(found / found.sum().clamp(min=1e-30))
    return torch.stack(maps).detach()


def _no_attention(model: Model) -> ConfigError:
    return ConfigError(
        f"{model.name or type(model).__name__} has no attention to look at: use a model that has, "
        "such as a ViT, DeiT, CPVT or hybrid"
    )
