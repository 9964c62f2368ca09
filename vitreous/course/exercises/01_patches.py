"""Chapter 1: from an image to tokens.  第 1 章：从图像到标记。

Complete the functions, then run:  补全下面的函数，然后运行：

    vitreous course check 1
"""

import torch
from torch import Tensor


def patchify(image: Tensor, patch: int) -> Tensor:
    """An image (c, height, width) -> its patches (N, c·P·P).

    The patches stand row by row; the numbers of a patch are ordered by channel, line, column.
    图块逐行排列；图块内部按通道、行、列的顺序排列。
    """
    ...


def embed(patches: Tensor, E: Tensor, b: Tensor) -> Tensor:
    """Patches (N, c·P·P), E (c·P·P, D) and b (D) -> tokens (N, D).  图块乘以 E，再加上 b。"""
    ...


def as_matrix(kernel: Tensor) -> Tensor:
    """The kernel of a convolution (D, c, P, P) -> the matrix E (c·P·P, D) that does the same.

    把卷积核变成作用相同的矩阵 E。
    """
    ...


def tokens_of(image: Tensor, kernel: Tensor, b: Tensor) -> Tensor:
    """The same tokens (N, D) by one convolution.  用一次卷积得到同样的标记。"""
    ...
