"""Chapter 1: patches and their embedding, against `layers/patch.py`."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from vitreous.course.check import ExerciseStep
from vitreous.layers.patch import PatchEmbedding, PatchSizes


def steps() -> Iterator[ExerciseStep]:
    image = torch.rand(3, 8, 12)
    theirs = image.unflatten(2, (3, 4)).unflatten(1, (2, 4))  # (c, gh, p, gw, p)
    patches = theirs.permute(1, 3, 0, 2, 4).reshape(6, 48)
    yield ExerciseStep(
        "patchify",
        (image, 4),
        patches,
        {
            (
                "The patches stand column by column; the paper goes row by row.",
                "图块是逐列排列的；论文里是逐行。",
            ): theirs.permute(3, 1, 0, 2, 4).reshape(6, 48),
            (
                "Within a patch the channels come last; they should come first.",
                "图块内部通道排在了最后；应该排在最前。",
            ): theirs.permute(1, 3, 2, 4, 0).reshape(6, 48),
            (
                "The image was reshaped without moving its axes: a patch holds pixels of whole "
                "lines. Split height and width first, then permute, then flatten.",
                "直接 reshape 而没有交换维度：一个图块里装的是整行像素。先拆分高和宽，再 permute，再展平。",
            ): image.reshape(6, 48),
            (
                "Lines and columns are swapped within each patch.",
                "每个图块内部的行和列颠倒了。",
            ): theirs.permute(1, 3, 0, 4, 2).reshape(6, 48),
        },
        hint=(
            "Cut the height into (rows, P) and the width into (columns, P), then order the axes.",
            "把高拆成 (行数, P)，把宽拆成 (列数, P)，再排列维度。",
        ),
    )
    layer = PatchEmbedding(PatchSizes(3, (4, 4), 5))
    kernel, bias = layer.weight, torch.randn(5)
    layer.bias = torch.nn.Parameter(bias)
    tokens = layer(image[None]).flatten(1, 2)[0]
    matrix = kernel.flatten(1).T
    yield ExerciseStep(
        "embed",
        (patches, matrix, bias),
        tokens,
        {
            ("The bias b is missing.", "漏掉了偏置 b。"): tokens - bias,
            ("b is subtracted.", "b 应该加上，而不是减去。"): tokens - 2 * bias,
        },
        hint=("Each row times E, plus b.", "每一行乘以 E，再加上 b。"),
    )
    yield ExerciseStep(
        "as_matrix",
        (kernel,),
        matrix,
        {
            (
                "This is E transposed: one filter should be one column.",
                "这是 E 的转置：一个滤波器应该是一列。",
            ): kernel.flatten(1),
            (
                "The shape is right, but the numbers were only regrouped: transpose, do not reshape.",
                "形状对了，但只是把数字重新分组：要转置，不能直接 reshape。",
            ): kernel.reshape(48, 5),
            (
                "The channels come last within a filter; `patchify` puts them first.",
                "滤波器里通道排在了最后；`patchify` 把它排在最前。",
            ): kernel.permute(2, 3, 1, 0).reshape(48, 5),
        },
        hint=("Flatten each filter, then transpose.", "先展平每个滤波器，再转置。"),
    )
    yield ExerciseStep(
        "tokens_of",
        (image, kernel, bias),
        tokens,
        {
            (
                "The tokens stand column by column: flatten the grid as it is.",
                "标记是逐列排列的：直接展平网格即可。",
            ): tokens.unflatten(0, (2, 3)).transpose(0, 1).flatten(0, 1),
            ("The bias b is missing.", "漏掉了偏置 b。"): tokens - bias,
            (
                "The channels come first: the result should be (N, D).",
                "维度顺序反了：结果应该是 (N, D)。",
            ): tokens.T,
            (
                "Reshaping (D, N) to (N, D) mixes the tokens: transpose.",
                "把 (D, N) 直接 reshape 成 (N, D) 会打乱标记：要转置。",
            ): tokens.T.reshape(6, 5),
        },
        hint=(
            "torch.nn.functional.conv2d with stride=P; the result is (D, gh, gw).",
            "用 torch.nn.functional.conv2d，stride=P；结果是 (D, gh, gw)。",
        ),
    )
