"""What queries learn from objects with masks (RF-DETR; PointRend, Mask2Former section 3.3).

Masks are compared at random points alone. For matching, all queries and objects share the same
points. In the loss, each pair has its own: of three times as many points, most are those where the
prediction is the least certain.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.models.rf_detr import RFDETROutput
from vitreous.tasks.objects.losses import (
    Matches,
    Target,
    by_focal_loss,
    match,
    number_of,
    of_layers,
    quality_terms,
)
from vitreous.tasks.shared_random import rand_rows

MASK_WEIGHT, DICE_WEIGHT = 5.0, 5.0
"""In the loss and in matching."""
SPACING = 16
"""Positions of a mask's map for each random point."""
OVERSAMPLED, UNCERTAIN = 3, 0.75
"""How many times as many points are drawn at first, and which part of those in the end are the
least certain of them."""


def instance_loss(
    output: RFDETROutput, targets: Sequence[Target], count: float | None
) -> dict[str, Tensor]:
    """The terms of `quality_loss`, and for masks cross-entropy and Dice, of every decoder layer and
    of the first stage; targets also have masks (n, h, w), at the size of their image."""
    groups = output.groups
    objects = max((number_of(targets) if count is None else count) * groups, 1.0)
    truth = joined_masks([target["masks"] for target in targets])
    stages = []
    for logits, boxes, masks in stages_of(output):
        found = match(logits, boxes, targets, by_focal_loss, mask_costs(masks, truth))
        terms = quality_terms(logits, boxes, targets, found, objects)  # (groups,) each
        summed = {name: term.sum() for name, term in terms.items()}
        stages.append(summed | mask_terms(masks, truth, found, objects))
    layers = [*stages[1:-1], stages[0], stages[-1]]
    return of_layers(
        {name: torch.stack([each[name] for each in layers]) for name in layers[0]}, proposed=True
    )


def stages_of(output: RFDETROutput) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Logits, boxes and masks of the last decoder layer, of the others, and of the first stage,
    (groups, b, q, …) each, in float32; in this order, as published: points are drawn in it."""
    assert output.masks is not None
    assert output.proposed_masks is not None
    layers = len(output.logits)
    decoded = output.logits, output.boxes, output.masks
    stages: list[Any] = [
        [each[layer] for each in decoded] for layer in (layers - 1, *range(layers - 1))
    ]
    stages.append((output.proposed_logits, output.proposed_boxes, output.proposed_masks))
    for stage in stages:
        logits, boxes, masks = (
            each.float().unflatten(1, (output.groups, -1)).transpose(0, 1) for each in stage
        )
        yield logits, boxes, masks


def joined_masks(masks: Sequence[Tensor]) -> Tensor:
    """(n, h, w) each -> (all n, H, W), padded at the bottom and right as their images are."""
    height, width = (max(each.shape[axis] for each in masks) for axis in (1, 2))
    return torch.cat(
        [F.pad(each, (0, width - each.shape[2], 0, height - each.shape[1])) for each in masks]
    )


@torch.no_grad()
def mask_costs(masks: Tensor, truth: Tensor) -> Tensor:
    """(groups, b, q, h, w), (n, H, W) -> (groups, b, q, n): cross-entropy and Dice of each with
    each, at the same random points."""
    height, width = masks.shape[-2:]
    points = torch.rand(1, max(height * width // SPACING, 1), 2, device=masks.device)
    if not len(truth):
        return masks.new_zeros(*masks.shape[:3], 0)
    predicted = at_points(masks.flatten(0, 2)[None], points)[0]  # (groups·b·q, points)
    real = pixels_at(truth, torch.arange(len(truth), device=truth.device), points)
    inside, outside = F.softplus(-predicted), F.softplus(predicted)
    entropy = (inside @ real.T + outside @ (1 - real).T) / points.shape[1]
    chance = predicted.sigmoid()
    common, both = chance @ real.T, chance.sum(dim=1)[:, None] + real.sum(dim=1)
    dice = 1 - (2 * common + 1) / (both + 1)
    return (MASK_WEIGHT * entropy + DICE_WEIGHT * dice).unflatten(0, masks.shape[:3])


def mask_terms(masks: Tensor, truth: Tensor, found: Matches, objects: float) -> dict[str, Tensor]:
    """Scalars, of the pairs that were matched."""
    order = found.image.argsort(stable=True)  # as published: image by image, with all its groups
    predicted = masks[found.layer[order], found.image[order], found.query[order]]  # (m, h, w)
    points = uncertain_points(predicted.detach())
    if not len(predicted):
        return {"mask": predicted.sum(), "dice": predicted.sum()}
    logits = at_points(predicted[:, None], points)[:, 0]  # (m, points)
    labels = pixels_at(truth, found.target[order], points)
    entropy = F.binary_cross_entropy_with_logits(logits, labels, reduction="none").mean(dim=1)
    chance = logits.sigmoid()
    common, both = (chance * labels).sum(dim=1), chance.sum(dim=1) + labels.sum(dim=1)
    dice = 1 - (2 * common + 1) / (both + 1)
    return {
        "mask": MASK_WEIGHT * entropy.sum() / objects,
        "dice": DICE_WEIGHT * dice.sum() / objects,
    }


def uncertain_points(masks: Tensor) -> Tensor:
    """(m, h, w) -> (m, points, 2), x and y in 0..1: for each mask most of them where its logits are
    nearest to zero, of many random ones; the rest at random."""
    count, (height, width) = len(masks), masks.shape[1:]
    points = max(height, height * width // SPACING)
    uncertain = int(UNCERTAIN * points)
    many = rand_rows(count, OVERSAMPLED * points, 2, device=masks.device)
    others = rand_rows(count, points - uncertain, 2, device=masks.device)
    if not count:
        return others
    certain = at_points(masks[:, None], many)[:, 0].abs()
    least = (-certain).topk(uncertain, dim=1).indices
    chosen = many.gather(1, least[..., None].expand(-1, -1, 2))
    return torch.cat((chosen, others), dim=1)


def at_points(maps: Tensor, points: Tensor) -> Tensor:
    """(m, c, h, w), (m, points, 2), x and y in 0..1 -> (m, c, points), bilinear."""
    grid = 2 * points[:, :, None] - 1
    return F.grid_sample(maps, grid, mode="bilinear", align_corners=False)[..., 0]


def pixels_at(masks: Tensor, which: Tensor, points: Tensor) -> Tensor:
    """(n, h, w), (m,), (m or 1, points, 2) -> (m, points), 0 or 1: the nearest pixels of mask
    which[i] for row i. As grid_sample does it, but masks are not copied for each row."""
    size = torch.tensor([masks.shape[2], masks.shape[1]], device=points.device)
    places = ((2 * points - 1 + 1) * size - 1) / 2
    x, y = places.round().long().clamp(min=0).minimum(size - 1).unbind(-1)
    return masks[which[:, None], y, x].float()
