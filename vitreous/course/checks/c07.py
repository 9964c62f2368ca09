"""Chapter 7: against the gradient of convolutions, the layers of a hybrid, and mixing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import mul

import torch
from torch import nn

from vitreous.course.check import ExerciseStep
from vitreous.layers.patch import PatchEmbedding, PatchSizes


def steps() -> Iterator[ExerciseStep]:
    yield from _fields()
    yield _nearest()
    yield _hybrid()
    yield _mixup()


def seen(kernels: Sequence[int], strides: Sequence[int]) -> int:
    """How many pixels of a row change one output, by the gradient of real convolutions."""
    pairs = zip(kernels, strides, strict=True)
    layers = nn.Sequential(*(nn.Conv1d(1, 1, k, s) for k, s in pairs))
    for each in layers.parameters():
        nn.init.constant_(each, 0.5)
    row = torch.rand(1, 1, 400, requires_grad=True)
    with torch.enable_grad():
        (gradient,) = torch.autograd.grad(layers(row)[0, 0, 0], row)
    return int((gradient != 0).sum())


def _fields() -> Iterator[ExerciseStep]:
    hint = (
        "Start with 1. A layer adds its kernel less one, counted in its own inputs: how many "
        "pixels apart are these?",
        "从 1 开始。每一层加上“核大小减一”，单位是它自己的输入：相邻两个输入相隔多少像素？",
    )
    for kernels, strides in (([3, 3, 3, 3], [1, 1, 1, 1]), ([7, 3, 3, 5, 3], [2, 2, 1, 3, 1])):
        plain = 1 + sum(k - 1 for k in kernels)
        behind = list(accumulate(strides, mul))
        too_early = 1 + sum((k - 1) * step for k, step in zip(kernels, behind, strict=True))
        before = zip(kernels, [1, *strides], strict=False)
        last = 1 + sum((k - 1) * step for k, step in before)
        right = seen(kernels, strides)
        mistakes = {
            (
                "The kernels were added: each layer adds its kernel less one.",
                "直接把核大小相加了：每一层只增加“核大小减一”。",
            ): sum(kernels),
            ("The 1 at the beginning is missing.", "漏掉了开头的 1。"): right - 1,
            (
                "The strides were left out: behind a stride of 2, one step is two pixels.",
                "没有考虑步长：步长为 2 的层之后，走一步等于两个像素。",
            ): plain,
            (
                "The stride of a layer counts for the layers behind it, not for the layer itself.",
                "一层的步长影响的是它后面的层，而不是它自己。",
            ): too_early,
            (
                "Only the stride of the layer before was used: all strides before multiply.",
                "只用了前一层的步长：前面所有层的步长要相乘。",
            ): last,
        }
        yield ExerciseStep(
            "receptive_field",
            (kernels, strides),
            right,
            {cause: wrong for cause, wrong in mistakes.items() if wrong != right},
            hint,
            tolerance=1e-12,
        )


def _nearest() -> ExerciseStep:
    known, images = torch.randn(12, 1, 4, 4), torch.randn(7, 1, 4, 4)
    known[:3] *= 3  # long ones: they win by the dot product, and lose by the distance
    classes = torch.tensor([5, 3, 8, 0, 1, 2, 4, 6, 7, 9, 10, 11])
    distances = torch.cdist(images.flatten(1), known.flatten(1))
    product = images.flatten(1) @ known.flatten(1).T
    return ExerciseStep(
        "nearest",
        (known, classes, images),
        classes[distances.argmin(1)],
        {
            (
                "This is the furthest, not the nearest.",
                "这是最远的，而不是最近的。",
            ): classes[distances.argmax(1)],
            (
                "These are the numbers of the nearest images; their classes are wanted.",
                "这是最近图像的编号；要的是它们的类别。",
            ): distances.argmin(1),
            (
                "By the dot product, long images win: use the distance.",
                "用内积的话，数值大的图像总会赢：要用距离。",
            ): classes[product.argmax(1)],
        },
        hint=(
            "Flatten each image, then the distance of every image to every known one: (b, m).",
            "把每张图像展平，再求每张图像到每张已知图像的距离：(b, m)。",
        ),
    )


def _hybrid() -> ExerciseStep:
    features = torch.randn(2, 6, 3, 4)
    layer = PatchEmbedding(PatchSizes(6, (1, 1), 5))
    bias = torch.randn(5)
    layer.bias = nn.Parameter(bias)
    matrix = layer.weight.flatten(1).T
    tokens = layer(features).flatten(1, 2)
    return ExerciseStep(
        "tokens_of_map",
        (features, matrix, bias),
        tokens,
        {
            (
                "Reshaping (c, h·w) to (h·w, c) mixes the places: move the channels last.",
                "把 (c, h·w) 直接 reshape 成 (h·w, c) 会打乱位置：要把通道移到最后。",
            ): features.reshape(2, 12, 6) @ matrix + bias,
            (
                "The tokens stand column by column; they should go row by row.",
                "标记是逐列排列的；应该是逐行。",
            ): tokens.unflatten(1, (3, 4)).transpose(1, 2).flatten(1, 2),
            ("The bias b is missing.", "漏掉了偏置 b。"): tokens - bias,
            (
                "The result should be (b, h·w, D): one row per place.",
                "结果应该是 (b, h·w, D)：每个位置一行。",
            ): tokens.transpose(1, 2),
        },
        hint=(
            "Each place has c numbers; they are a patch. No pixels need to be gathered.",
            "每个位置有 c 个数，这就是一个图块，不需要再收集像素。",
        ),
    )


def _mixup() -> ExerciseStep:
    images, order, share = torch.rand(4, 1, 3, 3), torch.tensor([2, 0, 3, 1]), 0.3
    targets = torch.eye(5)[torch.tensor([0, 3, 1, 4])]
    other, theirs = images[order], targets[order]
    mixed = torch.lerp(other, images, share)
    right = mixed, torch.lerp(theirs, targets, share)
    return ExerciseStep(
        "mixup",
        (images, targets, order, share),
        right,
        {
            (
                "The targets were not mixed: part of what the image shows has no label then.",
                "目标没有混合：那样图像里另一部分内容就没有标签。",
            ): (mixed, targets),
            (
                "The shares are swapped: image i keeps `share`.",
                "份额弄反了：图像 i 保留 share。",
            ): (
                torch.lerp(images, other, share),
                torch.lerp(targets, theirs, share),
            ),
            (
                "The shares of the targets are swapped.",
                "目标的份额弄反了。",
            ): (
                mixed,
                torch.lerp(targets, theirs, share),
            ),
            (
                "Both were added at full strength: the shares should have the sum 1.",
                "两者都按全份额相加了：份额之和应该是 1。",
            ): (images + other, targets + theirs),
            (
                "The order was used the other way round: image i gets the rest from order[i].",
                "顺序用反了：图像 i 的其余部分来自 order[i]。",
            ): (
                torch.lerp(images[order.argsort()], images, share),
                torch.lerp(targets[order.argsort()], targets, share),
            ),
        },
        hint=(
            "share · mine + (1 - share) · theirs, for images and targets alike.",
            "share · 自己 + (1 - share) · 对方，图像和目标都一样。",
        ),
    )
