"""Chapter 4: a block.  第 4 章：编码块。

Complete the functions, then run:  补全下面的函数，然后运行：

    vitreous course check 4
"""

from collections.abc import Callable

import torch
from torch import Tensor

Part = Callable[[Tensor], Tensor]
"""Takes tokens (…, n, D) and gives as many of the same width.  输入输出都是 (…, n, D)。"""


def layer_norm(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Tokens (b, n, D), scale and shift (D) each -> (b, n, D).  层归一化。"""
    ...


def gelu(x: Tensor) -> Tensor:
    """x Φ(x), exactly: torch.erf is of use, Φ(x) = (1 + erf(x / √2)) / 2.  精确的 GELU。"""
    ...


def mlp(x: Tensor, W_1: Tensor, b_1: Tensor, W_2: Tensor, b_2: Tensor) -> Tensor:
    """x (b, n, D), W_1 (D, hidden), W_2 (hidden, D) -> (b, n, D), by `gelu`.

    W_1 and W_2 are as in the equation, (in, out); those of chapter 3 were as torch stores them.
    两层加 GELU；W_1、W_2 与公式一致，是 (输入, 输出)，而第 3 章的矩阵按 torch 的方式存储。
    """
    ...


def block(x: Tensor, norm1: Part, attention: Part, norm2: Part, mlp: Part) -> Tensor:
    """Equations 2 and 3: (b, n, D) -> (b, n, D).  公式 2 和 3。"""
    ...


def drop_path(x: Tensor, rate: float, kept: Tensor) -> Tensor:
    """What a part adds, (b, n, D), as DropPath gives it in training when the samples with kept
    True, (b), are the ones that it keeps.

    训练时 DropPath 的输出；kept (b) 为 True 的样本被保留。
    """
    ...
