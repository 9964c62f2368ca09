"""Chapter 3: attention.  第 3 章：注意力。

Complete the functions, then run:  补全下面的函数，然后运行：

    vitreous course check 3
"""

import torch
from torch import Tensor


def weights(q: Tensor, k: Tensor) -> Tensor:
    """Queries (m, e) and keys (n, e) -> attention weights (m, n).

    m queries may ask n keys: in cross-attention these are different tokens.
    m 个查询、n 个键的注意力权重；在交叉注意力里两者可以是不同的标记。
    """
    ...


def split(made: Tensor, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """What the qkv layer makes, (n, 3·D) -> q, k and v, (heads, n, e) each, with e = D / heads.

    The order in 3·D: all queries, all keys, all values; within each, head after head.
    qkv 层的输出拆成 q、k、v；3·D 的顺序是：先全部查询，再全部键，再全部值；每一份内部逐头排列。
    """
    ...


def join(mixed: Tensor) -> Tensor:
    """What the heads have gathered, (heads, n, e), side by side: (n, heads·e).

    把各个头并排拼接。
    """
    ...


def attention(
    x: Tensor, W_qkv: Tensor, b_qkv: Tensor, W_O: Tensor, b_O: Tensor, heads: int
) -> Tensor:
    """Multi-head self-attention: x (n, D) -> (n, D).

    W_qkv (3·D, D) and W_O (D, D) are as torch stores the weight of a linear layer: (out, in).
    多头自注意力；矩阵按 torch 线性层的方式存储：(输出, 输入)。
    """
    ...
