"""Which query answers for which object, and what it learns from that: DETR and its successors.

Bipartite matching (DETR, section 3.1, equation 1): each object gets one query of its own, such that
all of them together cost the least. The other queries have found nothing. What a class costs
depends on how the model predicts classes.

Both losses give a term for each part: that of the last decoder layer by its own name, the sum of
the other layers' as aux_…, and that of a first stage as proposed_….
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.data.objects.overlap import giou, iou
from vitreous.models.detr import DETROutput
from vitreous.models.rf_detr import RFDETROutput
from vitreous.tasks.objects.boxes import cxcywh_to_xyxy

AUXILIARY = "aux_"
"""Before the names of the terms of a decoder's earlier layers."""
BOX_WEIGHT, GIOU_WEIGHT = 5.0, 2.0
"""Of both papers, in the loss and in matching."""
CLASS_COST = 2.0
"""Of LW-DETR, in matching."""
NO_OBJECT = 0.1
"""Queries without an object count less in DETR, because most are (section 4)."""
QUALITY = 0.25
"""LW-DETR: the exponent of the score in what a class is to learn; the rest is the IoU's."""
LEAST_QUALITY = 0.01
NOT_FINITE = -1e9
"""The cost of a pair that has none."""
Target = Mapping[str, Tensor]
"""labels (n,) int64, and boxes (n, 4), normalised cxcywh."""


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
    there (Deformable DETR's code), times CLASS_COST."""
    chance = logits[..., labels].sigmoid()
    present = alpha * (1 - chance) ** gamma * -(chance + 1e-8).log()
    absent = (1 - alpha) * chance**gamma * -(1 - chance + 1e-8).log()
    return CLASS_COST * (present - absent)


@torch.no_grad()
def match(
    logits: Tensor,
    boxes: Tensor,
    targets: Sequence[Target],
    by_class: Callable[[Tensor, Tensor], Tensor] = by_probability,
    more: Tensor | None = None,
) -> Matches:
    """logits (layers, b, q, classes), boxes (layers, b, q, 4), normalised cxcywh; b targets; more:
    further costs (layers, b, q, n) with the n objects of all images.

    Where an image has more objects than there are queries, the dearest ones are left out.
    """
    from scipy.optimize import linear_sum_assignment

    cost = costs(logits, boxes, targets, by_class)
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
) -> Tensor:
    """(layers, b, q, n) in float32: of each query with each object of all images."""
    labels = torch.cat([target["labels"] for target in targets])
    truth = torch.cat([target["boxes"] for target in targets]).float()
    boxes = boxes.float()
    of_class = by_class(logits.float(), labels)
    by_box = (boxes[..., None, :] - truth).abs().sum(dim=-1)
    by_giou = -giou(cxcywh_to_xyxy(boxes)[..., None, :], cxcywh_to_xyxy(truth))
    return BOX_WEIGHT * by_box + of_class + GIOU_WEIGHT * by_giou


def set_loss(
    output: DETROutput, targets: Sequence[Target], count: float | None
) -> dict[str, Tensor]:
    """DETR, section 3.1, equation 2. `count`: of how many objects the terms are a mean; None: of
    those of the targets."""
    logits, boxes = output.logits.float(), output.boxes.float()
    found = match(logits, boxes, targets)
    objects = number_of(targets) if count is None else count
    terms = {
        "class": _cross_entropy(logits, targets, found, count),
        **box_terms(boxes, targets, found, objects),
    }  # (layers,) each
    return of_layers(terms)


def number_of(targets: Sequence[Target]) -> int:
    """Of objects."""
    return sum(len(target["labels"]) for target in targets)


def _cross_entropy(
    logits: Tensor, targets: Sequence[Target], found: Matches, count: float | None
) -> Tensor:
    """(layers,): in the mean over queries by their weight."""
    labels = torch.cat([target["labels"] for target in targets])
    nothing = logits.shape[-1] - 1
    classes = torch.full(logits.shape[:3], nothing, device=logits.device)
    classes[found.layer, found.image, found.query] = labels[found.target]
    weights = torch.ones(nothing + 1, device=logits.device)
    weights[-1] = NO_OBJECT
    each = F.cross_entropy(
        logits.flatten(0, 2), classes.flatten(), weights, reduction="none"
    ).view_as(classes)
    if count is None:
        whole = weights[classes[0]].sum()  # every layer has as many of both
        return each.sum(dim=(1, 2)) / whole
    queries = classes[0].numel()
    return each.sum(dim=(1, 2)) / (count + NO_OBJECT * (queries - count))


def quality_loss(
    output: RFDETROutput, targets: Sequence[Target], count: float | None
) -> dict[str, Tensor]:
    """LW-DETR, section 3.3: classes learn how good their box is (IoU-aware BCE), each group of
    queries from all objects; so does the first stage."""
    groups = output.groups
    logits = by_group(output.logits, output.proposed_logits, groups)
    boxes = by_group(output.boxes, output.proposed_boxes, groups)
    found = match(logits, boxes, targets, by_focal_loss)
    objects = max((number_of(targets) if count is None else count) * groups, 1.0)
    terms = quality_terms(logits, boxes, targets, found, objects)  # (layers·groups,) each
    return of_layers(
        {name: term.unflatten(0, (-1, groups)).sum(dim=1) for name, term in terms.items()},
        proposed=True,
    )


def by_group(decoded: Tensor, proposed: Tensor, groups: int) -> Tensor:
    """(layers, b, groups·q, …), (b, groups·q, …) -> ((layers + 1)·groups, b, q, …) in float32: each
    group is matched by itself, as if it were a layer."""
    both = torch.cat((decoded, proposed[None])).float()
    return both.unflatten(2, (groups, -1)).transpose(1, 2).flatten(0, 1)


def quality_terms(
    logits: Tensor, boxes: Tensor, targets: Sequence[Target], found: Matches, objects: float
) -> dict[str, Tensor]:
    """(layers,) each: those of boxes, and BCE whose target for the class of an object is
    score^α · IoU^(1-α); all other classes are to be absent, and count by their score squared."""
    labels = torch.cat([target["labels"] for target in targets])[found.target]
    truth = torch.cat([target["boxes"] for target in targets]).float()[found.target]
    place = found.layer, found.image, found.query
    overlap = iou(cxcywh_to_xyxy(boxes[place]), cxcywh_to_xyxy(truth))
    here = logits[(*place, labels)]
    quality = here.sigmoid() ** QUALITY * overlap.clamp(min=0) ** (1 - QUALITY)
    quality = quality.detach().clamp(min=LEAST_QUALITY)
    absent = logits.sigmoid() ** 2 * F.softplus(logits)  # -log(1 - p) is softplus
    learnt = quality * F.softplus(-here) + (1 - quality) * F.softplus(here)
    change = learnt - here.sigmoid() ** 2 * F.softplus(here)
    total = absent.sum(dim=(1, 2, 3)).index_add(0, found.layer, change)
    return {"class": total / objects, **box_terms(boxes, targets, found, objects)}


def box_terms(
    boxes: Tensor, targets: Sequence[Target], found: Matches, objects: float
) -> dict[str, Tensor]:
    """(layers,) each: L1 distance and GIoU, in the mean over objects."""
    truth = torch.cat([target["boxes"] for target in targets]).float()[found.target]
    predicted = boxes[found.layer, found.image, found.query]
    apart = (predicted - truth).abs().sum(dim=1)
    missed = 1 - giou(cxcywh_to_xyxy(predicted), cxcywh_to_xyxy(truth))
    zeros = boxes.new_zeros(len(boxes))

    def by_layer(each: Tensor) -> Tensor:
        return zeros.index_add(0, found.layer, each) / max(objects, 1.0)

    return {"box": BOX_WEIGHT * by_layer(apart), "giou": GIOU_WEIGHT * by_layer(missed)}


def of_layers(terms: Mapping[str, Tensor], *, proposed: bool = False) -> dict[str, Tensor]:
    """Terms (layers,) by name: of the last decoder layer, of the others, and of proposals, which
    stand behind them."""
    layers = len(next(iter(terms.values()))) - proposed
    found = {name: term[layers - 1] for name, term in terms.items()}
    if layers > 1:
        found |= {f"{AUXILIARY}{name}": term[: layers - 1].sum() for name, term in terms.items()}
    if proposed:
        found |= {f"proposed_{name}": term[-1] for name, term in terms.items()}
    return found
