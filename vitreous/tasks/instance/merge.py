"""Masks that were found in overlapping tiles of an image, and in all of it, as those of the image.

Which of them are the same object is decided as for boxes (`objects/merge.py`), but by the masks:
the box of a part of a curved or diagonal object may look nothing like what another tile sees of it.
Two cut parts are also the same object if most of the smaller one is in the other: one tile may see
how two branches meet, and the next one only the branches. Masks that have only a few cells of their
grid are compared by their boxes, which are more exact.

The mask of an object that was joined from parts is their union. One that only the whole image shows
completely is coarse: where tiles see a part of it, theirs counts.

Of a tile nothing is kept but the objects that may count, with the cells around them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter

import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.mask_parts import MaskPart
from vitreous.tasks.objects.merge import CUT, FLOOR, Overlap, TileBoxes, by_boxes, merge
from vitreous.tasks.objects.metrics import BoxPrediction
from vitreous.tasks.tiles import Tile

REGION = attrgetter("region")
ENOUGH = 16
"""Cells of a mask by which it can be compared with another."""


def merge_masks(
    outputs: Iterable[BoxPrediction], tiles: Sequence[Tile], same: float
) -> BoxPrediction:
    """See `merge`: the first output is that of the whole image."""
    found: list[BoxPrediction] = []
    masks: list[MaskPart] = []
    for each, tile in zip(outputs, tiles, strict=True):
        kept = each.take(each.scores >= FLOOR) if found else each
        region = (tile.top, tile.left, tile.height, tile.width)
        for parts in kept.masks or ():  # one: that of the tile
            masks += [part.trimmed()._replace(region=region) for part in parts]
        found.append(kept._replace(masks=None))
    merged, members = merge(found, tiles, same, partial(by_masks, masks))
    size = found[0].size
    chosen = [_agreeing([masks[i] for i in numbers], size, same) for numbers in members]
    return merged._replace(masks=chosen)


def by_masks(
    masks: Sequence[MaskPart], every: TileBoxes, one: Tensor, other: Tensor, region: Tensor
) -> Overlap:
    """As `by_boxes`, at points that are as dense as the cells of the other tile."""
    mine, theirs = ([masks[i] for i in every.number[which].tolist()] for which in (one, other))
    shape = _points(theirs[0], region)
    a, b = (_sampled(parts, region, shape).flatten(1).float() for parts in (mine, theirs))
    left, top, right, bottom = region.tolist()
    pixels = (right - left) * (bottom - top) / (shape[0] * shape[1])  # at each point
    common, seen_a, seen_b = a @ b.T, a.sum(dim=1)[:, None], b.sum(dim=1)  # in points
    smaller, larger = torch.minimum(seen_a, seen_b), torch.maximum(seen_a, seen_b)
    both_cut = (every.kind[one][:, None] == CUT) & (every.kind[other] == CUT)
    size = torch.where(both_cut & (smaller >= ENOUGH), smaller, seen_a + seen_b - common)
    area_a, area_b = (torch.tensor([_pixels(part) for part in parts]) for parts in (mine, theirs))
    agreement = common / size.clamp(min=1)
    measured = Overlap(agreement, common * pixels, area_a[:, None], area_b)
    pairs = zip(measured, by_boxes(every, one, other, region), strict=True)
    return Overlap(*(torch.where(larger >= ENOUGH, mask, box) for mask, box in pairs))


def _points(part: MaskPart, region: Tensor) -> tuple[int, int]:
    """Rows and columns of points in a region, so that each cell of a part has about one."""
    left, top, right, bottom = region.tolist()
    rows, columns = part.grid
    height, width = part.region[2:]
    down, across = (bottom - top) * rows / height, (right - left) * columns / width
    return max(round(down), 1), max(round(across), 1)


def _sampled(parts: Sequence[MaskPart], region: Tensor, shape: tuple[int, int]) -> Tensor:
    """(n, *shape) of bool: masks of one tile at points of a region, as they are enlarged."""
    cells = torch.stack([torch.from_numpy(part.cells()) for part in parts]).float()
    top, left, height, width = parts[0].region
    begin = (region[:2] - torch.tensor([left, top])) / torch.tensor([width, height])
    end = (region[2:] - torch.tensor([left, top])) / torch.tensor([width, height])
    across, down = (
        (begin[i] + (end[i] - begin[i]) * (torch.arange(count) + 0.5) / count) * 2 - 1
        for i, count in enumerate(reversed(shape))
    )
    grid = torch.stack((across.expand(shape), down[:, None].expand(shape)), dim=-1).float()
    found = F.grid_sample(cells[None], grid[None], padding_mode="border", align_corners=False)
    return found[0] > 0


def _pixels(part: MaskPart) -> float:
    rows, columns = part.grid
    height, width = part.region[2:]
    return float((part.logits > 0).sum()) * height * width / (rows * columns)


def _agreeing(
    parts: Sequence[MaskPart], size: tuple[int, int], same: float
) -> tuple[MaskPart, ...]:
    """Of a mask in the whole image and its parts in tiles, those of tiles that agree with it."""
    first, *others = parts
    if first.region[2:] != size:
        return tuple(parts)
    kept = [first]
    for (top, left, height, width), some in groupby(sorted(others, key=REGION), REGION):
        in_tile = list(some)
        region = torch.tensor([left, top, left + width, top + height])
        a, b = (_sampled(each, region, in_tile[0].grid).any(0) for each in ([first], in_tile))
        if float((a & b).sum()) > same * float((a | b).sum()):
            kept += in_tile
    return tuple(kept)
