"""Which picture may be trusted? Deletion and insertion (Petsiuk et al. 2018, RISE, section 4).

Patches become grey one after another, those first that a map calls important: the score of the
predicted class should fall at once. Deletion is the area under that curve, lower is better. In
insertion all begin grey, and the important ones come back first: higher is better. RISE begins
insertion with a blurred image; here both have grey, the mean colour of the training data.

Random order and the centre first are what knows nothing of the image.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.engines.interventions import Interventions
from vitreous.engines.probes import random_orders
from vitreous.errors import ConfigError
from vitreous.explain.attention import Layer, head_reader, look, no_attention
from vitreous.explain.class_maps import ExplainedScore, class_maps
from vitreous.explain.rollout import Rollout
from vitreous.predict import Predictor
from vitreous.tasks import show_of
from vitreous.tasks.bootstrap import interval, resampled

KINDS = ("attention", "rollout", "class map", "occlusion", "centre first", "random")
"""attention: of the last block, mean of heads, from the tokens that the head reads. occlusion: how
much the score falls without a patch. The last two know nothing of the image."""
STEPS = 28
"""In which patches are deleted or inserted, where there are more."""


@dataclass(frozen=True)
class MapScore:
    """How good the order is in which one kind of map puts patches; from 0 to 1, for each image."""

    deletion: Tensor
    """(images,): lower is better."""
    insertion: Tensor
    """(images,): higher is better."""

    def summary(self) -> dict[str, Any]:
        """The means over images, with their 95 % intervals."""
        found: dict[str, Any] = {}
        for name, values in vars(self).items():
            drawn = torch.cat([block @ values / len(values) for block in resampled(len(values))])
            found[name] = values.mean().item()
            found[f"{name}_interval"] = interval(drawn)
        return found


def map_scores(
    predictor: Predictor,
    images: Sequence[Tensor],
    kinds: Sequence[str] = KINDS,
    *,
    steps: int = STEPS,
    seed: int = 0,
    batch: int = 256,
) -> dict[str, MapScore]:
    """By the kind of map, for images (c, h, w) as the model takes them (`predictor.prepare`).

    About the class that is predicted for the whole image. `seed` is that of the random order.
    """
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise ConfigError(
            f"kinds = {unknown[0]!r} is not known: the kinds of maps are {', '.join(KINDS)}"
        )
    if not len(images):
        raise ConfigError("maps are scored over images: give at least one that can be used")
    model, task = predictor.model, predictor.task
    given = Interventions.of(model)
    if "patch_keep" not in given or "heads" not in given:
        raise no_attention(model)
    activate = _score_of(predictor)

    def scores(values: Tensor, keep: Tensor) -> Tensor:
        """(k, classes): of one image (c, h, w), where each row of `keep` (k, n) leaves patches."""
        found = []
        for part in keep.split(batch):
            changed = given.with_values({"patch_keep": part.to(values.device)})
            seen = changed.rearranged(values.expand(len(part), -1, -1, -1))
            found.append(
                activate(
                    task.infer(predictor.engine, seen, [(seen.shape[2], seen.shape[3])] * len(part))
                )
            )
        return torch.cat(found)

    n = math.prod(given.grid)
    counts = torch.linspace(0, n, min(steps, n) + 1).round().long()
    areas: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    for image in images:
        values = image.to(predictor.device)
        number = int(scores(values, torch.ones(1, n)).argmax())

        def score(keep: Tensor, values: Tensor = values, number: int = number) -> Tensor:
            return scores(values, keep)[:, number]

        maps = _maps(predictor, values, number, given.grid, kinds, score, seed)
        for kind, found in maps.items():
            rank = torch.empty(n).scatter(0, found.argsort(descending=True, stable=True), _count(n))
            kept = (rank[None] >= counts[:, None]).float()  # (steps + 1, n)
            shares = counts / n
            curves = score(torch.cat((kept, 1 - kept))).chunk(2)
            deletion, insertion = (torch.trapezoid(each, shares).item() for each in curves)
            areas[kind].append((deletion, insertion))
    tensors = {kind: torch.tensor(each, dtype=torch.float64) for kind, each in areas.items()}
    return {kind: MapScore(each[:, 0], each[:, 1]) for kind, each in tensors.items()}


def _count(n: int) -> Tensor:
    return torch.arange(n).float()


def _score_of(predictor: Predictor) -> Callable[[Tensor], Tensor]:
    """From logits (b, classes) to scores from 0 to 1."""
    activate = torch.softmax if show_of(predictor.task.name).excludes else None

    def score(logits: Any) -> Tensor:
        if not isinstance(logits, Tensor) or logits.ndim != 2:
            raise ConfigError(
                f"maps are scored for models that classify whole images; this one is to "
                f"{predictor.task.name}"
            )
        return logits.float().sigmoid() if activate is None else activate(logits.float(), 1)

    return score


def _maps(
    predictor: Predictor,
    values: Tensor,
    number: int,
    grid: tuple[int, int],
    kinds: Sequence[str],
    score: Callable[[Tensor], Tensor],
    seed: int,
) -> dict[str, Tensor]:
    """By their kind (n,): how important each patch of one image is."""
    model, batch, n = predictor.model, values[None], math.prod(grid)
    read, rollout, last = head_reader(model, batch), Rollout(), list[Layer]()

    def see(layer: Layer) -> None:
        rollout.see(layer)
        last[:] = [layer]

    found: dict[str, Tensor] = {}
    with torch.no_grad():
        look(model, batch, see)
        weights = last[0].weights.mean(dim=1)
        found["attention"] = last[0].on_grid(last[0].attended(weights, read(last[0])[None]))[0]
        found["rollout"] = rollout.map(read)[0]
        if "occlusion" in kinds:
            found["occlusion"] = -score(1 - torch.eye(n)).unflatten(0, grid)
    if "class map" in kinds:
        wanted = ExplainedScore(lambda logits: logits[0, number], read)
        found["class map"] = class_maps(model, batch, [wanted])[0]
    ys, xs = (torch.arange(side) - (side - 1) / 2 for side in grid)
    found["centre first"] = -(ys[:, None].square() + xs[None].square())
    found["random"] = random_orders(batch, n, f"{seed} random map")[0].float().unflatten(0, grid)
    return {kind: _on(found[kind].float().cpu(), grid).flatten() for kind in kinds}


def _on(values: Tensor, grid: tuple[int, int]) -> Tensor:
    """(gh, gw): a map on the grid of the patches that change (Swin's last maps are coarser)."""
    if tuple(values.shape) == grid:
        return values
    return F.interpolate(values[None, None], grid, mode="bilinear", align_corners=False)[0, 0]
