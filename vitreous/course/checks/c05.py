"""Chapter 5: what the head reads, against `layers/patch.py`, `position.py` and `head.py`."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.course.check import ExerciseStep
from vitreous.layers.head import TanhHead, TokenPool
from vitreous.layers.patch import PrefixTokens
from vitreous.layers.position import Learned1dConfig, TokenSizes


def steps() -> Iterator[ExerciseStep]:
    yield _embedding()
    yield from _reading()
    yield _pretraining()
    yield from _softmax()


def _embedding() -> ExerciseStep:
    patches = torch.randn(2, 6, 8)
    layer = PrefixTokens(8, class_token=True, distillation_token=False, registers=0)
    position = Learned1dConfig().make(TokenSizes(8, (2, 3), 1, 1, 1, 2, 4))
    first, table = torch.randn(8), torch.randn(7, 8)
    layer.class_token = torch.nn.Parameter(first)
    position.table = torch.nn.Parameter(table)
    expected = position(layer(patches), 1, (2, 3))
    row = first.expand(2, 1, 8)
    return ExerciseStep(
        "with_class_token",
        (patches, first, table),
        expected,
        {
            (
                "The class token stands behind the patches; it belongs in front.",
                "类别标记排到了图块后面；它应该在最前面。",
            ): torch.cat((patches, row), dim=1) + table,
            ("The positions are missing.", "漏掉了位置编码。"): torch.cat((row, patches), dim=1),
            (
                "The class token got no position: the table has a row for it, too.",
                "类别标记没有加位置编码：表里也有它的一行。",
            ): torch.cat((row, patches + table[1:]), dim=1),
            (
                "The patches got the rows of the table that begin with the class token's: the "
                "class token has row 0, the first patch row 1.",
                "图块错用了从类别标记那一行开始的位置编码：第 0 行属于类别标记，第一个图块用第 1 行。",
            ): torch.cat((row + table[-1], patches + table[:-1]), dim=1),
        },
        hint=(
            "Expand x_class to (b, 1, D), concatenate along the tokens, add the table.",
            "把 x_class 扩展成 (b, 1, D)，沿标记那一维拼接，再加上位置表。",
        ),
    )


def _reading() -> Iterator[ExerciseStep]:
    tokens = torch.randn(2, 9, 8)  # class token, two registers, six patches
    hint = (
        "The patches are the rows from `prefix` on.",
        "图块是从第 prefix 行开始的那些行。",
    )
    for kind in ("class", "mean", "class+mean"):
        expected = TokenPool(kind, 3)(tokens)
        mistakes: dict[tuple[str, str], Tensor] = {}
        if kind == "class":
            mistakes[
                "This is the last row; the class token is the first.",
                "这是最后一行；类别标记是第一行。",
            ] = tokens[:, -1]
        if kind == "mean":
            mistakes[
                "The class token and the registers are in the mean: leave out what is no patch.",
                "平均里包含了类别标记和寄存器标记：只对图块求平均。",
            ] = tokens.mean(dim=1)
            mistakes[
                "One row is left out, but there are registers, too: use `prefix`.",
                "只去掉了一行，但还有寄存器标记：要用 prefix。",
            ] = tokens[:, 1:].mean(dim=1)
            mistakes[
                "The mean is over the channels; it should be over the tokens.",
                "对通道求了平均；应该对标记求平均。",
            ] = tokens[:, 3:].mean(dim=2)
        if kind == "class+mean":
            mistakes[
                "Both were added; they stand side by side, (b, 2D).",
                "两者被相加了；它们应该并排拼接，(b, 2D)。",
            ] = expected[:, :8] + expected[:, 8:]
            mistakes[
                "The mean comes first; the class token should.",
                "平均排在了前面；应该是类别标记在前。",
            ] = torch.cat((expected[:, 8:], expected[:, :8]), dim=1)
        yield ExerciseStep("read", (tokens, kind, 3), expected, mistakes, hint)


def _pretraining() -> ExerciseStep:
    layer, y = TanhHead(8, 8, 5), 2 * torch.randn(3, 8)
    w1, b1 = 2 * layer.hidden.weight.T, torch.randn(8)
    w2, b2 = layer.out.weight.T, torch.randn(5)
    layer.hidden.weight.copy_(w1.T.clone())
    layer.hidden.bias.copy_(b1)
    layer.out.bias.copy_(b2)
    w1 = layer.hidden.weight.T
    hidden = y @ w1 + b1
    return ExerciseStep(
        "pretraining_head",
        (y, w1, b1, w2, b2),
        layer(y),
        {
            (
                "There is nothing between the two layers: they are one linear layer then.",
                "两层之间什么也没有：那样它们就等于一个线性层。",
            ): hidden @ w2 + b2,
            (
                "GELU is in the MLP of the blocks; this head has another activation.",
                "GELU 用在编码块的 MLP 里；这个分类头用的是另一种激活函数。",
            ): F.gelu(hidden) @ w2 + b2,
            (
                "ReLU is not the activation of this head.",
                "这个分类头的激活函数不是 ReLU。",
            ): F.relu(hidden) @ w2 + b2,
            (
                "An activation stands behind the last layer, too: logits have none.",
                "最后一层后面也加了激活函数：logits 后面没有。",
            ): torch.tanh(torch.tanh(hidden) @ w2 + b2),
        },
        hint=("Linear, activation, linear.", "线性层，激活函数，线性层。"),
    )


def _softmax() -> Iterator[ExerciseStep]:
    logits = torch.randn(3, 5)
    right = logits.softmax(dim=1)
    hint = (
        "exp of the logits, divided by the sum of its row.",
        "对 logits 取 exp，再除以所在行的和。",
    )
    yield ExerciseStep(
        "probabilities",
        (logits,),
        right,
        {
            (
                "The sum is over the images; each row should have the sum 1.",
                "求和是对图像做的；应该是每一行的和为 1。",
            ): logits.softmax(dim=0),
            (
                "The sum is over the whole batch; each image has its own.",
                "对整个批次求了和；每张图像应该各算各的。",
            ): logits.exp() / logits.exp().sum(),
            (
                "This is a sigmoid: each class for itself. Here the classes share a sum of 1.",
                "这是 sigmoid：每个类别各算各的。这里所有类别的和是 1。",
            ): logits.sigmoid(),
            (
                "Softmax was applied twice.",
                "softmax 用了两次。",
            ): right.softmax(dim=1),
        },
        hint,
    )
    large = 200 * logits
    yield ExerciseStep(
        "probabilities",
        (large,),
        large.softmax(dim=1),
        hint=(
            "These logits are large, and exp overflows to infinity. Adding the same number to all "
            "logits of a row changes no probability: which number helps?",
            "这些 logits 很大，exp 溢出成了无穷大。"
            "给一行的所有 logits 加上同一个数，概率不变：加哪个数有用？",
        ),
    )
