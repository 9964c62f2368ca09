"""Chapter 9: pictures of attention, against `explain/` on the digits model."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from vitreous.course.check import ExerciseStep
from vitreous.course.model import digit, digits
from vitreous.explain.attention import Layer, head_reader, look
from vitreous.explain.class_maps import ExplainedScore, class_maps
from vitreous.explain.distances import Distances, coordinates
from vitreous.explain.rollout import Rollout
from vitreous.models.model import Places


def steps() -> Iterator[ExerciseStep]:
    layers: list[Layer] = []
    model, image = digits().model, digits().prepare(digit(3)[0])[None]
    with torch.inference_mode(False), torch.enable_grad():
        logits = look(model, image.clone().requires_grad_(), layers.append)
        target = int(logits.argmax())
        gradients = torch.autograd.grad(logits[0, target], [layer.weights for layer in layers])
    a = torch.stack([layer.weights.detach()[0] for layer in layers])  # (L, heads, n, n)
    g = torch.stack(gradients)[:, 0]
    yield from _distance()
    yield from _rollout(a)
    yield from _as_map(a, layers)
    wanted = ExplainedScore(lambda out: out[0, target], head_reader(model, image))
    yield from _evidence(a, g, class_maps(model, image, [wanted])[0])
    yield from _deletion()


def _distance() -> Iterator[ExerciseStep]:
    grid, patch = (3, 5), 4
    a = (2 * torch.randn(2, 16, 16)).softmax(dim=-1)
    layer = Layer(0, "block", a[None], Places(1, grid, (patch, patch)))
    found = Distances()
    found.see(layer)
    places = coordinates(layer.places)
    patches = a[:, 1:, 1:]
    rows = patches / patches.sum(dim=-1, keepdim=True)

    def mean(weights: Tensor, between: Tensor) -> Tensor:
        return (weights * between).sum(dim=-1).mean(dim=-1)

    between = torch.cdist(places, places)
    swapped = coordinates(Places(1, grid[::-1], (patch, patch)))
    yield ExerciseStep(
        "distance",
        (a, grid, patch),
        found.result()[0].float(),
        {
            (
                "Without the class token a row sums to less than one: divide by its sum.",
                "去掉类别标记后，每一行的和小于 1：要除以这个和。",
            ): mean(patches, between),
            (
                "This is in patches: a step is `patch` pixels long.",
                "这是以图块为单位的：一步有 `patch` 个像素。",
            ): mean(rows, between / patch),
            (
                "The token that is asked was averaged, not the one that asks: rows sum to one.",
                "平均的是被看的标记，而不是在看的标记：和为 1 的是行。",
            ): mean((patches / patches.sum(dim=-2, keepdim=True)).mT, between),
            (
                "Steps along y and x were added; the distance is the straight line.",
                "把 y 和 x 方向的步数相加了；距离应该是直线距离。",
            ): mean(rows, torch.cdist(places, places, p=1.0)),
            (
                "Squared distances: the root is missing.",
                "这是距离的平方：没有开方。",
            ): mean(rows, between.square()),
            (
                "Places go row by row, and the grid is (height, width): these two are swapped.",
                "位置逐行排列，网格是 (高, 宽)：这里颠倒了。",
            ): mean(rows, torch.cdist(swapped, swapped)),
            (
                "The sum over patches that ask, where the mean was wanted.",
                "对在看的图块求了和，应该求平均。",
            ): mean(rows, between) * 15,
        },
        hint=(
            "A[:, 1:, 1:], rows divided by their sums; places by torch.cartesian_prod; torch.cdist.",
            "A[:, 1:, 1:]，每行除以它的和；位置可用 torch.cartesian_prod；距离用 torch.cdist。",
        ),
    )


def _rollout(a: Tensor) -> Iterator[ExerciseStep]:
    found = Rollout()
    for number, weights in enumerate(a):
        found.see(Layer(number, "", weights[None], Places(1, (4, 4), (2, 2))))
    one = torch.eye(a.shape[-1])
    means = a.mean(dim=1)

    def product(tables: Tensor) -> Tensor:
        result = one
        for table in tables:
            result = table @ result
        return result

    half = 0.5 * means + 0.5 * one
    yield ExerciseStep(
        "rollout",
        (a,),
        found.steps[0].weights[0],
        {
            (
                "The identity is missing: a block keeps its input, by the residual.",
                "漏掉了单位矩阵：编码块通过残差保留了它的输入。",
            ): product(means),
            (
                "The identity was added, but the rows no longer sum to one: mix half and half.",
                "加了单位矩阵，但行的和不再是 1：应该各占一半。",
            ): product(means + one),
            (
                "The order is reversed: the last block stands on the left of the product.",
                "顺序反了：最后一块应该在乘积的最左边。",
            ): product(half.flip(0)),
            (
                "Of the heads the largest was taken; rollout takes their mean.",
                "取了各头的最大值；rollout 用的是平均。",
            ): product(0.5 * a.amax(dim=1) + 0.5 * one),
            (
                "Transposed: a row should say what a token has gathered.",
                "转置了：一行应该表示一个标记收集到了什么。",
            ): product(half).T,
            (
                "The tables were added up; to follow attention through blocks, multiply them.",
                "把各块的表相加了；要追踪注意力穿过各块，应该相乘。",
            ): half.mean(dim=0),
        },
        hint=(
            "Begin with the identity; for each block: half the mean of its heads, half identity, "
            "from the left.",
            "从单位矩阵开始；每一块：各头平均的一半，加上单位矩阵的一半，从左边乘上去。",
        ),
    )


def _as_map(a: Tensor, layers: list[Layer]) -> Iterator[ExerciseStep]:
    found = Rollout()
    for layer in layers:
        found.see(Layer(layer.number, "", layer.weights.detach(), layer.places))
    first = torch.zeros(a.shape[-1])
    first[0] = 1
    R = found.steps[0].weights[0]
    row, column = R[0, 1:].unflatten(0, (4, 4)), R[1:, 0].unflatten(0, (4, 4))
    yield ExerciseStep(
        "as_map",
        (R, (4, 4)),
        found.map(lambda layer: first)[0],
        {
            (
                "The map does not sum to one: what the class token kept of itself is not on it, "
                "so divide by the sum.",
                "图的和不是 1：类别标记自己保留的部分不在图上，要除以总和。",
            ): row,
            (
                "This is the column: where the class token has gone. Its row is what it gathered.",
                "这是列，表示类别标记去了哪里；它的行才是它收集到的。",
            ): column / column.sum(),
            (
                "Divided by the largest, as for a picture; the sum was asked for.",
                "除以了最大值，像画图那样；要求的是总和为 1。",
            ): row / row.max(),
            (
                "The map of all tokens together: only the class token is read.",
                "这是所有标记合起来的图；被读取的只有类别标记。",
            ): R[:, 1:].mean(dim=0).unflatten(0, (4, 4)) / R[:, 1:].mean(dim=0).sum(),
        },
        hint=("Row 0 without its first number.", "第 0 行，去掉它的第一个数。"),
    )


def _evidence(a: Tensor, g: Tensor, theirs: Tensor) -> Iterator[ExerciseStep]:
    one = torch.eye(a.shape[-1])

    def flow(tables: Tensor) -> Tensor:
        result = one
        for table in tables:
            result = result + table @ result
        return result

    right = flow((a * g).clamp(min=0).mean(dim=1))
    row = right[0, 1:].unflatten(0, (4, 4))
    assert torch.allclose(row / row.sum(), theirs, atol=1e-5), "the library's class map differs"
    yield ExerciseStep(
        "evidence",
        (a, g),
        right,
        {
            (
                "What would lower the logit is still in it: clamp at zero.",
                "会降低 logit 的部分还在里面：要截断到零。",
            ): flow((a * g).mean(dim=1)),
            (
                "Negative parts are left out in each head, before the mean of the heads.",
                "应该在每个头里先去掉负的部分，再对各头求平均。",
            ): flow((a * g).mean(dim=1).clamp(min=0)),
            (
                "The residual is missing: R stays, and what attention brings is added.",
                "漏掉了残差：R 要保留，再加上注意力带来的部分。",
            ): _product((a * g).clamp(min=0).mean(dim=1), one),
            (
                "The gradient alone: it should be multiplied by the weights.",
                "只用了梯度：应该乘以权重。",
            ): flow(g.clamp(min=0).mean(dim=1)),
            (
                "The absolute value counts what speaks against the class as evidence for it.",
                "取绝对值会把反对这个类别的部分也当成证据。",
            ): flow((a * g).abs().mean(dim=1)),
            (
                "Mixed half and half as in rollout; here the two are added.",
                "像 rollout 那样各占一半了；这里是直接相加。",
            ): _product(0.5 * (a * g).clamp(min=0).mean(dim=1) + 0.5 * one, one),
            (
                "The order is reversed: begin with the first block.",
                "顺序反了：从第一块开始。",
            ): flow((a * g).clamp(min=0).mean(dim=1).flip(0)),
        },
        hint=(
            "For each block: A times g, negative parts out, mean of the heads; R + that @ R.",
            "每一块：A 乘以 G，去掉负的部分，各头求平均；R 加上它与 R 的乘积。",
        ),
        tolerance=1e-6,
    )


def _product(tables: Tensor, start: Tensor) -> Tensor:
    for table in tables:
        start = table @ start
    return start


def _deletion() -> Iterator[ExerciseStep]:
    scores = torch.tensor([0.95, 0.9, 0.4, 0.25, 0.1])
    yield ExerciseStep(
        "deletion",
        (scores,),
        torch.trapezoid(scores, torch.linspace(0, 1, 5)),
        {
            (
                "The x axis goes from 0 to 1, whatever the number of patches: a step is 1 / k.",
                "不论有多少图块，横轴都是从 0 到 1：每一步是 1 / k。",
            ): torch.trapezoid(scores),
            (
                "The mean of the scores: the first and the last count half.",
                "这是得分的平均；首尾两个应该只算一半。",
            ): scores.mean(),
            (
                "A sum of bars: between two scores the curve is a straight line.",
                "这是矩形求和；两个得分之间应该是直线。",
            ): scores[:-1].mean(),
            (
                "A sum of bars, by their right ends: between two scores the curve is straight.",
                "这是取右端点的矩形求和；两个得分之间应该是直线。",
            ): scores[1:].mean(),
        },
        hint=("torch.trapezoid over shares from 0 to 1.", "用 torch.trapezoid，横轴从 0 到 1。"),
    )
