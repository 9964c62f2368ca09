"""Chapter 6: sizes, against models that are counted: their parameters, and torch's FLOPs."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from vitreous.course.check import ExerciseStep
from vitreous.course.vit import Block, ViT

EXACT = 1e-12
"""Counts are whole numbers: one weight too few is wrong."""
IMAGE, PATCH, D, DEPTH, M, CLASSES = 96, 16, 32, 3, 96, 7
"""Each usual mistake gives a number of its own; m is not 4d."""


def steps() -> Iterator[ExerciseStep]:
    with torch.device("meta"):
        block = Block(D, 4, M)
        model = ViT(IMAGE, PATCH, 3, D, DEPTH, 4, M, CLASSES)
    yield _block_parameters(block)
    yield _vit_parameters(model)
    yield _block_macs(block)
    yield _vit_flops(model)
    yield _equal_tokens()


def counted(module: nn.Module) -> int:
    return sum(each.numel() for each in module.parameters())


def flops(module: nn.Module, *shape: int) -> int:
    counter = FlopCounterMode(display=False)
    with counter:
        module(torch.zeros(shape, device="meta"))
    return int(counter.get_total_flops())


def _block_parameters(block: Block) -> ExerciseStep:
    right = counted(block)
    return ExerciseStep(
        "block_parameters",
        (D, M),
        right,
        {
            ("The biases are missing.", "漏掉了偏置。"): right - 5 * D - M,
            ("The two LayerNorms are missing.", "漏掉了两个层归一化。"): right - 4 * D,
            (
                "A LayerNorm has a factor and a summand per channel; one of them is missing.",
                "层归一化的每个通道有一个缩放和一个平移；少算了一个。",
            ): right - 2 * D,
            (
                "W_O is missing: behind the heads there is one more matrix.",
                "漏掉了 W_O：多头之后还有一个矩阵。",
            ): right - D * D - D,
            (
                "Queries, keys and values have a matrix each; one was counted for all three.",
                "查询、键和值各有一个矩阵；这里三个只算了一个。",
            ): right - 2 * (D * D + D),
            (
                "The MLP has two matrices; one was counted.",
                "MLP 有两个矩阵；这里只算了一个。",
            ): right - D * M - M,
            ("m was taken for 4d; it is given.", "把 m 当成了 4d；m 是给定的。"): right
            + (4 * D - M) * (2 * D + 1),
        },
        hint=(
            "Write down each matrix with its shape: q, k, v, W_O, fc1, fc2. Then biases and norms.",
            "先写下每个矩阵的形状：q、k、v、W_O、fc1、fc2，再加上偏置和层归一化。",
        ),
        tolerance=EXACT,
    )


def _vit_parameters(model: ViT) -> ExerciseStep:
    right = counted(model)
    return ExerciseStep(
        "vit_parameters",
        (IMAGE, PATCH, D, DEPTH, M, CLASSES),
        right,
        {
            (
                "The class token has a position, too: the table has N + 1 rows.",
                "类别标记也有位置编码：表有 N + 1 行。",
            ): right - D,
            (
                "2·d are missing: the class token and its position, or the LayerNorm behind the "
                "last block.",
                "少了 2·d 个：类别标记和它的位置编码，或者最后的层归一化。",
            ): right - 2 * D,
            ("The positions are missing.", "漏掉了位置编码。"): right - 37 * D,
            ("The head is missing.", "漏掉了分类头。"): right - D * CLASSES - CLASSES,
            ("The biases of patches and head are missing.", "漏掉了图块嵌入和分类头的偏置。"): (
                right - D - CLASSES
            ),
            ("The head's bias is missing.", "漏掉了分类头的偏置。"): right - CLASSES,
            (
                "A patch has three channels: E has P·P·3 rows.",
                "图块有三个通道：E 有 P·P·3 行。",
            ): right - 2 * PATCH * PATCH * D,
        },
        hint=(
            "E and its bias, the class token, N + 1 positions, the blocks, a norm, the head.",
            "E 和它的偏置、类别标记、N + 1 个位置编码、各编码块、一个层归一化、分类头。",
        ),
        tolerance=EXACT,
    )


def _block_macs(block: Block) -> ExerciseStep:
    n = 37
    right = flops(block, 1, n, D) // 2
    linear = n * (4 * D * D + 2 * D * M)
    return ExerciseStep(
        "block_macs",
        (n, D, M),
        right,
        {
            (
                "The products between tokens are missing: q with k, and the weights with v.",
                "漏掉了标记之间的乘法：q 乘 k，以及权重乘 v。",
            ): linear,
            (
                "Between tokens there are two products, not one.",
                "标记之间有两次矩阵乘法，这里只算了一次。",
            ): linear + n * n * D,
            (
                "These are FLOPs, two for each multiplication with its addition.",
                "这是 FLOPs：每次乘法连同加法算了两次。",
            ): 2 * right,
            (
                "These are the weights of the matrices: each is used once for every token.",
                "这是矩阵的权重个数：每个权重对每个标记都要用一次。",
            ): 4 * D * D + 2 * D * M,
            (
                "The product of two tokens has d multiplications: a factor d is missing.",
                "两个标记的内积有 d 次乘法：漏了因子 d。",
            ): linear + 2 * n * n,
        },
        hint=(
            "(n, a) times (a, b) takes n·a·b multiplications. Go through all six matrix products.",
            "(n, a) 乘 (a, b) 需要 n·a·b 次乘法。把所有矩阵乘法逐个写出来。",
        ),
        tolerance=EXACT,
    )


def _vit_flops(model: ViT) -> ExerciseStep:
    right = flops(model, 1, 3, IMAGE, IMAGE)
    n, side = 37, PATCH * PATCH * 3
    less = (n - 1) * (4 * D * D + 2 * D * M) + 2 * (n - 1) ** 2 * D
    more = n * (4 * D * D + 2 * D * M) + 2 * n**2 * D
    return ExerciseStep(
        "vit_flops",
        (IMAGE, PATCH, D, DEPTH, M, CLASSES),
        right,
        {
            (
                "These are MACs; here a multiplication with its addition counts as two.",
                "这是 MACs；这里一次乘法连同加法算两次。",
            ): right // 2,
            ("The patch embedding is missing.", "漏掉了图块嵌入。"): right - 2 * (n - 1) * side * D,
            ("The head is missing.", "漏掉了分类头。"): right - 2 * D * CLASSES,
            (
                "The head reads one token, not all of them.",
                "分类头只读一个标记，而不是全部。",
            ): right + 2 * (n - 1) * D * CLASSES,
            (
                "The blocks see N + 1 tokens: the class token is missing.",
                "编码块看到的是 N + 1 个标记：漏了类别标记。",
            ): right - 2 * DEPTH * (more - less),
            (
                "The class token is no patch: E is used N times.",
                "类别标记不是图块：E 只用 N 次。",
            ): right + 2 * side * D,
        },
        hint=(
            "Twice the multiplications of the patches, of all blocks, and of the head.",
            "图块嵌入、全部编码块和分类头的乘法次数，加起来乘以二。",
        ),
        tolerance=EXACT,
    )


def _equal_tokens() -> ExerciseStep:
    return ExerciseStep(
        "equal_tokens",
        (D, M),
        2 * D + M,
        {
            (
                "This is against the layers of the attention alone; the MLP is linear, too.",
                "这里只和注意力里的线性层相比；MLP 也是线性层。",
            ): 2 * D,
            ("m was taken for 4d; it is given.", "把 m 当成了 4d；m 是给定的。"): 6 * D,
            (
                "One product between tokens was counted; there are two.",
                "标记之间只算了一次乘法；应该是两次。",
            ): 4 * D + 2 * M,
        },
        hint=(
            "Set both terms of the formula equal and solve for n.",
            "让公式里的两项相等，解出 n。",
        ),
        tolerance=EXACT,
    )
