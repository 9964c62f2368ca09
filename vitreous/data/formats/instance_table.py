"""The objects of a large file as columns of numbers, a sixth of what they take as Python's objects.

COCO's files have millions of objects, nearly all of them written as COCO does it. Those are rows of
a table; what is odd is kept as it is beside them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from vitreous.data.formats.instances import LARGEST, THIN, Instance
from vitreous.labels import IGNORED, External


class InstanceTable:
    """Filled by `add`, in the order of the file; `close` sorts it by images."""

    def __init__(self, categories: Mapping[int, str]) -> None:
        self.names = categories
        self._whole, self._numbers = array("q"), array("d")
        self._odd: dict[int, Instance] = {}

    def add(
        self, image: int, id: int, category: int, crowd: int, box: Sequence[float], area: float
    ) -> None:
        """box: left, top, width, height."""
        self._whole.extend((image, id, category, crowd))
        self._numbers.extend((*box, area))

    def add_odd(self, image: int, instance: Instance) -> None:
        """An object with something that a row cannot hold."""
        self._odd[len(self._whole) // 4] = instance
        self.add(image, 0, 0, 0, (0, 0, 0, 0), 0)

    def close(self) -> Iterator[tuple[int, TableRows]]:
        """Each image that has objects, with them. Nothing can be added any more."""
        whole = np.frombuffer(self._whole, np.int64).reshape(-1, 4)
        numbers = np.frombuffer(self._numbers, np.float64).reshape(-1, 5)
        order = np.argsort(whole[:, 0], kind="stable")
        self.images, self.ids = whole[order, 0], whole[order, 1]
        self.categories = whole[order, 2]
        self.crowds = whole[order, 3].astype(bool)
        self.boxes, self.areas = numbers[order, :4], numbers[order, 4]
        self.boxes[:, 2:] += self.boxes[:, :2]
        place = np.argsort(order)
        self.odd = {int(place[old]): instance for old, instance in self._odd.items()}
        self.sound: NDArray[np.bool_] | None = None
        del whole, numbers, self._whole, self._numbers, self._odd
        found, starts, counts = np.unique(self.images, return_index=True, return_counts=True)
        for image, start, count in zip(*map(list, (found, starts, counts)), strict=True):
            yield int(image), TableRows(self, int(start), int(start + count))

    def find_sound(self, classes: Mapping[External, int]) -> NDArray[np.bool_]:
        """The rows that need no further check: they are used, and are boxes with an area that no
        other object of the image has."""
        left, top, right, bottom = self.boxes.T
        sound: NDArray[np.bool_] = np.abs(self.boxes).sum(axis=1) < LARGEST
        sound &= np.minimum(right - left, bottom - top) >= THIN
        used = [id for id, name in self.names.items() if classes.get(name, IGNORED) != IGNORED]
        sound &= np.isin(self.categories, used)
        order = np.lexsort((left, top, right, bottom, self.images))
        boxes, images = self.boxes[order], self.images[order]
        same = (boxes[1:] == boxes[:-1]).all(axis=1) & (images[1:] == images[:-1])
        sound[order[1:][same]] = False
        sound[list(self.odd)] = False
        return sound


class TableRows(Sequence[Instance]):
    """The objects of one image."""

    __slots__ = ("start", "stop", "table")

    def __init__(self, table: InstanceTable, start: int, stop: int) -> None:
        self.table, self.start, self.stop = table, start, stop

    def __len__(self) -> int:
        return self.stop - self.start

    @overload
    def __getitem__(self, index: int) -> Instance: ...
    @overload
    def __getitem__(self, index: slice) -> list[Instance]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return list(self)[index]

    def __iter__(self) -> Iterator[Instance]:
        table, rows = self.table, slice(self.start, self.stop)
        columns = zip(
            table.ids[rows].tolist(),
            table.categories[rows].tolist(),
            table.boxes[rows].tolist(),
            table.crowds[rows].tolist(),
            table.areas[rows].tolist(),
            strict=True,
        )
        for at, (id, category, box, crowd, area) in enumerate(columns, self.start):
            odd = table.odd.get(at)
            corners: Any = tuple(box)
            yield odd or Instance(f"annotation {id}", table.names[category], corners, crowd, area)

    def all_sound(self, classes: Mapping[External, int]) -> bool:
        """Whether none of them needs a further check, where `classes` are those of the data."""
        if self.table.sound is None:
            self.table.sound = self.table.find_sound(classes)
        return bool(self.table.sound[self.start : self.stop].all())

    @property
    def boxes(self) -> NDArray[np.float64]:
        """(n, 4), where all of them are sound."""
        return self.table.boxes[self.start : self.stop]
