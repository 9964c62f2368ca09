"""Chapter 12: class maps against `models/segmenter.py`; boxes, costs, matching and the loss of
classes against `tasks/objects/losses.py`."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.course.check import ExerciseStep
from vitreous.data.objects.overlap import giou, intersection
from vitreous.models.detr import DETROutput
from vitreous.models.segmenter import MaskTransformer, SegmenterConfig
from vitreous.tasks.objects.boxes import cxcywh_to_xyxy
from vitreous.tasks.objects.losses import by_probability, costs, match, set_loss


def decoded() -> tuple[Tensor, Tensor, Tensor]:
    """What the mask transformer multiplies, (n, d) and (classes, d), and its product (n, classes),
    for a map of 2 x 3 patches."""
    decoder = MaskTransformer(8, SegmenterConfig(classes=4, dim=8, heads=2, dropout=0.0)).eval()
    seen: dict[str, Tensor] = {}
    decoder.patch_out.register_forward_hook(lambda *call: seen.update(patches=call[2][0]))
    decoder.class_out.register_forward_hook(lambda *call: seen.update(classes=call[2][0]))
    decoder.mask_norm.register_forward_hook(lambda *call: seen.update(scores=call[1][0][0]))
    decoder([torch.randn(1, 8, 2, 3)])
    return seen["patches"], seen["classes"], seen["scores"]


def steps() -> Iterator[ExerciseStep]:
    patches, classes, scores = decoded()
    maps = scores.T.unflatten(1, (2, 3))
    plain = patches @ classes.T
    yield ExerciseStep(
        "class_maps",
        (patches, classes, (2, 3)),
        maps,
        {
            (
                "The vectors have not been brought to length one: long tokens would win everywhere.",
                "向量没有化为单位长度：长的标记会处处占优。",
            ): plain.T.unflatten(1, (2, 3)),
            (
                "Length one along the wrong axis: each token is a row.",
                "归一化的轴错了：每一行才是一个标记。",
            ): (F.normalize(patches, dim=0) @ F.normalize(classes, dim=0).T).T.unflatten(1, (2, 3)),
            (
                "Only the patches have length one; the classes should, too.",
                "只有图块化成了单位长度；类别也要。",
            ): (F.normalize(patches, dim=1) @ classes.T).T.unflatten(1, (2, 3)),
            (
                "(n, K) was reshaped to (K, gh, gw), which mixes classes and places: transpose "
                "first.",
                "把 (n, K) 直接 reshape 成 (K, gh, gw) 会把类别和位置混在一起：先转置。",
            ): scores.reshape(4, 2, 3),
            (
                "The grid is transposed: patches stand row by row.",
                "网格转置了：图块是逐行排列的。",
            ): scores.T.unflatten(1, (3, 2)).transpose(1, 2).contiguous(),
        },
        hint=(
            "F.normalize(…, dim=1) for both, a product (n, K), its transpose, then unflatten.",
            "两边都用 F.normalize(…, dim=1)，乘积是 (n, K)，转置，再 unflatten。",
        ),
    )
    a = torch.tensor([[0.0, 0, 4, 4], [1, 1, 3, 2], [6, 6, 8, 9]])
    b = torch.tensor([[2.0, 1, 5, 4], [7, 7, 9, 8]])
    right = giou(a[:, None], b)
    whole = torch.maximum(a[:, None, 2:], b[:, 2:]) - torch.minimum(a[:, None, :2], b[:, :2])
    around = whole.prod(dim=-1)
    common = intersection(a[:, None], b)
    areas = (a[:, 2:] - a[:, :2]).prod(1)[:, None] + (b[:, 2:] - b[:, :2]).prod(1)
    union = areas - common
    apart = torch.minimum(a[:, None, 2:], b[:, 2:]) - torch.maximum(a[:, None, :2], b[:, :2])
    crossed = apart.prod(dim=-1)
    yield ExerciseStep(
        "giou",
        (a, b),
        right,
        {
            (
                "This is the plain IoU: it is 0 for all boxes that do not touch, near or far.",
                "这是普通的 IoU：不相交的框无论远近都是 0。",
            ): common / union,
            (
                "Width and height of the intersection are not clamped at 0: for boxes that do not "
                "touch, two negative numbers make a positive area.",
                "交集的宽和高没有截断到 0：两个框不相交时，两个负数相乘成了正的面积。",
            ): crossed / (areas - crossed) - (around - (areas - crossed)) / around,
            (
                "The union counts the intersection twice.",
                "并集里把交集算了两次。",
            ): common / areas - (around - areas) / around,
            (
                "What is empty is divided by the union; it should be by the box around both.",
                "空白部分除以了并集；应该除以包住两者的最小框。",
            ): common / union - (around - union) / union,
            (
                "The share that is empty is added; it should be subtracted.",
                "空白部分的比例应该减去，而不是加上。",
            ): common / union + (around - union) / around,
        },
        hint=(
            "IoU minus the part of the smallest box around both that neither fills.",
            "IoU 减去包住两者的最小框里、两者都没有填到的那部分所占的比例。",
        ),
    )
    logits = torch.randn(5, 4)
    chances = logits.softmax(dim=-1)
    # larger than their place, so that they are boxes if they are taken for corners, too
    boxes = torch.rand(5, 4) * torch.tensor([0.15, 0.15, 0.2, 0.2]) + 0.35
    boxes[:, 2:] += 0.15
    target = {"labels": torch.tensor([2, 0, 2]), "boxes": boxes[1:4] + 0.04 * torch.rand(3, 4)}
    labels, truth = target["labels"], target["boxes"]
    matrix = costs(logits[None, None], boxes[None, None], [target], by_probability)[0, 0]
    l1 = (boxes[:, None] - truth).abs().sum(dim=-1)
    overlap = giou(cxcywh_to_xyxy(boxes)[:, None], cxcywh_to_xyxy(truth))
    chance = chances[:, labels]
    yield ExerciseStep(
        "costs",
        (chances, boxes, labels, truth),
        matrix,
        {
            (
                "The class costs its logarithm here; in matching DETR takes the probability itself, "
                "which is as large as the rest.",
                "这里类别用了对数；匹配时 DETR 直接用概率，这样与其他项大小相当。",
            ): 5 * l1 - 2 * overlap - chance.log(),
            (
                "The class does not count: a box of the right place and the wrong class would win.",
                "没有算类别：位置对、类别错的框也会赢。",
            ): 5 * l1 - 2 * overlap,
            (
                "Much overlap should be cheap: GIoU counts with a minus.",
                "重叠多应该便宜：GIoU 前面是减号。",
            ): 5 * l1 + 2 * overlap - chance,
            (
                "L1 is the sum over the four numbers of a box, not their mean.",
                "L1 是四个数之和，不是平均。",
            ): 5 * l1 / 4 - 2 * overlap - chance,
            (
                "GIoU was given centres and sizes; it needs left, top, right, bottom.",
                "GIoU 拿到的是中心和宽高；它需要左、上、右、下。",
            ): 5 * l1 - 2 * giou(boxes[:, None], truth) - chance,
            (
                "The two weights are swapped: 5 for L1, 2 for GIoU.",
                "两个权重换了位置：L1 是 5，GIoU 是 2。",
            ): 2 * l1 - 5 * overlap - chance,
        },
        hint=(
            "5 times L1, minus twice GIoU, minus the chance of the object's class.",
            "5 倍 L1，减 2 倍 GIoU，减去目标所属类别的概率。",
        ),
    )
    given = torch.tensor([[1.0, 6.0, 2.0], [2.0, 5.0, 9.0], [8.0, 3.0, 9.0], [9.0, 9.0, 8.0]])
    found = _match(given)
    yield ExerciseStep(
        "matched",
        (given,),
        found,
        {
            (
                "Each object took its own cheapest query, and two share one.",
                "每个目标各取最便宜的查询，结果两个目标用了同一个。",
            ): given.argmin(dim=0),
            (
                "The cheapest pair was taken first, then the next one: the sum is larger than it "
                "could be. (Hungarian algorithm, or try all permutations.)",
                "先取最便宜的一对，再取下一对：总和不是最小的。（用匈牙利算法，或者试遍所有排列。）",
            ): torch.tensor([0, 2, 3]),
            (
                "This says for each query which object it has; asked is for each object its query.",
                "这是每个查询对应的目标；要的是每个目标对应的查询。",
            ): torch.tensor([2, 0, 1]),
            (
                "The sum is the largest one: scipy minimises unless maximize=True.",
                "总和成了最大的；要的是最小的。",
            ): _match(-given),
        },
        hint=(
            "scipy.optimize.linear_sum_assignment gives rows and columns; sort by columns.",
            "scipy.optimize.linear_sum_assignment 给出行和列；按列排序。",
        ),
    )
    query = torch.tensor([3, 0, 1])
    output = DETROutput(_with_matching(logits, query, labels)[None, None], boxes[None, None])
    assigned = {"labels": labels, "boxes": boxes[query]}
    sharp = output.logits[0, 0]
    expected = set_loss(output, [assigned], None)["class"]
    wanted = torch.full((5,), 3)
    wanted[query] = labels
    each = F.cross_entropy(sharp, wanted, reduction="none")
    weight = torch.where(wanted == 3, 0.1, 1.0)
    yield ExerciseStep(
        "class_loss",
        (sharp, query, labels),
        expected,
        {
            (
                "Queries without an object count in full; DETR gives them a tenth, because most are.",
                "没有目标的查询按全权重计算了；DETR 只给它们十分之一，因为它们占大多数。",
            ): each.mean(),
            (
                "Queries without an object have learned nothing: they must learn the last class.",
                "没有目标的查询什么也没学：它们要学最后一类。",
            ): each[query].mean(),
            (
                "The weighted sum is divided by the number of queries; divide by the sum of weights.",
                "加权和除以了查询数；应该除以权重之和。",
            ): (each * weight).mean(),
            (
                "Queries without an object learn class 0 here; “no object” is the last one.",
                "这里没有目标的查询学的是第 0 类；“没有目标”是最后一类。",
            ): _nothing_first(sharp, query, labels),
        },
        hint=(
            "F.cross_entropy with a weight for each class; every query has a target.",
            "F.cross_entropy，给每个类别一个权重；每个查询都有目标类别。",
        ),
    )


def _match(cost: Tensor) -> Tensor:
    """The package's matching, of a matrix (q, n): all that it matches by is given."""
    q, n = cost.shape
    target = {"labels": torch.zeros(n, dtype=torch.long), "boxes": torch.full((n, 4), 0.5)}
    nothing = torch.zeros(1, 1, q, 2), torch.full((1, 1, q, 4), 0.5)
    found = match(*nothing, [target], more=cost[None, None])
    return found.query[found.target.argsort()]


def _with_matching(logits: Tensor, query: Tensor, labels: Tensor) -> Tensor:
    """Logits for which matching gives these queries, as far as classes go."""
    made = logits.clone()
    made[query, labels] += 1.0
    return made


def _nothing_first(logits: Tensor, query: Tensor, labels: Tensor) -> Tensor:
    wanted = torch.zeros(len(logits), dtype=torch.long)
    wanted[query] = labels
    weight = torch.ones(logits.shape[1])
    weight[0] = 0.1
    return F.cross_entropy(logits, wanted, weight)
