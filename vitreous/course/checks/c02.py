"""Chapter 2: positions, against `layers/position.py`, `sines.py`, `grid_positions.py`, `rotary.py`."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from vitreous.course.check import ExerciseStep
from vitreous.layers.grid_positions import Relative
from vitreous.layers.patch import PrefixTokens
from vitreous.layers.position import Learned1d
from vitreous.layers.rotary import Rotary, RotaryConfig
from vitreous.layers.sines import Sines1d


def steps() -> Iterator[ExerciseStep]:
    yield added()
    yield from tables()
    yield relative()
    yield rotary()


def added() -> ExerciseStep:
    patches, token = torch.randn(6, 8), torch.randn(8)
    learned = Learned1d(8, (2, 3), 1)
    prefix = PrefixTokens(8, class_token=True, distillation_token=False, registers=0)
    learned.table.copy_(torch.randn(7, 8))
    prefix.get_parameter("class_token").copy_(token)
    table = learned.table
    return ExerciseStep(
        "add_positions",
        (patches, token, table),
        learned(prefix(patches[None]), 1, (2, 3))[0],
        {
            (
                "The class token stands behind the patches; it comes first.",
                "类别标记排在了图块后面；它应该排在最前。",
            ): torch.cat((patches, token[None])) + table,
            (
                "The class token has no position: row 0 of the table is its own.",
                "类别标记没有加位置编码：表的第 0 行是它的。",
            ): torch.cat((token[None], patches + table[1:])),
            (
                "The patches got rows 0 to N - 1 of the table: row 0 belongs to the class token.",
                "图块用了表的第 0 到 N - 1 行：第 0 行属于类别标记。",
            ): torch.cat((token[None], patches + table[:-1])),
            ("The positions are missing.", "漏掉了位置编码。"): torch.cat((token[None], patches)),
        },
        hint=(
            "Put the class token in front, then add the whole table.",
            "先把类别标记放在最前面，再加上整张表。",
        ),
    )


def table_of(count: int, dim: int, layout: str = "pairs", first: int = 0) -> Tensor:
    """The library's sines."""
    sines = Sines1d(layout)
    return sines(torch.zeros(1, first + count, dim), 0, (1, first + count))[0, first:]


def on_grid(height: int, width: int, dim: int) -> tuple[Tensor, Tensor]:
    """Half-tables for the column and for the row of each patch."""
    x, y = table_of(width, dim // 2), table_of(height, dim // 2)
    return x.repeat(height, 1), y.repeat_interleave(width, 0)


def tables() -> Iterator[ExerciseStep]:
    count, dim = 6, 16
    right = table_of(count, dim)
    places, channels = torch.arange(count)[:, None], torch.arange(0, dim, 2)
    too_fast = places / 10_000 ** (channels / 2 / dim)
    yield ExerciseStep(
        "sines",
        (count, dim),
        right,
        {
            (
                "All sines stand before all cosines; here they take turns.",
                "所有正弦排在了所有余弦之前；这里要交替排列。",
            ): table_of(count, dim, "halves"),
            (
                "Places are counted from 1; they begin with 0.",
                "位置从 1 数起了；应该从 0 开始。",
            ): table_of(count, dim, first=1),
            (
                "Sine and cosine are swapped: the even channels are the sines.",
                "正弦和余弦颠倒了：偶数通道是正弦。",
            ): right.unflatten(1, (-1, 2)).flip(2).flatten(1),
            (
                "The exponent is i / D, half of what it should be: i counts pairs of channels.",
                "指数用了 i / D，只有应有的一半：i 数的是成对的通道。",
            ): torch.stack((too_fast.sin(), too_fast.cos()), 2).flatten(1),
        },
        hint=(
            "angles (count, dim/2) = place / 10000^(2i/dim); then sine and cosine of each, in turn.",
            "角度 (count, dim/2) = 位置 / 10000^(2i/dim)；然后每个角度的正弦、余弦交替排列。",
        ),
    )
    x, y = on_grid(2, 3, dim)
    x_by_y = table_of(3, dim // 2).repeat_interleave(2, 0)
    y_by_x = table_of(2, dim // 2).repeat(3, 1)
    yield ExerciseStep(
        "sines_2d",
        (2, 3, dim),
        torch.cat((x, y), 1),
        {
            (
                "The row comes first; the first half should be the column's.",
                "行排在了前面；前一半应该是列的。",
            ): torch.cat((y, x), 1),
            (
                "The places stand column by column; they should stand row by row.",
                "位置是逐列排列的；应该逐行排列。",
            ): torch.cat((x_by_y, y_by_x), 1),
            (
                "The channels of one table of full width were cut in two: each half is a table of its own, "
                "of width dim/2, with all frequencies.",
                "把一张全宽的表切成了两半：每一半都应该是宽度为 dim/2、包含所有频率的表。",
            ): torch.cat(
                (
                    table_of(3, dim)[:, : dim // 2].repeat(2, 1),
                    table_of(2, dim)[:, dim // 2 :].repeat_interleave(3, 0),
                ),
                1,
            ),
        },
        hint=(
            "Two tables of width dim/2: repeat the columns' for each row, each of the rows' for all columns.",
            "两张宽度为 dim/2 的表：列的表对每一行重复，行的表里每一行对所有列重复。",
        ),
    )


def relative() -> ExerciseStep:
    height, width = 2, 3
    position = Relative(1, 1, (height, width), 0)
    flat: Tensor = position.blocks[0].table  # type: ignore[assignment]
    flat.copy_(torch.randn(len(flat), 1))
    table = flat.reshape(2 * height - 1, 2 * width - 1)
    right = position.score_bias(0, 0, (height, width))[0, 0]
    y, x = torch.arange(6) // width, torch.arange(6) % width
    dy, dx = y[:, None] - y, x[:, None] - x
    return ExerciseStep(
        "relative_bias",
        (table, height, width),
        right,
        {
            (
                "The offset is key minus query; it should be query minus key.",
                "用了键减查询；应该是查询减键。",
            ): right.T,
            (
                "Offset 0 should be in the middle of the table: add height - 1 and width - 1. Without them, "
                "negative offsets count from the table's end.",
                "偏移 0 应该在表的中央：要加上 height - 1 和 width - 1。不加的话，负的偏移会从表尾数起。",
            ): table[dy, dx],
            (
                "Distances without a sign: left and right, above and below are told apart.",
                "用了不带符号的距离：左和右、上和下是要区分的。",
            ): table[height - 1 + dy.abs(), width - 1 + dx.abs()],
            (
                "The patches are numbered column by column; they should be numbered row by row.",
                "图块是逐列编号的；应该逐行编号。",
            ): lambda: _by_columns(table, height, width),
        },
        hint=(
            "Find row and column of each patch, subtract them for all pairs, and index the table.",
            "先求每个图块的行和列，对所有的对相减，再用它们索引这张表。",
        ),
    )


def _by_columns(table: Tensor, height: int, width: int) -> Tensor:
    y, x = torch.arange(height * width) % height, torch.arange(height * width) // height
    return table[height - 1 + y[:, None] - y, width - 1 + x[:, None] - x]


def rotary() -> ExerciseStep:
    layer, x = Rotary(8, RotaryConfig()), torch.randn(6, 8)
    angles = layer.angles((2, 3))
    halves = Rotary(8, RotaryConfig(layout="halves"))
    cos, sin = angles.cos(), angles.sin()
    first, second = x.unflatten(1, (-1, 2)).unbind(2)

    def joined(one: Tensor, other: Tensor) -> Tensor:
        return torch.stack((one, other), 2).flatten(1)

    return ExerciseStep(
        "turn",
        (x, angles),
        layer.rotation(0, (2, 3))(x[None, None])[0, 0],
        {
            (
                "It turns the other way: check the sign of the sines.",
                "旋转方向反了：检查正弦的符号。",
            ): joined(first * cos + second * sin, second * cos - first * sin),
            (
                "Channels i and i + e/2 were turned together; here it is neighbours, 2i and 2i + 1.",
                "把通道 i 和 i + e/2 一起旋转了；这里是相邻的 2i 和 2i + 1。",
            ): halves.rotation(0, (2, 3))(x[None, None])[0, 0],
            (
                "Both sines have a plus: then it is no rotation. Lengths must stay as they are.",
                "两个正弦都用了加号：这样就不是旋转了。长度必须不变。",
            ): joined(first * cos + second * sin, second * cos + first * sin),
            (
                "The second coordinate is computed from the first one after it was changed.",
                "计算第二个坐标时，用了已经改过的第一个坐标。",
            ): lambda: joined(
                first * cos - second * sin, (first * cos - second * sin) * sin + second * cos
            ),
            (
                "All turned first channels stand before all second ones: put them in turn again.",
                "旋转后的第一个通道全排在了第二个通道之前：要重新交替排列。",
            ): torch.cat((first * cos - second * sin, first * sin + second * cos), 1),
        },
        hint=(
            "Take the even and the odd channels apart, turn, and put them together in turn.",
            "把偶数通道和奇数通道分开，旋转，再交替放回去。",
        ),
    )
