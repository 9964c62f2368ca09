"""Chapter 3: attention, against `layers/attention.py`."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from vitreous.course.check import ExerciseStep
from vitreous.layers.attention import Attention
from vitreous.layers.tap import tap

N, DIM, HEADS = 5, 24, 3
WIDTH = DIM // HEADS
Heads = tuple[Tensor, Tensor, Tensor]


def steps() -> Iterator[ExerciseStep]:
    layer, x = Attention(DIM, HEADS, WIDTH).eval(), torch.randn(N, DIM)
    for parameter in layer.parameters():
        parameter.copy_(torch.randn(parameter.shape) / 3)
    seen: dict[str, Tensor] = {}
    with tap({"": layer}, lambda name, tensor: seen.update({name: tensor[0]})):
        right = layer(x[None])[0]
    yield weighed(layer)
    made = layer.qkv(x)
    yield split(made, (seen["q"], seen["k"], seen["v"]))
    yield joined(seen["heads"], layer)
    yield whole(x, layer, right, seen)


def weighed(layer: Attention) -> ExerciseStep:
    q, k = 2 * torch.randn(4, WIDTH), 2 * torch.randn(N, WIDTH)
    seen: dict[str, Tensor] = {}
    with tap({"": layer}, lambda name, tensor: seen.update({name: tensor})):
        layer.weigh(q[None, None], k[None, None], k[None, None], None)
    scores = q @ k.T
    return ExerciseStep(
        "weights",
        (q, k),
        seen["weights"][0, 0],
        {
            (
                "The scale is missing: divide the scores by √e before softmax.",
                "漏掉了缩放：softmax 之前要把得分除以 √e。",
            ): scores.softmax(-1),
            (
                "Softmax runs over the wrong axis: each row, a query, should sum to 1.",
                "softmax 的维度错了：每一行（一个查询）的和应该是 1。",
            ): (scores / WIDTH**0.5).softmax(0),
            (
                "The scores are divided by e; the root of e makes the variance 1.",
                "得分除以了 e；除以 e 的平方根，方差才是 1。",
            ): (scores / WIDTH).softmax(-1),
            (
                "Softmax is missing: these are the scaled scores.",
                "漏掉了 softmax：这是缩放后的得分。",
            ): scores / WIDTH**0.5,
            (
                "The scale stands behind softmax: rows do not sum to 1.",
                "缩放放在了 softmax 之后：每一行的和不再是 1。",
            ): scores.softmax(-1) / WIDTH**0.5,
        },
        hint=(
            "All inner products of queries and keys, divided by √e, softmax over the keys.",
            "查询和键的所有内积，除以 √e，再对键做 softmax。",
        ),
    )


def split(made: Tensor, right: Heads) -> ExerciseStep:
    def of(*order: int, sizes: tuple[int, int, int]) -> Heads:
        q, k, v = made.unflatten(1, sizes).permute(*order)
        return q, k, v

    q, k, v = right
    return ExerciseStep(
        "split",
        (made, HEADS),
        right,
        {
            (
                "The heads are not transposed: (n, D) was reshaped to (heads, n, e), which mixes the tokens.",
                "没有交换头和标记的维度：把 (n, D) 直接 reshape 成 (heads, n, e) 会打乱标记。",
            ): tuple(part.reshape(HEADS, N, WIDTH) for part in made.chunk(3, 1)),
            (
                "3·D was read head after head, each with its q, k and v; first come all queries.",
                "把 3·D 当成逐头排列、每个头各有 q、k、v；应该先是全部查询。",
            ): of(2, 1, 0, 3, sizes=(HEADS, 3, WIDTH)),
            (
                "The three parts are in another order; it is q, k, v.",
                "三份的顺序不对；应该是 q、k、v。",
            ): (k, q, v),
            (
                "Each head took every third channel; a head has e channels in a row.",
                "每个头隔着取通道；一个头的 e 个通道是连续的。",
            ): of(1, 3, 0, 2, sizes=(3, WIDTH, HEADS)),
            (
                "The shape is (n, heads, e): exchange the first two axes.",
                "形状是 (n, heads, e)：要交换前两个维度。",
            ): (q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1)),
        },
        hint=(
            "Cut the last axis into (3, heads, e), then order the axes: nothing but unflatten and permute.",
            "把最后一维拆成 (3, heads, e)，再排列维度：只需要 unflatten 和 permute。",
        ),
    )


def joined(mixed: Tensor, layer: Attention) -> ExerciseStep:
    seen: list[Tensor] = []
    hook = layer.projection.register_forward_pre_hook(lambda _, given: seen.append(given[0][0]))
    layer.join(mixed[None])
    hook.remove()
    return ExerciseStep(
        "join",
        (mixed,),
        seen[0],
        {
            (
                "The heads are not transposed back: (heads, n, e) was reshaped as it is, which mixes the tokens.",
                "没有把头的维度换回来：直接 reshape (heads, n, e) 会打乱标记。",
            ): mixed.reshape(N, DIM),
            (
                "The channels of the heads take turns; the heads should stand one behind the other.",
                "各个头的通道交错了；头应该一个接一个地排列。",
            ): mixed.permute(1, 2, 0).flatten(1),
        },
        hint=(
            "The tokens come first, then the heads, then flatten.",
            "先是标记，再是头，然后展平。",
        ),
    )


def whole(x: Tensor, layer: Attention, right: Tensor, seen: dict[str, Tensor]) -> ExerciseStep:
    W_qkv, b_qkv = layer.qkv.weight, layer.qkv.bias
    W_O, b_O = layer.projection.weight, layer.projection.bias
    k, v, scores = (seen[name] for name in ("k", "v", "scores"))

    def given(weights: Tensor) -> Tensor:
        return layer.join((weights @ v)[None])[0]

    together = seen["heads"].transpose(0, 1).flatten(1)
    one = Attention(DIM, 1, DIM).eval()
    one.load_state_dict(layer.state_dict())
    return ExerciseStep(
        "attention",
        (x, W_qkv, b_qkv, W_O, b_O, HEADS),
        right,
        {
            (
                "The scale is √D of the whole token; it should be √e of a head.",
                "缩放用了整个标记的 √D；应该用一个头的 √e。",
            ): given((scores / DIM**0.5).softmax(-1)),
            ("The scale is missing.", "漏掉了缩放。"): given(scores.softmax(-1)),
            (
                "Softmax runs over the queries; it should run over the keys, the last axis.",
                "softmax 沿查询做了；应该沿键，也就是最后一维。",
            ): given(seen["scaled"].softmax(-2)),
            (
                "W_O is missing: the heads stand side by side, and are not mixed yet.",
                "漏掉了 W_O：各个头只是并排，还没有混合。",
            ): together,
            ("b_O is missing.", "漏掉了 b_O。"): right - b_O,
            (
                "W_O is used transposed: torch stores (out, in), so it is y = x Wᵀ + b.",
                "W_O 用反了：torch 存储的是 (输出, 输入)，所以 y = x Wᵀ + b。",
            ): together @ W_O + b_O,
            (
                "The heads are not transposed back before they are joined.",
                "拼接之前没有把头的维度换回来。",
            ): lambda: seen["heads"].reshape(N, DIM) @ W_O.T + b_O,
            (
                "This is one head as wide as the token: split it into `heads`.",
                "这是一个与标记同宽的头：要拆成 `heads` 个。",
            ): one(x[None])[0],
            (
                "Values and keys are swapped: weights come from q and k, the mean is over v.",
                "值和键弄反了：权重来自 q 和 k，求平均的是 v。",
            ): lambda: layer.join((seen["weights"] @ k)[None])[0],
            (
                "x is added: the residual belongs to the block, chapter 4.",
                "加上了 x：残差属于编码块，见第 4 章。",
            ): right + x,
        },
        hint=(
            "qkv layer, `split`, `weights` of each head, times v, `join`, then W_O. Both matrices are "
            "stored (out, in), so a layer is x Wᵀ + b.",
            "qkv 层、`split`、每个头的 `weights`、乘以 v、`join`，最后是 W_O。两个矩阵都按 (输出, 输入) "
            "存储，所以一层是 x Wᵀ + b。",
        ),
        tolerance=1e-4,
    )
