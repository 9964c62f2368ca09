"""The label map: class indices, the ids that the data uses, and class names.

The model numbers its classes 0, 1, 2 … The data may use folder names, ids with gaps or ids from 1.
Training, evaluation, prediction and export all use this object, and the run folder stores it. The
classes of two data sets are matched by name, or by an id that is text (a WordNet id), never by
number.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from vitreous.errors import DataError, Word, advice, did_you_mean

External = int | str
IGNORED = -1
"""The value of ignored pixels in a mask: no loss, no metric."""


@dataclass(frozen=True)
class LabelMap:
    """`names[i]` is the name of class i, `external[i]` its id in the data."""

    names: tuple[str, ...]
    external: tuple[External, ...]
    ignored: tuple[External, ...] = ()
    """Ids of unlabelled pixels, which are not a class."""

    def __post_init__(self) -> None:
        if not self.names:
            raise DataError("there are no classes")
        if len(self.names) != len(self.external):
            raise DataError(f"{len(self.names)} names of classes for {len(self.external)} ids")
        for what, values in (("name", self.names), ("id", self.external)):
            twice = sorted(str(value) for value, count in Counter(values).items() if count > 1)
            if twice:
                raise DataError(f"two classes have the same {what}: {', '.join(twice)}")
        both = [str(id) for id in self.ignored if id in self._by_id]
        if both:
            raise DataError(f"{', '.join(both)} cannot be a class and ignored")

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def _by_id(self) -> dict[External, int]:
        return {external: number for number, external in enumerate(self.external)}

    @cached_property
    def _by_name(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names)}

    @classmethod
    def of_names(cls, names: Iterable[str]) -> LabelMap:
        """Classes known by name only, in natural order (2 before 10)."""
        ordered = tuple(sorted(set(names), key=natural))
        return cls(ordered, ordered)

    @classmethod
    def of_ids(cls, ids: Iterable[int], names: Mapping[int, str] | None = None) -> LabelMap:
        """Classes in the order of their ids; a class without a name is called by its id."""
        ordered = tuple(sorted(set(ids)))
        return cls(tuple((names or {}).get(i, str(i)) for i in ordered), ordered)

    @property
    def numbers(self) -> tuple[int, ...]:
        """A whole number for each class, for files that know no names: its id in the data, or where
        that is text, the smallest number that is free."""
        taken = {id for id in self.external if isinstance(id, int)}
        free = (number for number in itertools.count() if number not in taken)
        return tuple(id if isinstance(id, int) else next(free) for id in self.external)

    def by_external(self) -> dict[External, int]:
        """The class index of each id in the data; IGNORED for those that are not a class."""
        return self._by_id | dict.fromkeys(self.ignored, IGNORED)

    def internal(self, external: External) -> int:
        """The class index of an id in the data."""
        try:
            return self._by_id[external]
        except KeyError:
            hint = did_you_mean(str(external), map(str, self.external))
            raise DataError(f"unknown class {external!r}{hint}") from None

    def indices_of(
        self, other: LabelMap, *, what: str = "the data", unused: Container[int] = ()
    ) -> tuple[int, ...]:
        """For each class of `other`, our class of the same name. An unknown name is an error, or
        IGNORED if the class is among the `unused`."""
        ours = [self.named(name) for name in other.names]
        pairs = zip(other.names, ours, strict=True)
        unknown = [n for i, (n, own) in enumerate(pairs) if own is None and i not in unused]
        if unknown:
            raise DataError(
                f"{what} has classes that the model does not know: {_some(unknown)}; it knows "
                f"{_some(self.names)}. Rename the classes, train on this data"
                f"{advice(', or pass ', names=Word('FILE'))}"
            )
        return tuple(IGNORED if number is None else number for number in ours)

    def named(self, name: str) -> int | None:
        """The class of this name, or with this text as its id."""
        return self._by_name.get(name, self._by_id.get(name))

    def to_dict(self) -> dict[str, list[External]]:
        values = {"names": list(self.names), "external": list(self.external)}
        return values | ({"ignored": list(self.ignored)} if self.ignored else {})  # type: ignore[return-value]

    @classmethod
    def from_dict(cls, values: Mapping[str, Sequence[External]]) -> LabelMap:
        names = tuple(str(name) for name in values["names"])
        if not names:
            return NoLabels()
        return cls(names, tuple(values["external"]), tuple(values.get("ignored", ())))


def _some(names: Sequence[str], most: int = 20) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


class NoLabels(LabelMap):
    """Those of a model without a head."""

    def __init__(self) -> None:
        super().__init__((), ())

    def __post_init__(self) -> None:
        """There is nothing to check."""


def natural(text: str) -> tuple[tuple[int, int | str], ...]:
    """A sort key that compares digits as numbers: class2 before class10.

    Different names have different keys (Cat and cat, 1 and 01), so the order is deterministic.
    """
    pieces = [piece for piece in re.split(r"(\d+)", text) if piece]
    key = [
        (0, int(piece)) if piece.isdecimal() and len(piece) < 1000 else (1, piece.casefold())
        for piece in pieces
    ]
    return (*key, (-1, text))
