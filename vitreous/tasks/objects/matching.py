"""Which query answers for which object: DETR's bipartite matching (section 3.1, equation 1).

Each object gets one query of its own, such that all of them together cost the least. The other
queries have found nothing. What a class costs depends on how the model predicts classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from vitreous.data.objects.overlap import giou
from vitreous.tasks.objects.boxes import cxcywh_to_xyxy

Target = Mapping[str, Tensor]
"""labels (n,) int64, and boxes (n, 4), normalised cxcywh."""


NOT_FINITE = -1e9
"""The cost of a pair that has none."""


class Matches(NamedTuple):
    """One row for each pair, layer by layer and in each image by image; every layer has as many."""

    layer: Tensor
    image: Tensor
    query: Tensor
    target: Tensor
    """Its place among the objects of all images, one after the other."""


def by_probability(logits: Tensor, labels: Tensor) -> Tensor:
    """(…, classes + 1), (n,) -> (…, n): DETR's, by the class's probability, not by its logarithm,
    which makes it as large as the rest."""
    return -logits.softmax(dim=-1)[..., labels]


def by_focal_loss(
    logits: Tensor, labels: Tensor, alpha: float = 0.25, gamma: float = 2.0
) -> Tensor:
    """(…, classes), (n,) -> (…, n): what the focal loss of an independent class changes by if it is
    there (Deformable DETR's code)."""
    chance = logits[..., labels].sigmoid()
    present = alpha * (1 - chance) ** gamma * -(chance + 1e-8).log()
    absent = (1 - alpha) * chance**gamma * -(1 - chance + 1e-8).log()
    return present - absent


@torch.no_grad()
def match(
    logits: Tensor,
    boxes: Tensor,
    targets: Sequence[Target],
    *,
    by_class: Callable[[Tensor, Tensor], Tensor] = by_probability,
    class_cost: float = 1.0,
    box_cost: float = 5.0,
    giou_cost: float = 2.0,
    more: Tensor | None = None,
) -> Matches:
    """logits (layers, b, q, classes), boxes (layers, b, q, 4), normalised cxcywh; b targets; more:
    further costs (layers, b, q, n) with the n objects of all images.

    Where an image has more objects than there are queries, the dearest ones are left out.
    """
    from scipy.optimize import linear_sum_assignment

    cost = costs(logits, boxes, targets, by_class, class_cost, box_cost, giou_cost)
    cost = (cost if more is None else cost + more).cpu()
    # What is not finite is matched first, so that the loss is not finite either.
    cost = cost.nan_to_num(NOT_FINITE, NOT_FINITE, NOT_FINITE)
    counts = [len(target["labels"]) for target in targets]
    own = [part[:, image] for image, part in enumerate(cost.split(counts, dim=-1))]
    rows = []
    for layer in range(len(cost)):
        first = 0
        for image, part in enumerate(own):
            queries, objects = map(torch.from_numpy, linear_sum_assignment(part[layer].numpy()))
            where = torch.tensor([[layer], [image]]).expand(-1, len(queries))
            rows.append(torch.cat((where, queries[None], objects[None] + first)))
            first += counts[image]
    layer_, image_, query, target = torch.cat(rows, dim=1).to(logits.device)
    return Matches(layer_, image_, query, target)


def costs(
    logits: Tensor,
    boxes: Tensor,
    targets: Sequence[Target],
    by_class: Callable[[Tensor, Tensor], Tensor],
    class_cost: float,
    box_cost: float,
    giou_cost: float,
) -> Tensor:
    """(layers, b, q, n) in float32: of each query with each object of all images."""
    labels = torch.cat([target["labels"] for target in targets])
    truth = torch.cat([target["boxes"] for target in targets]).float()
    boxes = boxes.float()
    of_class = by_class(logits.float(), labels)
    by_box = (boxes[..., None, :] - truth).abs().sum(dim=-1)
    by_giou = -giou(cxcywh_to_xyxy(boxes)[..., None, :], cxcywh_to_xyxy(truth))
    return box_cost * by_box + class_cost * of_class + giou_cost * by_giou
