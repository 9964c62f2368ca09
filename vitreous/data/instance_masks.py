"""The masks of the objects in an image, as runs of pixels (COCO's RLE).

A dense mask has a byte for each pixel of the image, and an image may have hundreds of objects. So
masks stay encoded, a few hundred bytes each, while they are moved with their image: cropping,
flipping and resizing choose rows and columns. They are decoded one by one, at the size that is
needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vitreous.mask_parts import Runs, Size, area, coco_tools, compressed, encode


@dataclass(frozen=True, eq=False)
class InstanceMasks:
    """n masks (h, w)."""

    runs: tuple[bytes, ...]
    """Of each object, in the image as it is stored,"""
    stored: Size
    """whose size this is."""
    rows: Tensor | None = None
    """(h,): which rows of the stored image this one has; None: all, in their order,"""
    columns: Tensor | None = None
    """(w,): and which columns."""

    @classmethod
    def of(cls, masks: Any) -> InstanceMasks:
        """Of (n, h, w), True or another value than 0 inside; a tensor or an array."""
        values = masks.cpu().numpy() if isinstance(masks, Tensor) else np.asarray(masks)
        return cls(tuple(encode(mask)["counts"] for mask in values), values.shape[1:])

    @classmethod
    def of_numbers(cls, values: NDArray[Any], numbers: Sequence[int]) -> InstanceMasks:
        """Of (h, w) with a number in each pixel, the masks of these numbers. There may be
        thousands, so all runs are found at once."""
        height, width = values.shape
        flat = values.ravel(order="F")
        starts = np.concatenate(([0], np.flatnonzero(flat[1:] != flat[:-1]) + 1))
        stops, owners = np.append(starts[1:], len(flat)), flat[starts]
        order = np.argsort(owners, kind="stable")
        edges = np.searchsorted(owners[order], [*numbers, *(number + 1 for number in numbers)])
        runs = []
        for first, last in edges.reshape(2, -1).T.tolist():
            own = order[first:last]
            bounds = np.stack((starts[own], stops[own]), axis=1).ravel()
            runs.append(compressed(bounds, (height, width))["counts"])
        return cls(tuple(runs), (height, width))

    def __len__(self) -> int:
        return len(self.runs)

    def __getitem__(self, which: Tensor) -> InstanceMasks:
        """Of some objects, (n,) of bool."""
        return replace(self, runs=tuple(self.runs[i] for i in which.nonzero().flatten().tolist()))

    @property
    def size(self) -> Size:
        height, width = self.stored
        rows, columns = self.rows, self.columns
        return height if rows is None else len(rows), width if columns is None else len(columns)

    def taken(self, rows: Tensor, columns: Tensor) -> InstanceMasks:
        """Of an image that is made of these rows (h',) and columns (w',) of this one."""
        before = rows if self.rows is None else self.rows[rows]
        beside = columns if self.columns is None else self.columns[columns]
        return replace(self, rows=before, columns=beside)

    def dense(self) -> Tensor:
        """(n, h, w) of bool."""
        found = torch.zeros(len(self), *self.size, dtype=torch.bool)
        for number, each in enumerate(self.encoded()):
            mask = torch.from_numpy(decode(each))
            mask = mask if self.rows is None else mask[self.rows]
            found[number] = mask if self.columns is None else mask[:, self.columns]
        return found

    def encoded(self) -> list[Runs]:
        """In the image as it is stored."""
        return [{"size": list(self.stored), "counts": counts} for counts in self.runs]

    def areas(self) -> Tensor:
        """(n,): pixels of each, in the image as it is stored."""
        return torch.tensor([area(each) for each in self.encoded()], dtype=torch.float64)

    def boxes(self) -> Tensor:
        """(n, 4): left, top, right, bottom of each, in the image as it is stored."""
        return torch.tensor([box(each) for each in self.encoded()]).float().reshape(-1, 4)

    def truth(self, labels: Sequence[int], crowd: Sequence[bool]) -> dict[str, Any]:
        """With the class of each, as `Source.truth` gives instances."""
        return {
            "boxes": self.boxes(),
            "labels": torch.tensor(labels, dtype=torch.int64),
            "crowd": torch.tensor(crowd, dtype=torch.bool),
            "area": self.areas(),
            "masks": self,
        }


def decode(runs: Runs) -> NDArray[np.bool_]:
    """(h, w)"""
    return np.asarray(coco_tools().decode(runs), dtype=bool)


def box(runs: Runs) -> tuple[float, float, float, float]:
    """left, top, right, bottom; zeros where the mask is empty."""
    left, top, width, height = (float(value) for value in coco_tools().toBbox(runs))
    return left, top, left + width, top + height


def overlaps(found: Sequence[Runs], real: Sequence[Runs], crowd: Iterable[bool]) -> Tensor:
    """(n, m): IoU of each with each; with a crowd, the part of the first that is inside."""
    if not found or not real:
        return torch.zeros(len(found), len(real), dtype=torch.float64)
    values = coco_tools().iou(list(found), list(real), [int(each) for each in crowd])
    return torch.from_numpy(np.asarray(values, np.float64).reshape(len(found), len(real)))
