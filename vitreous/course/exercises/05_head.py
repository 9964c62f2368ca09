"""Chapter 5: from tokens to an answer.  第 5 章：从标记到答案。

Complete the functions, then run:  补全下面的函数，然后运行：

    vitreous course check 5
"""

import torch
from torch import Tensor


def with_class_token(patches: Tensor, x_class: Tensor, positions: Tensor) -> Tensor:
    """Patches (b, N, D), x_class (D) and positions (N + 1, D) -> z₀ (b, N + 1, D).

    The class token comes first; each row gets its position.
    类别标记排在最前；每一行加上自己的位置编码。
    """
    ...


def read(tokens: Tensor, kind: str, prefix: int) -> Tensor:
    """Tokens behind the last norm (b, prefix + N, D) -> what the head reads.

    kind "class": row 0, (b, D). "mean": the mean of the patches, (b, D). "class+mean": both, side
    by side, (b, 2D). The first `prefix` rows are no patches: class token, then registers.
    前 prefix 行不是图块：先是类别标记，后面是寄存器标记。
    """
    ...


def pretraining_head(y: Tensor, W1: Tensor, b1: Tensor, W2: Tensor, b2: Tensor) -> Tensor:
    """y (b, D), W1 (D, D), b1 (D), W2 (D, K), b2 (K) -> logits (b, K).

    The paper's head for pre-training, with its hidden layer.
    论文预训练时用的分类头，有一个隐藏层。
    """
    ...


def probabilities(logits: Tensor) -> Tensor:
    """Logits (b, K) -> probabilities (b, K), written out with exp, for logits of any size.

    用 exp 写出来；logits 可能很大，不能溢出。
    """
    ...
