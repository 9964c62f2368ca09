"""Chapter 12: masks, boxes and matching.  第 12 章：掩码、边界框与匹配。

Complete the functions, then run:  补全下面的函数，然后运行：

    vitreous course check 12
"""

import torch
from torch import Tensor


def class_maps(patches: Tensor, classes: Tensor, grid: tuple[int, int]) -> Tensor:
    """Patches (n, d) and class embeddings (K, d) -> scores (K, gh, gw): products of unit vectors.

    每个图块对每个类别的得分：先把两边都化为单位长度，再做内积，放回网格。
    """
    ...


def giou(a: Tensor, b: Tensor) -> Tensor:
    """Boxes (n, 4) and (m, 4), left, top, right, bottom -> generalised IoU of each pair (n, m).

    两组边界框（左、上、右、下）两两的广义交并比。
    """
    ...


def costs(chances: Tensor, boxes: Tensor, labels: Tensor, truth: Tensor) -> Tensor:
    """Chances (q, K + 1), boxes (q, 4), labels (n,), truth (n, 4) -> matching costs (q, n).

    Boxes are normalised cxcywh: centre x and y, width, height.  边界框为归一化的 cxcywh。
    """
    ...


def matched(cost: Tensor) -> Tensor:
    """Costs (q, n), q >= n -> (n,): the query of each object, such that the sum is smallest.

    每个目标对应哪个查询，使总代价最小；一个查询只能用一次。
    """
    ...


def class_loss(logits: Tensor, query: Tensor, labels: Tensor) -> Tensor:
    """Logits (q, K + 1), the query of each object (n,), its label (n,) -> DETR's loss of classes.

    A mean over queries by their weight.  按权重对查询取平均；最后一类是“没有目标”。
    """
    ...
