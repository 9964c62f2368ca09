"""Chapter 8: positions for another grid.  第 8 章：换一个网格的位置编码。

Complete the functions, then run:  补全下面的函数，然后运行：

    vitreous course check 8
"""

import torch
from torch import Tensor


def centres(old: int, new: int) -> Tensor:
    """Where the centres of `new` places lie, in steps of `old` places over the same length: (new,).

    The centre of the first old place is 0, that of the second is 1.
    同样的长度上，`new` 个位置的中心落在哪里；以 `old` 的间距为单位，第一个旧位置的中心是 0。
    """
    ...


def line(values: Tensor, new: int) -> Tensor:
    """Values (n, D) in n places of a line -> (new, D), linear interpolation, no F.interpolate.

    Beyond the first and the last centre the border is repeated.
    一条线上 n 个位置的值，线性插值成 new 个，不用 F.interpolate。超出两端中心的地方，重复边界的值。
    """
    ...


def split(table: Tensor, grid: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """A table (p + gh·gw, D) -> the rows before the patches (p, D), and the grid (gh, gw, D).

    p is not given: the grid tells it.
    把位置编码表拆成图块之前的几行和网格；p 没有给出，由网格算出。
    """
    ...


def resize(table: Tensor, old: tuple[int, int], new: tuple[int, int]) -> Tensor:
    """A table for the grid `old` -> one for the grid `new`, bicubic and antialiased.

    (p + old[0]·old[1], D) -> (p + new[0]·new[1], D). Grids are (height, width), seldom square.
    把适用于 `old` 网格的表变成适用于 `new` 网格的，用双三次插值并抗锯齿。网格不一定是正方形。
    """
    ...
