"""Chapter 13: integers, preprocessing, agreement.  第 13 章：整数、预处理与一致率。

Complete the functions, then run:  补全下面的函数，然后运行：

    vitreous course check 13
"""

import torch
from torch import Tensor

from vitreous.data.preprocess import Preprocess


def scale_and_zero(x: Tensor) -> tuple[float, int]:
    """Numbers -> scale and zero point of their uint8 levels, 0 to 255.  Asymmetric.

    The range reaches from the smallest to the largest number, and holds 0 in any case.
    非对称量化的缩放因子和零点；范围从最小值到最大值，并且总要包含 0。
    """
    ...


def quantise(x: Tensor, scale: float, zero: int) -> Tensor:
    """Numbers -> their levels, uint8. What lies outside the range gets its first or last level.

    把数变成 0 到 255 的整数；范围之外的数取最小或最大的一级。
    """
    ...


def quantise_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Weights (out, in) -> levels -127 to 127, int8 (out, in), and scales (out,).  Symmetric.

    对称量化，每一行（每个输出通道）一个缩放因子。
    """
    ...


def linear(
    x: Tensor, scale: float, zero: int, weight: Tensor, scales: Tensor, bias: Tensor
) -> Tensor:
    """Levels (n, in) uint8 and (out, in) int8 -> (n, out) float32, x @ weight.T + bias.

    Products and sums in int32; scales are multiplied behind the sum.
    乘积与求和都用 int32；缩放因子在求和之后才乘上。
    """
    ...


def prepare(image: Tensor, how: Preprocess) -> Tensor:
    """An image of a file, (3, h, w) uint8, RGB -> (1, *how.image_size), as the run prepares it.

    Gray is 0.299 R + 0.587 G + 0.114 B. The shorter side is resized to how.image_size / how.crop,
    bilinear and antialiased; then the centre is cut out; then 0 to 1; then how.mean and how.std.
    All images are squares or wider than high, and image_size is a square.
    先变灰度，把短边缩放到 image_size / crop（双线性、抗锯齿），裁出中央，化到 0 至 1，
    最后用 mean 和 std 归一化。图像都是正方形，或宽大于高。
    """
    ...


def agreement(ours: Tensor, theirs: Tensor) -> tuple[float, float, float]:
    """Logits (n, K) of two models -> share of equal answers, and its interval by Wilson, 95 %.

    答案相同的比例，以及 95% 的 Wilson 区间的两端；c = 1.96。
    """
    ...
