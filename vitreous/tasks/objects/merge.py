"""Objects that were found in overlapping tiles of an image, and in all of it, as the image's.

An object in the overlap of two tiles is seen twice, and one on a border in parts. NMS does not help
there: the IoU of an object with a part of it may be anything. But it is known what each tile has
seen. So, among boxes of one class (objects with masks are compared by these, see `Compare`):

- Two boxes are the same object if they *agree where both of their tiles look*: if their IoU is
  above `SAME` after both were clipped to the overlap of the two tiles. Of a whole object that is
  the usual IoU; of an object and its part, the clipped boxes are equal.
- A box at an inner border of its tile is *cut*: probably a part of an object. If another tile sees
  its place with something around it, that tile decides whether an object is there, and the cut box
  is dropped. Others belong to objects larger than the overlap. They count half, and are also
  suppressed by a whole box in which most of them lies. Those that remain and agree are joined to
  the box around them.
- The image as a whole is seen at a lower resolution than tiles. So boxes that a tile sees better
  are *coarse*: they are there for what the tiles have missed. They count half, and are also
  suppressed by a box with which they share most of the smaller of both. Boxes that no tile sees
  whole count like those of a tile.

What suppresses others takes over their largest score, as in NMS. Boxes of one and the same tile
never suppress each other: a DETR says everything once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from vitreous.data.objects.overlap import SMALLEST, area, intersection, iou
from vitreous.tasks.objects.boxes import suppressed_by
from vitreous.tasks.objects.metrics import BoxPrediction
from vitreous.tasks.tiles import Tile

SAME = 0.5
"""Overlap of two boxes above which they are the same object."""
EDGE = 0.02
"""How near to an inner border of a tile a box is cut by it, as a part of the tile's side."""
FLOOR = 0.01
"""Score below which boxes of tiles are left out: nearly all queries of many tiles mean nothing."""
WHOLE, COARSE, CUT = range(3)
WEIGHTS = torch.tensor([1.0, 0.5, 0.5])
"""What the score of each kind of box counts when it is decided which one is kept."""


class TileBoxes(NamedTuple):
    """The boxes of all tiles, the best first."""

    boxes: Tensor
    """(n, 4): left, top, right, bottom in pixels of the image"""
    labels: Tensor
    scores: Tensor
    queries: Tensor
    tile: Tensor
    """(n,): the tile in which each was found; 0 is the whole image"""
    kind: Tensor
    """(n,): WHOLE, COARSE or CUT"""
    number: Tensor
    """(n,): which it is of all that were given, tile by tile"""

    def take(self, which: Tensor) -> TileBoxes:
        return TileBoxes(*(column[which] for column in self))


class Overlap(NamedTuple):
    """How much objects overlap, (n, m) or what broadcasts to it."""

    agreement: Tensor
    """From 0 to 1, of what is where both of their tiles look."""
    common: Tensor
    """The area that both of a pair cover,"""
    one: Tensor
    other: Tensor
    """and that of each."""


Compare = Callable[[TileBoxes, Tensor, Tensor, Tensor], Overlap]
"""Compares n objects of one tile with m of another, by their places in the order, in the region
that both see (4,): xyxy."""


def by_boxes(every: TileBoxes, one: Tensor, other: Tensor, region: Tensor) -> Overlap:
    a, b = every.boxes[one][:, None], every.boxes[other]
    agreement = iou(_clipped(a, region), _clipped(b, region))
    return Overlap(agreement, intersection(a, b), area(a), area(b))


def merge(
    found: Sequence[BoxPrediction],
    tiles: Sequence[Tile],
    same: float = SAME,
    compare: Compare = by_boxes,
) -> tuple[BoxPrediction, list[list[int]]]:
    """The boxes of an image, and of each what it was made of, by their numbers in the order given:
    itself or the parts that were joined; where it is that of the whole image, then also the parts
    in tiles that it has suppressed.

    The first prediction is that of all of the image, the others are those of tiles, in pixels of
    the tile.
    """
    corners = [(t.left, t.top, t.left + t.width, t.top + t.height) for t in tiles]
    regions = torch.tensor(corners, dtype=found[0].boxes.dtype)
    every = collected(found, regions)
    pairs = torch.cat(list(same_objects(every, regions, same, compare)))
    both_cut = (every.kind[pairs] == CUT).all(dim=1)
    kept_for = suppressed_by(len(every.boxes), pairs[~both_cut])
    every = every._replace(scores=_largest(every.scores, kept_for))
    kept = kept_for == torch.arange(len(kept_for))
    every, first = joined(every, pairs[both_cut & kept[pairs].all(dim=1)])
    made_of = _members(torch.where(kept, first, len(kept)), every.number)
    finer = ~kept & (every.kind == CUT) & (every.tile[kept_for] == 0)
    suppressed = _members(torch.where(finer, kept_for, len(kept)), every.number)
    left = (kept & (first == torch.arange(len(kept)))).nonzero().flatten()
    left = left[every.scores[left].argsort(descending=True, stable=True)]
    parts = [made_of[i] + suppressed.get(i, []) for i in left.tolist()]
    every = every.take(left)
    boxes, labels, scores, queries, *_ = every
    return BoxPrediction(boxes, labels, scores, queries, found[0].size), parts


def collected(found: Sequence[BoxPrediction], regions: Tensor) -> TileBoxes:
    """What is not left to another tile. regions (tiles, 4): xyxy, the whole image first."""
    counts = torch.tensor([len(each.boxes) for each in found])
    tile = torch.arange(len(found)).repeat_interleave(counts)
    boxes = torch.cat([each.boxes for each in found]) + regions[tile, :2].repeat(1, 2)
    labels, scores, queries = (
        torch.cat([getattr(each, name) for each in found])
        for name in ("labels", "scores", "queries")
    )
    # What a tile sees with something around it: up to a little before its borders, but for those
    # that are the image's own, where nothing is cut.
    sides = regions[1:, 2:] - regions[1:, :2]
    into = (regions != regions[0]) * torch.tensor([1, 1, -1, -1])
    insides = regions + into * (EDGE * sides.max()).clamp(min=1)
    seen_whole = torch.zeros(len(boxes), dtype=torch.bool)
    for inside in insides[1:]:
        seen_whole |= _is_inside(boxes, inside)
    kind = torch.full_like(tile, WHOLE)
    kind[(tile == 0) & seen_whole] = COARSE
    kind[~_is_inside(boxes, insides[tile])] = CUT
    every = TileBoxes(boxes, labels, scores, queries, tile, kind, torch.arange(len(boxes)))
    every = every.take(((tile == 0) | (scores >= FLOOR)) & ~((kind == CUT) & seen_whole))
    counted = every.scores * WEIGHTS[every.kind]
    return every.take(counted.argsort(descending=True, stable=True))


def _is_inside(boxes: Tensor, regions: Tensor) -> Tensor:
    """(n, 4), (n, 4) or (4,) -> (n,)"""
    begin, end = boxes[:, :2] >= regions[..., :2], boxes[:, 2:] <= regions[..., 2:]
    return (begin & end).all(dim=1)


def same_objects(
    every: TileBoxes, regions: Tensor, same: float, compare: Compare
) -> Iterator[Tensor]:
    """(m, 2) each: pairs of boxes that stand for one object, the better box first."""
    members = [(every.tile == number).nonzero().flatten() for number in range(len(regions))]
    yield torch.zeros(0, 2, dtype=torch.int64)
    for p, q in intersection(regions[:, None], regions).triu(1).nonzero().tolist():
        both_see = _clipped(regions[p], regions[q])
        one, other = (
            tile[intersection(every.boxes[tile], both_see) > 0] for tile in (members[p], members[q])
        )
        if not len(one) or not len(other):
            continue
        overlap = compare(every, one, other, both_see)
        alike = overlap.agreement > same
        alike |= inside_a_better(every, one[:, None], other, overlap) > same
        alike &= every.labels[one][:, None] == every.labels[other]
        rows, columns = alike.nonzero().unbind(1)
        yield torch.stack((one[rows], other[columns]), dim=1).sort(dim=1).values


def inside_a_better(every: TileBoxes, one: Tensor, other: Tensor, overlap: Overlap) -> Tensor:
    """For objects by their places in the order, (n, 1) and (m,): what part of a cut one is inside
    of one that comes before it and is whole; for a coarse one, the part of the smaller of both."""
    first, last = torch.minimum(one, other), torch.maximum(one, other)
    smaller = torch.minimum(overlap.one, overlap.other)
    of_last = torch.where(one > other, overlap.one, overlap.other)
    size = torch.where(every.kind[last] == CUT, of_last, smaller)
    lesser = every.kind[first] < every.kind[last]
    return lesser * overlap.common / size.clamp(min=SMALLEST)


def _clipped(boxes: Tensor, region: Tensor) -> Tensor:
    """The part of boxes (…, 4) inside of a region (4,); without area outside of it."""
    first = torch.maximum(boxes[..., :2], region[:2])
    return torch.cat((first, torch.minimum(boxes[..., 2:], region[2:]).maximum(first)), dim=-1)


def joined(every: TileBoxes, pairs: Tensor) -> tuple[TileBoxes, Tensor]:
    """With the parts of an object, in pairs (m, 2), as the box around them all; and (n,): which
    part of each one's object is the first.

    A long object may lie in many tiles: parts that agree with parts of it belong to it as well.
    """
    count = len(every.boxes)
    graph = coo_array((torch.ones(len(pairs)), pairs.T), shape=(count, count))
    group = torch.from_numpy(connected_components(graph, directed=False)[1]).long()
    places = torch.arange(count)
    first = places.new_full((count,), count).scatter_reduce(0, group, places, "amin")[group]
    begin, end = every.boxes[:, :2], every.boxes[:, 2:]
    around = torch.cat((-_largest(-begin, first), _largest(end, first)), dim=1)
    return every._replace(boxes=around, scores=_largest(every.scores, first)), first


def _members(owner: Tensor, number: Tensor) -> dict[int, list[int]]:
    """By their owners (n,), the numbers (n,) of all, in their order."""
    found = defaultdict(list)
    for own, each in zip(owner.tolist(), number.tolist(), strict=True):
        found[own].append(each)
    return found


def _largest(values: Tensor, kept_for: Tensor) -> Tensor:
    """(n,) or (n, 2): of each, the largest value of those that it is kept for."""
    index = kept_for.reshape(-1, *[1] * (values.ndim - 1)).expand_as(values)
    return values.scatter_reduce(0, index, values, "amax")
