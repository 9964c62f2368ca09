"""The outline of a mask as one polygon, for formats that have one for each object (YOLO).

It goes along the edges of pixels, so that nothing is lost. A mask may have several parts, and holes
in them: all of their outlines become one polygon, connected by lines that go there and back at the
same place and so enclose nothing. Whoever fills it by the even-odd rule, as readers of polygons do,
gets the mask.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

Points = NDArray[np.int64]
"""(n, 2): x and y of the corners of pixels, from 0 to the image's width and height."""


def polygon(mask: NDArray[np.bool_]) -> Points:
    """(h, w) -> its outline; without points if the mask is empty."""
    loops = sorted(outlines(mask), key=len, reverse=True)
    if len(loops) < 2:
        return loops[0] if loops else np.zeros((0, 2), np.int64)
    longest, path, last = loops[0], [], 0
    for here, loop in sorted(_bridges(longest, loops[1:]), key=itemgetter(0)):
        path += [longest[last : here + 1], loop, loop[:1]]
        last = here
    return np.concatenate((*path, longest[last:]))


def _bridges(longest: Points, others: Sequence[Points]) -> Iterator[tuple[int, Points]]:
    """To which point of the longest each of the others is connected, and that from its nearest
    point on."""
    tree = KDTree(longest)
    for loop in others:
        far, near = tree.query(loop)
        first = int(far.argmin())
        yield int(near[first]), np.roll(loop, -first, axis=0)


def outlines(mask: NDArray[np.bool_]) -> list[Points]:
    """Of every part and every hole, without points inside of straight lines; the first point is not
    repeated."""
    padded = np.pad(mask, 1).astype(np.int8)
    follows: dict[tuple[int, int], list[tuple[int, int]]] = {}
    # Lines between a pixel inside and one outside, with the inside on their right.
    for axis, along in enumerate(((1, 0), (0, 1))):
        step = np.diff(padded, axis=axis)
        y, x = np.nonzero(step)
        ends = np.stack((x, y), axis=1)
        begins = ends - along
        forward = ((step[y, x] > 0) == (axis == 0))[:, None]
        first, last = np.where(forward, begins, ends), np.where(forward, ends, begins)
        for at, to in zip(first.tolist(), last.tolist(), strict=True):
            follows.setdefault((at[0], at[1]), []).append((to[0], to[1]))
    found = []
    while follows:
        at = start = next(iter(follows))
        loop: list[tuple[int, int]] = []
        while not loop or at != start:
            loop.append(at)
            ways = follows[at]  # two where pixels touch at a corner: either encloses the same
            at = ways.pop()
            if not ways:
                del follows[loop[-1]]
        found.append(_corners(np.array(loop)))
    return found


def _corners(loop: Points) -> Points:
    """Where the direction changes."""
    before, after = loop - np.roll(loop, 1, axis=0), np.roll(loop, -1, axis=0) - loop
    return loop[(before != after).any(axis=1)]
