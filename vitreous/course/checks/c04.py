"""Chapter 4: a block, against `layers/block.py`, `layers/mlp.py` and torch's norms."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitreous.course.check import ExerciseStep
from vitreous.layers.attention import Attention
from vitreous.layers.block import Block, DropPath
from vitreous.layers.mlp import Mlp, quick_gelu
from vitreous.layers.uncommon import PostNormBlock, StreamNormBlock

DIM, HIDDEN = 8, 24


def steps() -> Iterator[ExerciseStep]:
    yield norm()
    yield activation()
    yield network()
    yield whole()
    yield dropped()


def norm() -> ExerciseStep:
    x, gamma, beta, eps = (
        2 * torch.randn(3, 4, DIM) + 1,
        torch.rand(DIM) + 0.5,
        torch.randn(DIM),
        0.5,
    )
    right = F.layer_norm(x, (DIM,), gamma, beta, eps)

    def by(dims: tuple[int, ...], *, unbiased: bool = False) -> Tensor:
        variance = x.var(dim=dims, keepdim=True, unbiased=unbiased)
        return (x - x.mean(dim=dims, keepdim=True)) / (variance + eps).sqrt() * gamma + beta

    centred = x - x.mean(-1, keepdim=True)
    variance = x.var(-1, keepdim=True, unbiased=False)
    return ExerciseStep(
        "layer_norm",
        (x, gamma, beta, eps),
        right,
        {
            (
                "The variance divides by D - 1, torch's default; LayerNorm divides by D.",
                "方差除以了 D - 1（torch 的默认值）；LayerNorm 除以 D。",
            ): by((-1,), unbiased=True),
            (
                "This is BatchNorm: it averages a channel over all tokens. Average each token over its channels.",
                "这是 BatchNorm：对一个通道的所有标记求平均。应该对每个标记的通道求平均。",
            ): by((0, 1)),
            (
                "Mean and variance are those of a whole image; each token has its own.",
                "均值和方差是整张图像的；每个标记应该有自己的。",
            ): by((1, 2)),
            (
                "Mean and variance are taken over the tokens of an image; take them over the channels of a token.",
                "均值和方差是对图像内的标记求的；应该对标记的通道求。",
            ): by((1,)),
            (
                "ε is added to the standard deviation; it belongs to the variance, under the root.",
                "ε 加在了标准差上；应该加在方差上，在根号里面。",
            ): centred / (variance.sqrt() + eps) * gamma + beta,
            (
                "It is divided by the variance; divide by its root.",
                "除以了方差；应该除以它的平方根。",
            ): centred / (variance + eps) * gamma + beta,
            ("ε is missing.", "漏掉了 ε。"): centred / variance.sqrt() * gamma + beta,
            (
                "γ and β are missing.",
                "漏掉了 γ 和 β。",
            ): centred / (variance + eps).sqrt(),
        },
        hint=(
            "Mean and variance over the last axis, with keepdim=True.",
            "沿最后一维求均值和方差，keepdim=True。",
        ),
    )


def activation() -> ExerciseStep:
    x = torch.linspace(-4, 4, 41)
    return ExerciseStep(
        "gelu",
        (x,),
        F.gelu(x),
        {
            (
                "This is the tanh form: close, but not the exact one.",
                "这是 tanh 近似：很接近，但不是精确的。",
            ): F.gelu(x, approximate="tanh"),
            ("This is ReLU.", "这是 ReLU。"): x.relu(),
            (
                "This is x · sigmoid(1.702 x), an approximation.",
                "这是 x · sigmoid(1.702 x)，一种近似。",
            ): quick_gelu(x),
            ("This is SiLU, x · sigmoid(x).", "这是 SiLU，x · sigmoid(x)。"): F.silu(x),
            (
                "√2 is missing inside erf.",
                "erf 里漏掉了 √2。",
            ): x * (1 + torch.erf(x)) / 2,
            (
                "This is Φ(x) alone; multiply it by x.",
                "这只是 Φ(x)；还要乘以 x。",
            ): (1 + torch.erf(x / 2**0.5)) / 2,
        },
        hint=("Φ from erf of x / √2, times x.", "用 x / √2 的 erf 求 Φ，再乘以 x。"),
        tolerance=1e-6,
    )


def network() -> ExerciseStep:
    layer, x = Mlp(DIM, HIDDEN).eval(), torch.randn(2, 5, DIM)
    for parameter in layer.parameters():
        parameter.copy_(torch.randn(parameter.shape) / 2)
    W_1, b_1, W_2, b_2 = layer.fc1.weight.T, layer.fc1.bias, layer.fc2.weight.T, layer.fc2.bias
    right, inside = layer(x), x @ W_1 + b_1

    def out(hidden: Tensor) -> Tensor:
        return hidden @ W_2 + b_2

    return ExerciseStep(
        "mlp",
        (x, W_1, b_1, W_2, b_2),
        right,
        {
            (
                "The activation is missing: two linear layers are one.",
                "漏掉了激活函数：两个线性层等于一个。",
            ): out(inside),
            (
                "The activation stands behind the second layer, too.",
                "第二层之后也用了激活函数。",
            ): F.gelu(out(F.gelu(inside))),
            (
                "x is added: the residual belongs to the block.",
                "加上了 x：残差属于编码块。",
            ): right + x,
            ("This activation is ReLU.", "这里的激活函数是 ReLU。"): out(inside.relu()),
            ("b_2 is missing.", "漏掉了 b_2。"): right - b_2,
            ("b_1 is missing.", "漏掉了 b_1。"): out(F.gelu(inside - b_1)),
            (
                "GELU came before the first layer.",
                "GELU 用在了第一层之前。",
            ): out(F.gelu(x) @ W_1 + b_1),
        },
        hint=(
            "Linear, GELU, linear. W_1 is (D, hidden) here, as in the equation: x W_1, not transposed.",
            "线性层、GELU、线性层。这里 W_1 是 (D, hidden)，与公式一致：x W_1，不要转置。",
        ),
        tolerance=1e-4,
    )


def made(kind: type[Block]) -> Block:
    return kind(DIM, Attention(DIM, 2, DIM // 2), Mlp(DIM, HIDDEN)).eval()


def whole() -> ExerciseStep:
    layer, x = made(Block), 2 * torch.randn(2, 5, DIM) + 1
    for parameter in layer.parameters():
        parameter.copy_(torch.randn(parameter.shape) / 2)
    norm1, attention, norm2, mlp = layer.norm1, layer.attention, layer.norm2, layer.mlp

    def other(kind: type[Block]) -> Tensor:
        changed = made(kind)
        changed.load_state_dict(layer.state_dict())
        return changed(x)

    parts: tuple[nn.Module, ...] = (norm1, attention, norm2, mlp)
    summed = x + attention(norm1(x))
    return ExerciseStep(
        "block",
        (x, *parts),
        layer(x),
        {
            (
                "The norms are on the wrong side: ViT normalises before each part, not behind the sum.",
                "归一化放错了位置：ViT 在每个部分之前归一化，而不是在求和之后。",
            ): other(PostNormBlock),
            (
                "The norms change the stream itself: what is added to is not normalised.",
                "归一化改变了残差流本身：被加的那个 x 不应该归一化。",
            ): other(StreamNormBlock),
            (
                "The residuals are missing: add what goes in to what comes out.",
                "漏掉了残差：要把输入加到输出上。",
            ): mlp(norm2(attention(norm1(x)))),
            (
                "The second residual is missing.",
                "漏掉了第二个残差。",
            ): mlp(norm2(summed)),
            (
                "The first residual is missing.",
                "漏掉了第一个残差。",
            ): lambda: attention(norm1(x)) + mlp(norm2(attention(norm1(x)))),
            (
                "The MLP looks at x; it should look at the sum behind attention.",
                "MLP 的输入是 x；应该是注意力之后的和。",
            ): summed + mlp(norm2(x)),
            (
                "The second sum adds x again; it should add what equation 2 gives.",
                "第二次加的是 x；应该加公式 2 的结果。",
            ): x + mlp(norm2(summed)),
            ("The norms are missing.", "漏掉了归一化。"): lambda: (
                x + attention(x) + mlp(x + attention(x))
            ),
            (
                "The norms stand behind their parts, before the sum; they belong before the parts.",
                "归一化放在了各部分之后、求和之前；应该放在各部分之前。",
            ): lambda: x + norm1(attention(x)) + norm2(mlp(x + norm1(attention(x)))),
            (
                "The MLP comes first; attention does.",
                "MLP 排在了前面；应该先是注意力。",
            ): lambda: x + mlp(norm2(x)) + attention(norm1(x + mlp(norm2(x)))),
        },
        hint=(
            "Two lines, one for each equation; both begin with what they add to.",
            "两行，每个公式一行；每一行都从被加的量开始。",
        ),
        tolerance=1e-4,
    )


def dropped() -> ExerciseStep:
    x, rate = torch.randn(6, 3, 4), 0.25
    layer, drawn = DropPath(rate).train(), torch.random.get_rng_state()
    right = layer(x)
    torch.random.set_rng_state(drawn)
    kept = torch.rand(6, 1, 1)[:, 0, 0] < 1 - rate
    chosen = kept[:, None, None]
    return ExerciseStep(
        "drop_path",
        (x, rate, kept),
        right,
        {
            (
                "What is kept is not scaled: divide by 1 - rate, so that the mean stays.",
                "保留的部分没有放大：除以 1 - rate，均值才不变。",
            ): x * chosen,
            (
                "It is multiplied by 1 - rate; divide by it.",
                "乘以了 1 - rate；应该除以它。",
            ): x * chosen * (1 - rate),
            ("It is divided by rate; divide by 1 - rate.", "除以了 rate；应该除以 1 - rate。"): x
            * chosen
            / rate,
            (
                "The dropped samples are kept, and the kept ones dropped.",
                "保留和丢弃弄反了。",
            ): x * ~chosen / (1 - rate),
            (
                "The dropped samples are left out; they stay in the batch, as zeros.",
                "丢弃的样本被删掉了；它们应该留在批次里，值为零。",
            ): x[kept] / (1 - rate),
        },
        hint=(
            "kept needs two more axes to be multiplied with (b, n, D).",
            "kept 要增加两个维度才能与 (b, n, D) 相乘。",
        ),
    )
