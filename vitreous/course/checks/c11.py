"""Chapter 11: windows, their mask and bias, and patch merging, against `models/swin.py`."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from vitreous.course.check import ExerciseStep
from vitreous.layers.grid_positions import relative_index
from vitreous.models.swin import PatchMerging, WindowAttention, windows_of


def cut(x: Tensor, side: int) -> Tensor:
    """(h, w, d) -> (windows, side², d), as the model cuts its maps."""
    attention = WindowAttention(x.shape[-1], 1, (side, side), shifted=False)
    size = (x.shape[0], x.shape[1])
    return attention.cut(x[None], size, attention.windows(size, x.device))


def may_attend(h: int, w: int, side: int, shift: int) -> Tensor:
    mask = windows_of((h, w), (side, side), (shift, shift), torch.device("cpu")).mask
    assert mask is not None
    return mask == 0


def merged(x: Tensor) -> Tensor:
    """What the norm of `PatchMerging` is given: four tokens in one."""
    layer, seen = PatchMerging(x.shape[-1], 1e-5), []
    layer.norm.register_forward_pre_hook(lambda _, given: seen.append(given[0][0]))
    layer(x[None])
    return seen[0]


def multiplications(h: int, w: int, dim: int, side: tuple[int, int]) -> int:
    """Of the layer itself, by torch's counter, which counts each with its addition as two."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    layer = WindowAttention(dim, 1, side, shifted=False).eval()
    counter = FlopCounterMode(display=False)
    with sdpa_kernel(SDPBackend.MATH), counter:
        layer(torch.zeros(1, h, w, dim))
    return counter.get_total_flops() // 2


def steps() -> Iterator[ExerciseStep]:
    x = torch.rand(4, 6, 3)
    parts = x.unflatten(1, (3, 2)).unflatten(0, (2, 2))  # (2, side, 3, side, d)
    yield ExerciseStep(
        "windows",
        (x, 2),
        cut(x, 2),
        {
            (
                "The map was reshaped without moving its axes: a window holds tokens of one line. "
                "Split height and width, then permute.",
                "直接 reshape 而没有交换维度：一个窗口里装的是同一行的标记。先拆分高和宽，再 permute。",
            ): x.reshape(6, 4, 3),
            (
                "The windows stand column by column; they should go row by row.",
                "窗口是逐列排列的；应该逐行排列。",
            ): parts.permute(2, 0, 1, 3, 4).reshape(6, 4, 3),
            (
                "Within a window the tokens stand column by column.",
                "窗口内部的标记是逐列排列的；应该逐行排列。",
            ): parts.permute(0, 2, 3, 1, 4).reshape(6, 4, 3),
            (
                "These are the tokens at equal places of all windows (a dilated grid): you took "
                "every second token, not neighbours.",
                "这是隔一个取一个的标记（空洞网格），不是相邻的标记。",
            ): x.unflatten(1, (2, 3)).unflatten(0, (2, 2)).permute(1, 3, 0, 2, 4).reshape(6, 4, 3),
        },
        hint=(
            "As patchify of chapter 1, with tokens in place of pixels and the channels last.",
            "与第 1 章的 patchify 相同，只是像素换成了标记，通道放在最后。",
        ),
    )
    right = may_attend(6, 6, 3, 1)
    back = may_attend(6, 6, 3, 2)  # what a shift the other way wraps
    yield ExerciseStep(
        "allowed",
        (6, 6, 3, 1),
        right,
        {
            (
                "Everything is allowed: the cyclic shift brings strips of opposite edges into one "
                "window, and they must not see each other.",
                "全部都允许了：循环移位把对边的条带放进了同一个窗口，它们之间不能互相注意。",
            ): torch.ones_like(right),
            (
                "This is the opposite: True should stand where attention is allowed.",
                "正好反了：允许注意的地方才是 True。",
            ): ~right,
            (
                "The strips are those of the other direction: the map moves up and left, so the "
                "first `shift` lines and columns are what is wrapped, to the last windows.",
                "方向反了：图是向上、向左移动的，被卷到最后一排窗口里的是最前面的 shift 行和列。",
            ): back,
            (
                "Only lines are told apart: the last window of each row has strips of columns, too.",
                "只区分了行：每一排的最后一个窗口里，列也是被卷过来的。",
            ): _strips(by_column=False),
            (
                "Only columns are told apart: the windows of the last row have strips of lines, too.",
                "只区分了列：最后一排窗口里，行也是被卷过来的。",
            ): _strips(by_row=False),
        },
        hint=(
            "Give each token of the map the number of its region before the shift (wrapped lines, "
            "wrapped columns), roll, cut into windows, and compare the numbers within each window.",
            "移位前给每个标记一个区域编号（会被卷过去的行、列与其余部分），再 roll，切成窗口，"
            "在窗口内两两比较编号。",
        ),
    )
    index = relative_index((3, 3))
    ys, xs = torch.arange(3).repeat_interleave(3), torch.arange(3).repeat(3)
    dy, dx = ys[:, None] - ys, xs[:, None] - xs
    yield ExerciseStep(
        "bias_rows",
        (3,),
        index,
        {
            (
                "The offsets are key - query; the paper's code takes query - key.",
                "这里算的是键减查询；应该是查询减键。",
            ): index.T.contiguous(),
            (
                "Offsets are not moved to begin at 0: negative rows count from the end of the table.",
                "偏移没有移到从 0 开始：负数会从表的末尾往前数。",
            ): dy * 5 + dx,
            (
                "A line of the table has 2·side - 1 offsets, not `side`.",
                "表的一行有 2·side - 1 个偏移，不是 side 个。",
            ): (dy + 2) * 3 + dx + 2,
            (
                "dx comes first here; rows of the table go by dy, then dx.",
                "这里 dx 在前；表应该先按 dy，再按 dx 编号。",
            ): (dx + 2) * 5 + dy + 2,
        },
        hint=(
            "dy and dx each go from -(side - 1) to side - 1; add side - 1 to both, and number them "
            "like pixels of a picture that is 2·side - 1 wide.",
            "dy 和 dx 的范围都是 -(side - 1) 到 side - 1；各加 side - 1，再像宽为 2·side - 1 的图片那样编号。",
        ),
    )
    corners = x.unflatten(1, (3, 2)).unflatten(0, (2, 2))  # (h/2, 2, w/2, 2, d)
    yield ExerciseStep(
        "merge",
        (x,),
        merged(x),
        {
            (
                "The order is top left, top right, bottom left, bottom right; the paper's code goes "
                "down first. With weights of a checkpoint this gives nonsense, without an error.",
                "顺序成了左上、右上、左下、右下；论文代码先向下。载入检查点时这会得到错误的结果，却不报错。",
            ): corners.permute(0, 2, 1, 3, 4).reshape(2, 3, 12),
            (
                "The four tokens are interleaved channel by channel; they should stand one behind "
                "the other.",
                "四个标记按通道交错了；应该一个接一个地拼接。",
            ): corners.permute(0, 2, 4, 3, 1).reshape(2, 3, 12),
            (
                "This is the mean: patch merging joins the four, so that nothing is lost before the "
                "linear layer.",
                "这是平均；图块合并是拼接，在线性层之前不丢任何东西。",
            ): corners.mean(dim=(1, 3)),
            (
                "Four tokens of one line were joined, not a square of 2 x 2.",
                "拼接的是同一行的四个标记，不是 2x2 的方块。",
            ): x.reshape(2, 3, 12),
        },
        hint=(
            "x[0::2, 0::2] is the top left token of each square of four.",
            "x[0::2, 0::2] 是每个 2x2 方块的左上标记。",
        ),
    )
    h, w, dim, side = 8, 12, 6, 4
    whole = multiplications(h, w, dim, (h, w))
    local = multiplications(h, w, dim, (side, side))
    linear, pairs = 4 * h * w * dim**2, 2 * (h * w) ** 2 * dim
    yield ExerciseStep(
        "cost",
        (h, w, dim, side),
        (whole, local),
        {
            (
                "In a window each query meets side² keys, not `side`.",
                "在窗口里，一个查询遇到 side² 个键，不是 side 个。",
            ): (whole, linear + 2 * side * h * w * dim),
            (
                "The linear layer behind the heads (W_O) is missing: it makes 4, with q, k and v.",
                "漏掉了多头之后的线性层 W_O：加上 q、k、v 一共是 4 个。",
            ): (whole - h * w * dim**2, local - h * w * dim**2),
            (
                "There are two products: queries with keys, and weights with values.",
                "有两次乘积：查询与键，权重与值。",
            ): (linear + pairs // 2, linear + side**2 * h * w * dim),
            (
                "This counts one window; the map has h·w / side² of them.",
                "这只算了一个窗口；整张图有 h·w / side² 个。",
            ): (whole, 4 * side**2 * dim**2 + 2 * side**4 * dim),
            (
                "These are FLOPs, twice the paper's number: it counts a multiplication with its "
                "addition once.",
                "这是 FLOPs，是论文数字的两倍：论文把一次乘法连同加法只算一次。",
            ): (2 * whole, 2 * local),
        },
        hint=(
            "Four linear layers of dim x dim for each token, and two products for each pair of "
            "query and key.",
            "每个标记有四个 dim x dim 的线性层；每一对查询和键有两次乘积。",
        ),
    )


def _strips(*, by_row: bool = True, by_column: bool = True) -> Tensor:
    """The mask for (6, 6, 3, 1), where strips of rows or of columns are forgotten."""
    windows = windows_of((6, 6), (3, 3), (1, 1), torch.device("cpu"))
    wrapped = torch.arange(6) < 1
    strip = wrapped[:, None] * 2 * by_row + wrapped[None] * by_column
    cut = strip.flatten()[windows.order].view(4, 9)
    return cut[:, :, None] == cut[:, None]
