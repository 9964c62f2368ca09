"""Chapter 8: positions for another grid, against `layers/position.py` and `layers/resample.py`."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.course.check import ExerciseStep
from vitreous.explain.distances import coordinates
from vitreous.layers.position import Learned1d
from vitreous.layers.resample import resample_grid
from vitreous.models.model import Places


def steps() -> Iterator[ExerciseStep]:
    yield from _centres()
    yield from _line()
    yield from _split()
    yield from _resize()


def _centres() -> Iterator[ExerciseStep]:
    # 4 old places of 6 pixels each, 6 new ones of 4 pixels
    theirs = coordinates(Places(0, (6, 1), (4, 4)))[:, 0] / 6 - 0.5
    steps = torch.arange(6.0)
    yield ExerciseStep(
        "centres",
        (4, 6),
        theirs,
        {
            (
                "The outermost centres lie upon each other (align_corners=True): but both grids "
                "cover the same image, and small patches have centres nearer to its border.",
                "最外侧的中心被对齐了（align_corners=True）：两个网格覆盖的是同一张图像，小图块的中心离边界更近。",
            ): steps * 3 / 5,
            (
                "These are where patches begin: a centre is half a patch further.",
                "这是图块的起点：中心还要再过半个图块。",
            ): steps * 4 / 6,
            (
                "These are measured from the border: the centre of the first old place is 0, not "
                "a half.",
                "这是从边界量起的：第一个旧位置的中心应该是 0，而不是 0.5。",
            ): (steps + 0.5) * 4 / 6,
            (
                "The factor is the wrong way round: new places are closer together than old ones.",
                "比例弄反了：新位置之间比旧位置更近。",
            ): (steps + 0.5) * 6 / 4 - 0.5,
        },
        hint=(
            "The centre of new place i is (i + 1/2) new steps from the border; how many old steps "
            "is a new one?",
            "新位置 i 的中心离边界 (i + 1/2) 个新间距；一个新间距等于几个旧间距？",
        ),
    )


def _line() -> Iterator[ExerciseStep]:
    values = torch.randn(5, 3)

    def by_torch(**how: object) -> Tensor:
        return F.interpolate(values.T[None], size=8, **how)[0].T  # type: ignore[arg-type]

    at = (torch.arange(8) + 0.5) * 5 / 8 - 0.5
    below = at.floor()
    part = (at - below)[:, None]
    low, high = below.long().clamp(0, 4), (below.long() + 1).clamp(0, 4)
    yield ExerciseStep(
        "line",
        (values, 8),
        resample_grid(values[None], (1, 8), "bilinear")[0],
        {
            (
                "The outermost places are aligned: use the centres of the step before.",
                "最外侧的位置被对齐了：应使用上一步的中心。",
            ): by_torch(mode="linear", align_corners=True),
            (
                "Each place takes the value of one old place alone: mix the two around it.",
                "每个位置只取了一个旧位置的值：要混合它两侧的两个。",
            ): by_torch(mode="nearest"),
            (
                "The two weights are swapped: the nearer place counts more.",
                "两个权重颠倒了：更近的位置权重更大。",
            ): values[low] * part + values[high] * (1 - part),
            (
                "The first new centre lies before the first old one, and place -1 was read as the "
                "last: repeat the border.",
                "第一个新中心在第一个旧中心之前，下标 -1 取到了最后一个：应该重复边界。",
            ): values[below.long()] * (1 - part) + values[high] * part,
        },
        hint=(
            "floor of the centre is the place below; the rest behind the comma is the weight of "
            "the one above; clamp both to the line.",
            "中心向下取整是左边的位置；小数部分是右边位置的权重；两个下标都要限制在范围内。",
        ),
    )


def _split() -> Iterator[ExerciseStep]:
    table = torch.randn(2 + 4 * 9, 3)  # a class and a distillation token; 36 is a square, too
    rows, patches = table[:2], table[2:]
    yield ExerciseStep(
        "split",
        (table, (4, 9)),
        (rows, patches.unflatten(0, (4, 9))),
        {
            (
                "One row was set aside: this table has more rows than one before its patches.",
                "只留出了一行：这个表在图块之前不止一行。",
            ): (table[:1], table[1:37].unflatten(0, (4, 9))),
            (
                "The grid is square here: 36 places are 6 times 6, but also 4 times 9.",
                "这里网格成了正方形：36 个位置可以是 6 × 6，也可以是 4 × 9。",
            ): (rows, patches.unflatten(0, (6, 6))),
            (
                "Height and width are swapped: the grid is (height, width).",
                "高和宽颠倒了：网格是 (高, 宽)。",
            ): (rows, patches.unflatten(0, (9, 4))),
            (
                "Rows and columns are swapped: places go row by row.",
                "行和列颠倒了：位置是逐行排列的。",
            ): (rows, patches.unflatten(0, (9, 4)).transpose(0, 1)),
            (
                "The tokens without a place stand first in the table, not last.",
                "没有位置的标记在表的最前面，而不是最后。",
            ): (table[-2:], table[:-2].unflatten(0, (4, 9))),
        },
        hint=(
            "The last gh·gw rows are patches; all before them are not.",
            "最后 gh·gw 行是图块，之前的都不是。",
        ),
    )


def _resize() -> Iterator[ExerciseStep]:
    old, new = (4, 9), (6, 3)
    table = torch.randn(2 + 36, 5)
    rows, patches = table[:2], table[2:]

    def resized(grid: Tensor, **how: object) -> Tensor:
        """grid (1, D, gh, gw)"""
        given = {"size": new, "mode": "bicubic", "antialias": True, **how}
        found = F.interpolate(grid, **given)  # type: ignore[arg-type]
        return found[0].permute(1, 2, 0).flatten(0, 1)

    grid = patches.unflatten(0, old).permute(2, 0, 1)[None]
    right = resized(grid)
    yield ExerciseStep(
        "resize",
        (table, old, new),
        Learned1d(5, new, 2).resample("table", table, old, "bicubic"),
        {
            (
                "Not antialiased: this grid shrinks from 9 to 3, and each new place should be a "
                "mean of those that it covers.",
                "没有抗锯齿：宽度从 9 缩到 3，每个新位置应该是它所覆盖的那些位置的平均。",
            ): torch.cat((rows, resized(grid, antialias=False))),
            (
                "Bilinear: bicubic was asked for.",
                "用了双线性：要求的是双三次。",
            ): torch.cat((rows, resized(grid, mode="bilinear"))),
            (
                "Reshaped to (1, D, gh, gw): the numbers of a position were torn apart. Make it "
                "(gh, gw, D), then permute.",
                "直接 reshape 成 (1, D, gh, gw)，把每个位置的数拆散了：先变成 (gh, gw, D)，再 permute。",
            ): torch.cat((rows, resized(patches.reshape(1, 5, *old)))),
            (
                "The old grid was taken for a square one.",
                "把旧网格当成了正方形。",
            ): torch.cat((rows, resized(patches.unflatten(0, (6, 6)).permute(2, 0, 1)[None]))),
            (
                "The tokens before the patches are missing: put their rows back in front.",
                "漏掉了图块之前的标记：把它们的行放回最前面。",
            ): right,
            (
                "Back in rows, the grid was read with its channels first: permute before you "
                "flatten.",
                "变回行的时候没有把通道移到最后：展平之前先 permute。",
            ): torch.cat((rows, right.T.reshape(18, 5))),
        },
        hint=(
            "split, then channels first, F.interpolate, channels last, flatten, and the rows in "
            "front.",
            "先 split，再把通道移到最前，F.interpolate，通道移回最后，展平，最后把前面几行接上。",
        ),
    )
