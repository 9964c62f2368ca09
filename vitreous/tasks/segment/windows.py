"""A model that sees a window, on images of any size: windows go over the image and are blended.

Memory is bounded by the window and the image's width, not by the image: rows come out as soon as
no further window changes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.tasks.tiles import starts

Grid = tuple[int, int]
Run = Callable[[Tensor], Tensor]
"""(b, c, *window) -> (b, k, *window)"""

OVERLAP = 0.25
"""Part of a window that it shares with the next one."""


def ramp(window: int, overlap: float = OVERLAP) -> Tensor:
    """(window,): how much each place of a window counts: less towards its ends, where the model
    sees little around, so that one window fades into the next."""
    width = max(round(window * overlap), 1)
    rising = (torch.arange(window) + 0.5) / width
    return torch.minimum(rising, rising.flip(0)).clamp(max=1.0)


def sums(length: int, window: int, weights: Tensor) -> Tensor:
    """(length,): the weights of all windows over each place."""
    total = torch.zeros(max(length, window))
    for start in starts(length, window, OVERLAP):
        total[start : start + window] += weights
    return total


@torch.inference_mode()
def bands(run: Run, image: Tensor, window: Grid, batch: int = 8) -> Iterator[Tensor]:
    """The output of `run` for an image (c, h, w), in bands of rows from the top: (k, rows, w) each.

    An image that fits the window is run as it is, padded with zeros at the bottom and right; where
    windows overlap, their mean counts, by `ramp`.
    """
    (height, width), (wh, ww) = image.shape[1:], window
    missing = (0, max(ww - width, 0), 0, max(wh - height, 0))
    image = F.pad(image, missing) if any(missing) else image
    tops, lefts = starts(height, wh, OVERLAP), starts(width, ww, OVERLAP)
    if len(tops) == len(lefts) == 1:
        yield run(image[None])[0, :, :height, :width]
        return
    rows, columns = ramp(wh).to(image.device), ramp(ww).to(image.device)
    row_sums = sums(height, wh, ramp(wh)).to(image.device)
    column_sums = sums(width, ww, ramp(ww)).to(image.device)
    weights = rows[:, None] * columns
    pending: Tensor | None = None  # (k, wh, w): weighted sums over the rows from `top` on
    for number, top in enumerate(tops):
        for first in range(0, len(lefts), batch):
            some = lefts[first : first + batch]
            cut = [image[:, top : top + wh, left : left + ww] for left in some]
            outputs = run(torch.stack(cut)).float() * weights
            if pending is None:
                pending = outputs.new_zeros(outputs.shape[1], wh, image.shape[2])
            for left, output in zip(some, outputs, strict=True):
                pending[:, :, left : left + ww] += output
        assert pending is not None
        stop = tops[number + 1] if number + 1 < len(tops) else height
        done = stop - top
        norm = row_sums[top:stop, None] * column_sums
        yield (pending[:, :done] / norm)[:, :, :width]
        pending = torch.cat((pending[:, done:], torch.zeros_like(pending[:, :done])), dim=1)


def enlarged_rows(scores: Tensor, size: Grid, first: int, last: int) -> Tensor:
    """Rows `first` to `last` of (k, h, w) resized bilinearly to `size`: (k, rows, size[1])."""
    height, width = scores.shape[1:]
    places = (torch.arange(first, last, device=scores.device) + 0.5) * (height / size[0]) - 0.5
    places = places.clamp(0, height - 1)
    above = places.floor().long()
    below = (above + 1).clamp(max=height - 1)
    share = (places - above)[:, None]
    rows = torch.lerp(scores[:, above], scores[:, below], share)
    if width == size[1]:
        return rows
    resized = F.interpolate(rows[None], (last - first, size[1]), mode="bilinear")
    return resized[0]
