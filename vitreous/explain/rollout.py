"""Attention rollout (Abnar and Zuidema 2020)."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from vitreous.explain.attention import Layer, Reader, divided


class Rollout:
    """How much of each patch reaches each token.

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
        patch that is the most, and has no meaning. A class token's is not on the map anyway.
        """
        last, first = self.steps[-1], self.steps[0]
        windows = last.places.windows
        images = len(last.weights) // (1 if windows is None else len(windows))
        row = kept = read(last).expand(images, -1)
        for number in reversed(range(len(self.steps))):
            layer = self.steps[number]
            if row.shape[1] != layer.tokens:
                before, here = self.steps[number + 1].places.grid, layer.places.grid
                row, kept = (divided(part, before, here, True) for part in (row, kept))
            row = layer.attended(layer.weights, row)
        found = first.on_grid(row if own else row - kept * 0.5**self.layers)
        return found / found.sum(dim=(1, 2), keepdim=True).clamp(min=1e-12)
