"""Mean attention distance (ViT, figure 7 right and appendix D.7)."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from vitreous.errors import ConfigError
from vitreous.explain.attention import Layer, look
from vitreous.models.model import Model, Places


class Distances:
    """For each layer and head: how many pixels lie between a patch and what it attends to, on
    average over patches and images. Tokens without a place are left out; the rest sums to one.
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
    """(patches, 2): y and x of the centre of each patch, in pixels of what the model sees."""
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
