"""Which query answers for which object: DETR's bipartite matching (section 3.1, equation 1).

Each object gets one query of its own, such that all of them together cost the least. The other
queries have found nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from vitreous.tasks.detect.boxes import cxcywh_to_xyxy, giou

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


@torch.no_grad()
def match(
    logits: Tensor,
    boxes: Tensor,
    targets: Sequence[Target],
    *,
    class_cost: float = 1.0,
    box_cost: float = 5.0,
    giou_cost: float = 2.0,
) -> Matches:
    """logits (layers, b, q, classes + 1), boxes (layers, b, q, 4), normalised cxcywh; b targets.

    Where an image has more objects than there are queries, the dearest ones are left out.
    """
    from scipy.optimize import linear_sum_assignment

    cost = costs(logits, boxes, targets, class_cost, box_cost, giou_cost).cpu()
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
    class_cost: float,
    box_cost: float,
    giou_cost: float,
) -> Tensor:
    """(layers, b, q, n) in float32: of each query with each object of all images.

    The class counts by its probability, not by its logarithm, which makes it as large as the rest.
    """
    labels = torch.cat([target["labels"] for target in targets])
    truth = torch.cat([target["boxes"] for target in targets]).float()
    boxes = boxes.float()
    by_class = -logits.float().softmax(dim=-1)[..., labels]
    by_box = (boxes[..., None, :] - truth).abs().sum(dim=-1)
    by_giou = -giou(cxcywh_to_xyxy(boxes)[..., None, :], cxcywh_to_xyxy(truth))
    return box_cost * by_box + class_cost * by_class + giou_cost * by_giou
