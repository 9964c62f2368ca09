"""Positional encodings: those of the ViT paper (appendix D.4), of CPVT, EVA-02, DINOv3 and DETR.

An encoding acts at one of four places: `forward` on the tokens before the first block, `score_bias`
on the attention scores of a block, `rotation` on queries and keys (rotary), `after` on the tokens
behind a block. Grids are (height, width) in patches. Class, distillation and register tokens have
no place in the image; each encoding says what it does with them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from vitreous.layers.attention import Rotate
from vitreous.layers.resample import PLAIN, Grid, ResampledCache, resample_grid
from vitreous.layers.tap import show


class Position(nn.Module):
    """No positional encoding: tokens are a set. The base of the others."""

    any_size = True
    """Whether it takes other grids than the one it was made for without resampling parameters."""
    scaled = False
    """Whether a patch's encoding depends on how large the grid around it is."""
    on_tokens = True
    """Whether it acts on the tokens alone, before the blocks: then patches may be left out of
    them."""
    merges_from: int | None = 0
    """The first block in which tokens may be merged; None: every block needs their places."""
    on_grid: tuple[str, ...] = ()
    """Its parameters that depend on the grid,"""
    grid: Grid
    """and the grid that they are for."""
    at_run_time = "bicubic"
    """How they are resampled for images of another size."""

    def __init__(self) -> None:
        super().__init__()
        self.resampled = ResampledCache()

    def forward(self, x: Tensor, prefix: int, grid: Grid) -> Tensor:
        """x (b, prefix + gh·gw, d), before the first block."""
        return x

    def score_bias(self, block: int, prefix: int, grid: Grid) -> Tensor | None:
        """(1, heads, n, n) over all tokens, prefix included: added to the scores of block
        `block`."""
        return None

    def rotation(
        self, prefix: int, grid: Grid, device: torch.device | None = None
    ) -> Rotate | None:
        """What is done to queries and to keys, (b, heads, prefix + gh·gw, e), in every block.

        It must leave the prefix alone: its tokens have no place.
        """
        return None

    def after(self, block: int, x: Tensor, prefix: int, grid: Grid) -> Tensor:
        """x (b, prefix + gh·gw, d), behind block `block`; the prefix must be left alone."""
        return x

    def parts(self, block: int) -> list[nn.Module]:
        """Its modules that belong to block `block`, and learn at its rate."""
        return []

    def made_for(self, name: str, value: Tensor, source: Grid | None) -> Grid | None:
        """The grid that a value of the parameter `name` was made for, by its shape or because the
        user says so (`source`); None where its shape tells none."""
        raise NotImplementedError

    def resample(
        self, name: str, value: Tensor, source: Grid, mode: str, grid: Grid | None = None
    ) -> Tensor:
        """The parameter `name`, made for the grid `source`, for `grid` (this module's own)."""
        raise NotImplementedError

    def on(self, name: str, grid: Grid, value: Tensor) -> Tensor:
        """The parameter `name`, with this value, for images of any grid: exactly what importing at
        that size would give, computed once for each grid where no gradient is needed."""
        if grid == self.grid:
            return value

        def make() -> Tensor:
            return self.resample(name, value, self.grid, self.at_run_time, grid)

        return self.resampled.get(name, value, grid, make)


class Rows(NamedTuple):
    """How the rows of a position table are divided."""

    prefix: int
    grid: Grid


class Learned1d(Position):
    """A learned vector for each token in raster order: the paper's default.

    `rows` counts the tokens before the patches that have a row too (class and distillation token,
    or none of them; registers have none: they are learned vectors already).
    """

    any_size, scaled, on_grid = False, True, ("table",)

    def __init__(self, dim: int, grid: Grid, rows: int, *, antialias: bool = True) -> None:
        super().__init__()
        self.grid, self.rows = grid, rows
        self.at_run_time = "bicubic" if antialias else PLAIN
        self.table = nn.Parameter(torch.empty(rows + grid[0] * grid[1], dim))
        nn.init.trunc_normal_(self.table, std=0.02)

    def forward(self, x: Tensor, prefix: int, grid: Grid) -> Tensor:
        table = self.on("table", grid, self.table).to(x.dtype)
        if prefix == self.rows:
            return x + table
        if self.rows == 0:
            return _add_to_patches(x, prefix, table)
        before = x[:, : self.rows] + table[: self.rows]
        patches = x[:, prefix:] + table[self.rows :]
        return torch.cat((before, x[:, self.rows : prefix], patches), dim=1)

    def divide(
        self, count: int, prefixes: Iterable[int], source: Grid | None = None
    ) -> Rows | None:
        """Which of `count` rows of another table belong to tokens before the patches, and what grid
        the others form.

        Libraries give a row to the class and distillation token, or also to registers (`prefixes`
        has both numbers), or to none of them. Without a `source` grid the rest must be as many as
        here, or a square. None when there is no such division, or more than one.
        """
        readings: set[Rows] = set()
        for prefix in {self.rows, *prefixes, 0}:
            rest = count - prefix
            side = math.isqrt(max(rest, 0))
            for grid in (source,) if source is not None else (self.grid, (side, side)):
                if rest > 0 and rest == grid[0] * grid[1]:
                    readings.add(Rows(prefix, grid))
        usual = Rows(self.rows, self.grid)
        if usual in readings:
            return usual
        return readings.pop() if len(readings) == 1 else None

    def resample(
        self, name: str, value: Tensor, source: Grid, mode: str, grid: Grid | None = None
    ) -> Tensor:
        rows = value.shape[0] - source[0] * source[1]
        prefix, patches = value[:rows], value[rows:]
        patches = resample_grid(patches.unflatten(0, source), grid or self.grid, mode).flatten(0, 1)
        return torch.cat((prefix, patches))


class Learned2d(Position):
    """A learned half-vector for each row and one for each column, side by side.

    Tokens before the patches get nothing: they are learned vectors already.
    """

    any_size, scaled, on_grid = False, True, ("y", "x")

    def __init__(self, dim: int, grid: Grid) -> None:
        super().__init__()
        self.grid = grid
        self.y = nn.Parameter(torch.empty(grid[0], dim // 2))
        self.x = nn.Parameter(torch.empty(grid[1], dim // 2))
        nn.init.trunc_normal_(self.y, std=0.02)
        nn.init.trunc_normal_(self.x, std=0.02)

    def forward(self, x: Tensor, prefix: int, grid: Grid) -> Tensor:
        gh, gw = grid
        y, at_x = self.on("y", grid, self.y), self.on("x", grid, self.x)
        table = torch.cat((at_x[None].expand(gh, -1, -1), y[:, None].expand(-1, gw, -1)), dim=-1)
        return _add_to_patches(x, prefix, table.flatten(0, 1))

    def made_for(self, name: str, value: Tensor, source: Grid | None) -> Grid:
        gh, gw = self.grid
        return (len(value), gw) if name == "y" else (gh, len(value))

    def resample(
        self, name: str, value: Tensor, source: Grid, mode: str, grid: Grid | None = None
    ) -> Tensor:
        height, width = grid or self.grid
        size = (height, 1) if name == "y" else (width, 1)
        return resample_grid(value[:, None], size, mode).squeeze(1)


class Sines1d(Position):
    """Fixed sines over the raster order (Vaswani et al. 2017, section 3.5).

    layout: all sines, then all cosines (halves), or in turn as in the paper (pairs). Tokens before
    the patches get nothing, or the first places (prefixed).
    """

    def __init__(self, layout: str = "halves", *, prefixed: bool = False) -> None:
        super().__init__()
        self.layout, self.prefixed = layout, prefixed

    def forward(self, x: Tensor, prefix: int, grid: Grid) -> Tensor:
        before = prefix if self.prefixed else 0
        count, dim = before + grid[0] * grid[1], x.shape[-1]
        places = torch.arange(count, device=x.device, dtype=torch.float32)
        half = dim // 2
        frequencies = 10_000.0 ** -(torch.arange(half, device=x.device) / half)
        table = _sines(places, frequencies)  # (count, 2·half)
        if self.layout == "pairs":
            table = table.unflatten(1, (2, half)).transpose(1, 2).flatten(1)
        return _add_to_patches(x, prefix - before, table)


class Sines2d(Position):
    """Fixed sines over x and y, a quarter each of sin x, cos x, sin y, cos y. Prefix: nothing.

    The form of big_vision and SimpleViT (Beyer et al. 2022), whose frequencies run from 1 down to
    1/10,000 with both ends included.
    """

    def forward(self, x: Tensor, prefix: int, grid: Grid) -> Tensor:
        return _add_to_patches(x, prefix, grid_sines(x.shape[-1], grid, x.device))


class OffsetBias(nn.Module):
    """The biases of one block: `table` (offsets, heads), and three rows for tokens of no place."""

    def __init__(self, heads: int, grid: Grid, prefix: bool) -> None:
        super().__init__()
        offsets = (2 * grid[0] - 1) * (2 * grid[1] - 1)
        self.table = nn.Parameter(torch.empty(offsets + 3 * prefix, heads))
        nn.init.trunc_normal_(self.table, std=0.02)


class Relative(Position):
    """A learned bias for each offset between two patches, per block and head (BEiT).

    The rows of a block's table are the (query - key) offsets of a (2·gh-1, 2·gw-1) grid. Behind
    them, if there are tokens before the patches, are those for prefix to patch, patch to prefix and
    prefix to prefix.
    """

    any_size, scaled, on_tokens, merges_from = False, True, False, None

    def __init__(self, depth: int, heads: int, grid: Grid, prefix: int) -> None:
        super().__init__()
        self.grid, self.rows = grid, 3 if prefix else 0
        self.blocks = nn.ModuleList(OffsetBias(heads, grid, prefix > 0) for _ in range(depth))
        self.on_grid = tuple(f"blocks.{block}.table" for block in range(depth))

    def score_bias(self, block: int, prefix: int, grid: Grid) -> Tensor:
        own: Tensor = self.blocks[block].table  # type: ignore[assignment]
        table = self.on(self.on_grid[block], grid, own)
        index = relative_index(grid, table.device)
        n = index.shape[0]
        between = table[index.flatten()].view(n, n, -1).permute(2, 0, 1)  # (heads, n, n)
        if not self.rows:
            return between[None]
        to_patch, to_prefix, among = table[-3:, :, None, None].unbind(0)  # (heads, 1, 1) each
        top = torch.cat((among.expand(-1, prefix, prefix), to_patch.expand(-1, prefix, n)), 2)
        bottom = torch.cat((to_prefix.expand(-1, n, prefix), between), 2)
        return torch.cat((top, bottom), 1)[None]

    def parts(self, block: int) -> list[nn.Module]:
        return [self.blocks[block]]

    def made_for(self, name: str, value: Tensor, source: Grid | None) -> Grid | None:
        offsets = len(value) - self.rows
        half = (math.isqrt(max(offsets, 0)) + 1) // 2
        for grid in (source,) if source is not None else (self.grid, (half, half)):
            if offsets == (2 * grid[0] - 1) * (2 * grid[1] - 1):
                return grid
        return None

    def resample(
        self, name: str, value: Tensor, source: Grid, mode: str, grid: Grid | None = None
    ) -> Tensor:
        before, after = ((2 * h - 1, 2 * w - 1) for h, w in (source, grid or self.grid))
        offsets = before[0] * before[1]
        resampled = resample_grid(value[:offsets].unflatten(0, before), after, mode)
        return torch.cat((resampled.flatten(0, 1), value[offsets:]))


class Conditional(Position):
    """The positional encoding generator of CPVT (Chu et al. 2021, section 3.2).

    A depthwise 3x3 convolution over the grid, added to the patches behind the first block: a patch
    learns its place from its neighbours and from the zeros around the image. It takes any grid.
    Tokens before the patches are left alone.
    """

    on_tokens, merges_from = False, 1

    def __init__(self, dim: int, kernel: int = 3) -> None:
        super().__init__()
        self.generator = nn.Conv2d(dim, dim, kernel, padding=kernel // 2, groups=dim)
        nn.init.normal_(self.generator.weight, std=(2 / kernel**2) ** 0.5)
        nn.init.zeros_(self.generator.bias)  # type: ignore[arg-type]

    def after(self, block: int, x: Tensor, prefix: int, grid: Grid) -> Tensor:
        if block != 0:
            return x
        before, patches = x[:, :prefix], x[:, prefix:]
        on_grid = patches.transpose(1, 2).unflatten(2, grid)
        patches = patches + self.generator(on_grid).flatten(2).transpose(1, 2)
        return show(self, "conditional", torch.cat((before, patches), dim=1))


class Rotary(Position):
    """Queries and keys turn with the place of their patch (Su et al. 2021; over two axes: EVA-02).

    Pairs of channels are turned by an angle that grows with the coordinate, the first half of them
    with y, the other with x (or the other way round, `order`), at frequencies from 1 down to nearly
    1 / base. The product of a query and a key then knows their offset. The prefix is not turned.

    coordinates: of patches, counted from `offset` on, as if the image had `reference` patches where
        that is given (EVA-02), so that a finer grid covers the same range; or "centred": of patch
        centres, from -2π to 2π over the image, whatever its size and aspect ratio (DINOv3).
    layout: whether a pair are two neighbouring channels, or channels of the two halves of a head.
    """

    on_tokens, merges_from = False, None

    def __init__(
        self,
        head_dim: int,
        *,
        base: float = 10_000.0,
        coordinates: str = "patches",
        offset: float = 0.0,
        reference: Grid | None = None,
        order: str = "yx",
        layout: str = "pairs",
    ) -> None:
        super().__init__()
        self.head_dim, self.base, self.coordinates = head_dim, base, coordinates
        self.offset, self.reference, self.order, self.layout = offset, reference, order, layout
        self.scaled = coordinates == "centred" or reference is not None

    def rotation(self, prefix: int, grid: Grid, device: torch.device | None = None) -> Rotate:
        pairs = self.layout == "pairs"
        angles = self.angles(grid, device)  # (n, e/2)
        angles = angles.repeat_interleave(2, dim=1) if pairs else angles.repeat(1, 2)
        # An angle of 0 leaves the prefix exactly as it is, without taking the tokens apart.
        angles = torch.cat((angles.new_zeros(prefix, angles.shape[1]), angles))
        cos, sin = angles.cos(), angles.sin()

        def rotate(x: Tensor) -> Tensor:
            if pairs:
                first, second = x.unflatten(-1, (-1, 2)).unbind(-1)
                across = torch.stack((-second, first), dim=-1).flatten(-2)
            else:
                first, second = x.chunk(2, dim=-1)
                across = torch.cat((-second, first), dim=-1)
            return (x * cos + across * sin).to(x.dtype)

        return rotate

    def periods(self) -> Tensor:
        """(e/4,), the reciprocals of the frequencies, as DINOv3's files have them."""
        quarter = self.head_dim // 4
        return self.base ** (torch.arange(quarter) / quarter)

    def angles(self, grid: Grid, device: torch.device | None = None) -> Tensor:
        """(gh·gw, e/2), in float32 whatever the model computes in."""
        quarter = self.head_dim // 4
        frequencies = self.base ** -(torch.arange(quarter, device=device) / quarter)
        gh, gw = grid

        def along(axis: int) -> Tensor:  # (count, e/4)
            count = grid[axis]
            places = torch.arange(count, device=device, dtype=torch.float32)
            if self.coordinates == "centred":
                places = (2 * (places + 0.5) / count - 1) * (2 * math.pi)
            else:
                places = places + self.offset
                if self.reference is not None:
                    places = places / count * self.reference[axis]
            return places[:, None] * frequencies

        y = along(0)[:, None].expand(-1, gw, -1)
        x = along(1)[None].expand(gh, -1, -1)
        return torch.cat((y, x) if self.order == "yx" else (x, y), dim=-1).flatten(0, 1)


class LearnedRotary(Learned1d):
    """A learned table on the tokens, and rotary positions on queries and keys (EVA-02)."""

    on_tokens, merges_from = False, None

    def __init__(
        self, dim: int, grid: Grid, rows: int, rotary: Rotary, *, antialias: bool = True
    ) -> None:
        super().__init__(dim, grid, rows, antialias=antialias)
        self.rotary = rotary

    def rotation(self, prefix: int, grid: Grid, device: torch.device | None = None) -> Rotate:
        return self.rotary.rotation(prefix, grid, device)


def relative_index(grid: Grid, device: torch.device | None = None) -> Tensor:
    """(n, n): for query i and key j, where their offset stands in a flat (2h-1)·(2w-1) table."""
    gh, gw = grid
    ys = torch.arange(gh, device=device).repeat_interleave(gw)
    xs = torch.arange(gw, device=device).repeat(gh)
    dy = ys[:, None] - ys[None] + gh - 1
    dx = xs[:, None] - xs[None] + gw - 1
    return dy * (2 * gw - 1) + dx


def image_sines(
    rows: Tensor, columns: Tensor, grid: Grid, dim: int, temperature: float = 10_000.0
) -> Tensor:
    """Fixed sines over the height and width of each image (DETR section 3.2 and its code).

    rows, columns (b,): how many positions of the grid, from the top and the left, are image; the
    others are padding -> (b, gh·gw, dim): half of the channels for y, half for x, in each half
    sines and cosines in turn. Positions are counted from 1 and divided by the image's own height
    and width, so that they run to 2π whatever its size and padding. The frequencies run from 1 down
    to 1/temperature.
    """
    half = dim // 2
    steps = torch.arange(half // 2, device=rows.device) / (half // 2)

    def sines(length: int, inside: Tensor) -> Tensor:  # (b, length, half)
        places = torch.arange(1, length + 1, device=rows.device, dtype=torch.float32)
        places = places / (inside[:, None] + 1e-6) * (2 * math.pi)
        angles = places[:, :, None] / temperature**steps
        return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(2)

    gh, gw = grid
    at_y = sines(gh, rows)[:, :, None].expand(-1, -1, gw, -1)
    at_x = sines(gw, columns)[:, None].expand(-1, gh, -1, -1)
    return torch.cat((at_y, at_x), dim=-1).flatten(1, 2)


def grid_sines(
    dim: int, grid: Grid, device: torch.device | None = None, *, ends: bool = True
) -> Tensor:
    """(gh·gw, dim): a quarter each of sin x, cos x, sin y, cos y, at frequencies from 1 down to
    1/10,000; without `ends` the last one is left out (MAE)."""
    quarter = dim // 4
    steps = torch.arange(quarter, device=device) / max(quarter - ends, 1)
    frequencies = 10_000.0**-steps
    ys, xs = (torch.arange(size, device=device, dtype=torch.float32) for size in grid)
    at_y = _sines(ys, frequencies)[:, None].expand(-1, grid[1], -1)
    at_x = _sines(xs, frequencies)[None].expand(grid[0], -1, -1)
    return torch.cat((at_x, at_y), dim=-1).flatten(0, 1)


def _sines(places: Tensor, frequencies: Tensor) -> Tensor:
    """(n,), (k,) -> (n, 2k): all sines, then all cosines."""
    angles = places[:, None] * frequencies
    return torch.cat((angles.sin(), angles.cos()), dim=-1)


def _add_to_patches(x: Tensor, prefix: int, table: Tensor) -> Tensor:
    table = table.to(x.dtype)
    if prefix == 0:
        return x + table
    return torch.cat((x[:, :prefix], x[:, prefix:] + table), dim=1)
