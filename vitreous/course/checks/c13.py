"""Chapter 13: integers against torch's own quantisation, preparation against `data/preprocess.py`,
Wilson's interval against scipy's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
import torch.nn.functional as F
from scipy.stats import binomtest
from torch import Tensor

from vitreous.course.check import ExerciseStep
from vitreous.course.model import digits

LEVELS = 255


def steps() -> Iterator[ExerciseStep]:
    yield from _scale_and_zero()
    yield from _quantise()
    yield from _quantise_rows()
    yield from _linear()
    yield from _prepare()
    yield from _agreement()


def levels(x: Tensor, scale: float, zero: int) -> Tensor:
    """As torch rounds numbers on their way through uint8."""
    back = torch.fake_quantize_per_tensor_affine(x, scale, zero, 0, LEVELS)
    return (back / scale + zero).round().to(torch.uint8)


def rows(weight: Tensor, scales: Tensor, most: int = 127) -> Tensor:
    zeros = torch.zeros(len(scales), dtype=torch.int32)
    back = torch.fake_quantize_per_channel_affine(weight, scales, zeros, 0, -most, most)
    return (back / scales[:, None]).round().to(torch.int8)


def _scale_and_zero() -> Iterator[ExerciseStep]:
    low, high = -7.0, 19.0
    x = torch.cat((torch.tensor([low, high]), torch.rand(30) * 20 - 5))
    scale = (high - low) / LEVELS
    yield ExerciseStep(
        "scale_and_zero",
        (x,),
        (scale, round(-low / scale)),
        {
            (
                "There are 256 levels, and so 255 steps between them.",
                "有 256 级，级与级之间只有 255 步。",
            ): (26 / 256, round(-low / (26 / 256))),
            (
                "This is symmetric: both sides reach equally far, and a part of the levels is wasted.",
                "这是对称量化：两边一样远，浪费了一部分级。",
            ): (2 * high / LEVELS, 128),
            (
                "This is the scale of symmetric weights, with zero at 0: negative numbers would be "
                "cut off.",
                "这是对称权重的缩放因子，零点为 0：负数会全部被截掉。",
            ): (high / 127, 0),
            (
                "The zero point has the wrong sign: it is the level that stands for 0, somewhere "
                "between 0 and 255.",
                "零点的符号反了：它是代表 0 的那一级，在 0 到 255 之间。",
            ): (scale, round(low / scale)),
            (
                "The zero point was cut off, not rounded.",
                "零点是截断得到的，应该四舍五入。",
            ): (scale, int(-low / scale)),
            (
                "The zero point is a level, a whole number: round it.",
                "零点是一级，是整数：要取整。",
            ): (scale, -low / scale),
        },
        hint=(
            "Largest minus smallest, in 255 steps; the zero point is how many steps 0 is above the "
            "smallest, rounded.",
            "最大值减最小值，分成 255 步；零点是 0 比最小值高多少步，取整。",
        ),
    )
    yield ExerciseStep(
        "scale_and_zero",
        (x.abs() + 3,),
        (22 / LEVELS, 0),
        {
            (
                "All these numbers are above 0, and 0 has no level: let the range reach down to 0.",
                "这些数全都大于 0，于是 0 没有对应的级：范围要向下延伸到 0。",
            ): lambda: _without_zero(x.abs() + 3),
        },
        hint=(
            "The range must hold 0: min(smallest, 0) to max(largest, 0).",
            "范围必须包含 0：从 min(最小值, 0) 到 max(最大值, 0)。",
        ),
    )


def _without_zero(x: Tensor) -> tuple[float, int]:
    low, high = float(x.min()), float(x.max())
    scale = (high - low) / LEVELS
    return scale, round(-low / scale)


def _quantise() -> Iterator[ExerciseStep]:
    x, scale, zero = torch.randn(6, 10), 0.013, 97  # -1.26 to 2.05: some lie outside
    steps = x / scale
    free = steps.round() + zero
    yield ExerciseStep(
        "quantise",
        (x, scale, zero),
        levels(x, scale, zero),
        {
            (
                "Some levels lie outside of 0 to 255: clamp them.",
                "有的级超出了 0 到 255：要截断（clamp）。",
            ): free,
            (
                "What lay outside came back at the other end, as uint8 does: clamp before you "
                "convert.",
                "超出范围的数从另一头绕了回来，uint8 就会这样：转换之前先 clamp。",
            ): free % 256,
            (
                "Levels were cut off instead of rounded: the error is twice as large.",
                "级是截断得到的，没有四舍五入：误差会大一倍。",
            ): (steps + zero).floor().clamp(0, LEVELS),
            (
                "The zero point was added before the division: it is a level, not a number.",
                "零点在除法之前就加上了：它是级，不是原来的数。",
            ): ((x + zero) / scale).round().clamp(0, LEVELS),
            (
                "The zero point is missing, so negative numbers have become 0.",
                "漏了零点，负数全变成了 0。",
            ): steps.round().clamp(0, LEVELS),
        },
        hint=(
            "Divide by the scale, round, add the zero point, clamp, convert.",
            "除以缩放因子，取整，加零点，截断，再转换类型。",
        ),
    )


def _quantise_rows() -> Iterator[ExerciseStep]:
    weight = digits().model.get_parameter("blocks.0.attention.qkv.weight").detach()[::6].clone()
    reach = weight.abs().amax(dim=1)
    scales = reach / 127
    whole = (weight.abs().max() / 127).expand(len(weight))
    columns = weight.abs().amax(dim=0) / 127
    wide = reach / 128
    yield ExerciseStep(
        "quantise_rows",
        (weight,),
        (rows(weight, scales), scales),
        {
            (
                "One scale for all rows: a row with large weights makes all others coarse.",
                "所有行共用了一个缩放因子：一行的大权重会让其他行都变粗。",
            ): (rows(weight, whole), whole.clone()),
            (
                "A scale for each input: rows are the outputs. Only their scales can be multiplied "
                "behind the sum.",
                "缩放因子给了每个输入：行才是输出。只有输出的缩放因子才能放到求和之后。",
            ): ((weight / columns).round().to(torch.int8), columns),
            (
                "Divided by 128: the largest weight would be level 128, which int8 does not have.",
                "除以了 128：最大的权重会落在 128 级，而 int8 没有这一级。",
            ): lambda: ((weight / wide[:, None]).round().clamp(-128, 127).to(torch.int8), wide),
            (
                "Levels were cut off instead of rounded.",
                "级是截断得到的，没有四舍五入。",
            ): ((weight / scales[:, None]).trunc().to(torch.int8), scales),
            (
                "The range was taken from the smallest to the largest of each row: symmetric means "
                "that both sides reach as far as the largest absolute value.",
                "取的是每行最小值到最大值的范围：对称量化是两边都到绝对值的最大值。",
            ): lambda: _by_range(weight),
        },
        hint=(
            "The largest absolute value of each row becomes 127.",
            "每一行绝对值的最大值对应 127。",
        ),
    )


def _by_range(weight: Tensor) -> tuple[Tensor, Tensor]:
    scales = (weight.amax(dim=1) - weight.amin(dim=1)) / LEVELS
    return (weight / scales[:, None]).round().clamp(-127, 127).to(torch.int8), scales


def _linear() -> Iterator[ExerciseStep]:
    n, d, out = 5, 48, 7
    scale, zero = 0.021, 88
    x = levels(torch.randn(n, d) + 0.6, scale, zero)
    weight = torch.randint(-127, 128, (out, d), dtype=torch.int8)
    scales, bias = torch.rand(out) * 0.004 + 0.001, torch.randn(out)
    numbers = scale * (x.float() - zero)
    sums = x.int() @ weight.int().T
    right = sums - zero * weight.int().sum(dim=1)
    wrapped = x.to(torch.int16) @ weight.to(torch.int16).T
    signed = x.to(torch.int8).int() @ weight.int().T
    behind = scale * scales
    yield ExerciseStep(
        "linear",
        (x, scale, zero, weight, scales, bias),
        F.linear(numbers, scales[:, None] * weight.float(), bias),
        {
            (
                "The zero point is missing: subtract it from each level of x, or zero times the sum "
                "of each row of weights.",
                "漏了零点：x 的每一级都要减去它，或者减去零点乘以每行权重之和。",
            ): behind * sums + bias,
            (
                "The sums have overflowed 16 bits: a product of two levels has 15 bits already.",
                "和超出了 16 位：两级的乘积已经有 15 位。",
            ): behind * (wrapped - zero * weight.to(torch.int16).sum(dim=1)) + bias,
            (
                "Levels above 127 became negative: uint8 does not fit into int8. Convert both to "
                "int32.",
                "大于 127 的级变成了负数：uint8 放不进 int8。两边都转成 int32。",
            ): behind * (signed - zero * weight.int().sum(dim=1)) + bias,
            (
                "The scale of the weights is missing.",
                "漏了权重的缩放因子。",
            ): scale * right + bias,
            (
                "The scale of the inputs is missing.",
                "漏了输入的缩放因子。",
            ): scales * right + bias,
            (
                "The bias was scaled, too: it is a number, and comes last.",
                "偏置也被缩放了：它本来就是数，最后再加。",
            ): behind * (right + bias),
            (
                "The bias is missing.",
                "漏了偏置。",
            ): behind * right,
        },
        hint=(
            "(x - zero) and weight as int32, their product, then scale times scales, then bias.",
            "把 (x - zero) 和 weight 转成 int32 相乘，再乘 scale 和 scales，最后加 bias。",
        ),
        tolerance=1e-4,
    )


def _prepare() -> Iterator[ExerciseStep]:
    coarse = torch.rand(1, 3, 5, 8) * torch.tensor([1.0, 0.7, 0.4]).view(3, 1, 1)
    image = F.interpolate(coarse, (40, 64), mode="bicubic").clamp(0, 1)[0]
    grain = torch.rand(1, 40, 64)
    image = (255 * (0.7 * image + 0.3 * grain)).to(torch.uint8)
    own = digits().preprocess
    how = replace(own, crop=0.8, mean=(0.42,), std=(0.21,))
    size = 10  # 8 / 0.8
    gray = replace(how, mean=(0.0,), std=(1.0,))(image)
    square = replace(how, resize="square", crop=1.0, image_size=size)(image)
    corner = replace(how, image_size=(size, 16), crop=1.0)(image)
    middle = image[:, 16:24, 28:36]
    yield ExerciseStep(
        "prepare",
        (image, how),
        how(image),
        {
            (
                "Red and blue are swapped: this image is RGB, and blue counts the least.",
                "红和蓝颠倒了：这张图像是 RGB，蓝色的权重最小。",
            ): how(image.flip(0)),
            (
                "Gray is the plain mean of the three channels: they count 0.299, 0.587 and 0.114.",
                "灰度取了三个通道的平均：权重应是 0.299、0.587 和 0.114。",
            ): how(image.float().mean(0, keepdim=True).round().to(torch.uint8)),
            (
                "Both sides were resized to the same length: the image is squashed.",
                "两边缩放成了一样长：图像被压扁了。",
            ): square[:, 1:9, 1:9],
            (
                "The shorter side was resized to image_size: how.crop leaves a margin around it.",
                "短边直接缩放到了 image_size：how.crop 要求四周留一圈。",
            ): replace(how, crop=1.0)(image),
            (
                "The top left corner was cut out, not the centre.",
                "裁的是左上角，不是中央。",
            ): corner[:, :8, :8],
            (
                "The centre was cut out of the image as it is: resize first.",
                "没有缩放就直接裁了中央：要先缩放。",
            ): replace(how, crop=1.0)(middle),
            (
                "Not antialiased: each new pixel should be a mean of all that it covers.",
                "没有抗锯齿：每个新像素应该是它覆盖的所有像素的平均。",
            ): replace(how, antialias=False)(image),
            (
                "Levels up to 255 were normalised: divide by 255 first, mean and std are of 0 to 1.",
                "直接对 0 到 255 的值做了归一化：先除以 255，mean 和 std 是针对 0 到 1 的。",
            ): (255 * gray - 0.42) / 0.21,
            (
                "It has not been normalised: subtract how.mean, divide by how.std.",
                "没有归一化：减去 how.mean，再除以 how.std。",
            ): gray,
            (
                "Mean and std are those of another run: take them from `how`.",
                "mean 和 std 是另一次运行的：要用 `how` 里的。",
            ): own.normalise(gray),
        },
        hint=(
            "Gray, resize by one factor for both sides, cut out the centre, divide by 255, mean, "
            "std. Look at the shape after each step.",
            "灰度，两边按同一比例缩放，裁中央，除以 255，减均值，除以标准差。每一步都看看形状。",
        ),
        tolerance=0.03,  # a level of 255, and half of one: who rounds when is left open
    )


def _agreement() -> Iterator[ExerciseStep]:
    ours = torch.randn(40, 5)
    theirs = ours + 0.001 * torch.randn(40, 5)
    theirs[:4] = ours[:4].roll(1, dims=1)
    p, n = 0.9, 40
    apart = (p * (1 - p) / n) ** 0.5
    yield ExerciseStep(
        "agreement",
        (ours, theirs),
        wilson(36, n),
        {
            (
                "This is the interval of the normal distribution: it is too narrow near 100 %, and "
                "reaches beyond.",
                "这是正态近似的区间：接近 100% 时太窄，还会超出 100%。",
            ): (p, p - 1.96 * apart, p + 1.96 * apart),
            (
                "This is one standard error: 95 % take c = 1.96 of them.",
                "只取了一个标准误差：95% 要乘 c = 1.96。",
            ): wilson(36, n, level=0.6826894921370859),
            (
                "Logits were compared, not answers: take the largest of each row.",
                "比较的是 logits 而不是答案：先取每行最大的。",
            ): wilson(0, n),
            (
                "Largest along the wrong axis: a row is an image.",
                "取最大值的轴错了：一行才是一张图像。",
            ): lambda: _along_images(ours, theirs),
        },
        hint=(
            "The share of equal argmax, then the formula of the chapter, with c = 1.96.",
            "argmax 相等的比例，再代入本章的公式，c = 1.96。",
        ),
    )
    yield ExerciseStep(
        "agreement",
        (ours, ours + 0.001),
        wilson(n, n),
        {
            (
                "All agree, and an interval without width claims to be certain after 40 images.",
                "全部一致时，宽度为零的区间等于说：看了 40 张图就完全确定了。",
            ): (1.0, 1.0, 1.0),
        },
        hint=(
            "With p = 1 the root is c / 2n, and the upper end is 1.",
            "p = 1 时，根式等于 c / 2n，上端是 1。",
        ),
    )


def wilson(agreed: int, images: int, level: float = 0.95) -> tuple[float, float, float]:
    low, high = binomtest(agreed, images).proportion_ci(level, method="wilson")
    return agreed / images, float(low), float(high)


def _along_images(ours: Tensor, theirs: Tensor) -> tuple[float, float, float]:
    same = ours.argmax(0) == theirs.argmax(0)
    return wilson(int(same.sum()), len(same))
