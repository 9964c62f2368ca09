"""Chapter 11: windows and patch merging.  第 11 章：窗口与图块合并。

Complete the functions, then run:  补全下面的函数，然后运行：

    vitreous course check 11
"""

import torch
from torch import Tensor


def windows(x: Tensor, side: int) -> Tensor:
    """A map (h, w, d) -> its windows (h/side · w/side, side², d), row by row; so are the tokens.

    把特征图切成窗口；窗口逐行排列，窗口内的标记也逐行排列。
    """
    ...


def allowed(h: int, w: int, side: int, shift: int) -> Tensor:
    """(windows, side², side²): True where a query may attend to a key after the cyclic shift.

    循环移位之后，哪个查询可以注意哪个键：移位前真正相邻的一块之内为 True，被卷到一起的为 False。
    """
    ...


def bias_rows(side: int) -> Tensor:
    """(side², side²): for query i and key j, the row of the bias table for (query - key).

    查询 i 与键 j 的偏移（查询减键）对应偏置表的第几行；偏移逐行编号，先 dy 后 dx，从最小的开始。
    """
    ...


def merge(x: Tensor) -> Tensor:
    """(h, w, d) -> (h/2, w/2, 4d): top left, bottom left, top right, bottom right, joined.

    把 2x2 个相邻标记拼接起来，顺序为：左上、左下、右上、右下。
    """
    ...


def cost(h: int, w: int, dim: int, side: int) -> tuple[int, int]:
    """Multiplications of attention: (to the whole map, in windows of side x side).  Equations 1, 2.

    注意力的乘法次数：（对整张图，在窗口内）。
    """
    ...
