"""Gradient-weighted attention for a class (Chefer et al. 2021, Generic attention-model
explainability)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from vitreous.explain.attention import Layer, Reader, divided, look
from vitreous.models.model import Model


class ExplainedScore(NamedTuple):
    """What a map is made for: a number of the model's output, and the tokens it is read from."""

    score: Callable[[Tensor], Tensor]
    read: Reader


def class_maps(model: Model, image: Tensor, wanted: Iterable[ExplainedScore]) -> Tensor:
    """(wanted, gh, gw): the evidence for each of the numbers. image (1, c, h, w).

    Per layer the attention times its gradient for the number, negative parts left out, mean of
    heads; relevance flows from the tokens that are read back through all layers, beside the
    residual connection. Each map sums to one, or is zero where there is no evidence for the number.
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
            start, relevance = (divided(part, before, here) for part in (start, relevance))
        step = (layer.weights.detach() * gradients[i]).clamp(min=0).mean(dim=1)
        relevance = relevance + layer.attended(step, relevance)
    # That a patch is pooled is no evidence: only what attention has brought counts.
    return layers[0].on_grid(relevance - start)[0]
