"""Chapter 9: from attention weights to pictures.  第 9 章：从注意力权重到图。

Complete the functions, then run:  补全下面的函数，然后运行：

    vitreous course check 9
"""

import torch
from torch import Tensor


def distance(A: Tensor, grid: tuple[int, int], patch: int) -> Tensor:
    """Weights of one block (heads, 1 + N, 1 + N) -> mean attention distance (heads,), in pixels.

    Token 0 is the class token: it has no place. Leave it out, and let each row sum to one again.
    标记 0 是类别标记，没有位置：去掉它，再让每一行的和重新为 1。距离以像素为单位。
    """
    ...


def rollout(A: Tensor) -> Tensor:
    """Weights of all blocks (L, heads, n, n), the first block first -> R_L (n, n).

    所有编码块的权重，第一块在最前 -> 展开后的矩阵。
    """
    ...


def as_map(R: Tensor, grid: tuple[int, int]) -> Tensor:
    """What has reached the class token (token 0) from each patch: (gh, gw), in sum one.

    每个图块有多少到达了类别标记；总和为 1。
    """
    ...


def evidence(A: Tensor, G: Tensor) -> Tensor:
    """Weights A and their gradients G, both (L, heads, n, n) -> the class map's R_L (n, n).

    G is the gradient of one logit with respect to each weight.
    G 是某一个 logit 对每个权重的梯度。
    """
    ...


def deletion(scores: Tensor) -> Tensor:
    """Scores (k + 1,), with 0, 1, … k of k patches covered -> the area under the curve, ().

    The x axis goes from 0 to 1.
    依次遮住 0、1、…、k 个图块时的得分 -> 曲线下的面积；横轴从 0 到 1。
    """
    ...
