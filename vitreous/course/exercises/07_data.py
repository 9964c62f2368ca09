"""Chapter 7: what is assumed, and what data must do.  第 7 章：假设了什么，数据要补上什么。

Complete the functions, then run:  补全下面的函数，然后运行：

    vitreous course check 7
"""

import torch
from torch import Tensor


def receptive_field(kernels: list[int], strides: list[int]) -> int:
    """Convolutions one behind another -> how many pixels in a row one output sees.

    串联的卷积层，给出每层的核大小和步长 -> 一个输出在一行上能看到多少个像素。
    """
    ...


def nearest(known: Tensor, classes: Tensor, images: Tensor) -> Tensor:
    """Known images (m, c, h, w), their classes (m), and images (b, c, h, w) -> classes (b).

    Each image gets the class of the known image that is nearest, by the distance of their pixels.
    每张图像取像素距离最近的已知图像的类别。
    """
    ...


def tokens_of_map(features: Tensor, E: Tensor, b: Tensor) -> Tensor:
    """A feature map (b, c, h, w), E (c, D), b (D) -> tokens (b, h·w, D), as in a hybrid.

    Patches of 1 x 1, row by row.  图块为 1 × 1，逐行排列，与混合模型相同。
    """
    ...


def mixup(images: Tensor, targets: Tensor, order: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """Images (b, c, h, w) and targets (b, K), one-hot -> both, blended.

    Image i keeps `share` of itself and gets the rest from image order[i]; so do the targets.
    图像 i 保留 share 的份额，其余来自图像 order[i]；目标也一样。
    """
    ...
