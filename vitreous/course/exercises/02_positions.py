"""Chapter 2: positions.  第 2 章：位置编码。

Complete the functions, then run:  补全下面的函数，然后运行：

    vitreous course check 2
"""

import torch
from torch import Tensor


def add_positions(patches: Tensor, class_token: Tensor, table: Tensor) -> Tensor:
    """Patches (N, D), class token (D) and E_pos (N + 1, D) -> z₀ (N + 1, D), equation 1.

    公式 1：加上类别标记，再加上位置编码。
    """
    ...


def sines(count: int, dim: int) -> Tensor:
    """The table of Vaswani et al. for places 0 to count - 1: (count, dim), sine and cosine in turn.

    Vaswani 等人的正弦表，位置从 0 开始，正弦和余弦交替排列。
    """
    ...


def sines_2d(height: int, width: int, dim: int) -> Tensor:
    """For a grid, row by row: (height·width, dim). The first half of the channels is the table of
    `sines` for the column, the second half that for the row.

    逐行排列的网格：前一半通道是列的正弦表，后一半是行的正弦表。
    """
    ...


def relative_bias(table: Tensor, height: int, width: int) -> Tensor:
    """The bias of each pair of patches, (n, n) for n = height·width, query by row, key by column.

    table (2·height - 1, 2·width - 1): table[height - 1 + dy, width - 1 + dx] is for a query that
    stands dy rows below its key and dx columns to the right of it.
    每一对图块的偏置：行是查询，列是键；dy、dx 是查询的位置减去键的位置。
    """
    ...


def turn(x: Tensor, angles: Tensor) -> Tensor:
    """Rotary: x (n, e), angles (n, e/2) -> (n, e). Channels 2i and 2i + 1 are the two coordinates
    of a point, which is turned by angle i, counter-clockwise.

    旋转：通道 2i 和 2i + 1 是平面上一个点的两个坐标，逆时针旋转第 i 个角度。
    """
    ...
