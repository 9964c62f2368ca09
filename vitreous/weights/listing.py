"""What a weight file holds: its tensors, what stands beside them, and which model it is for."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import NamedTuple

from vitreous.weights.adopt import seen
from vitreous.weights.hub import resolve
from vitreous.weights.identify import LONGEST_NAME
from vitreous.weights.io.state_dicts import CONTAINERS
from vitreous.weights.origin import open_weights
from vitreous.weights.reading import Reading
from vitreous.weights.rule_problems import rule_problems
from vitreous.weights.rules.keys import shapes_of

_NUMBER = re.compile(r"\d+")


class TensorGroup(NamedTuple):
    """Tensors whose names differ in numbers only, and that are alike."""

    name: str
    """`blocks.{0-11}.norm{1,2}.weight`"""
    shape: tuple[int, ...]
    dtype: str
    tensors: int


@dataclass(frozen=True)
class WeightListing:
    """See the module."""

    path: Path
    size_bytes: int
    """Of the tensors."""
    inside: str | None
    """The entry of a training checkpoint whose tensors are listed; None: there is one set."""
    entries: dict[str, str]
    """The entries of a training checkpoint, and what they are."""
    metadata: dict[str, str]
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, str]
    readings: list[Reading]
    problem: str = ""
    """Why somebody's own rules read no model in it."""

    @property
    def numbers(self) -> int:
        return sum(map(prod, self.shapes.values()))

    def groups(self) -> list[TensorGroup]:
        """The tensors in the file's order, alike ones in one row."""
        return list(group_tensors(self.shapes, self.dtypes))


def list_weights(
    source: str | Path,
    *,
    inside: str | None = None,
    format: str | Path | None = None,
    model: str | None = None,
) -> WeightListing:
    """Read a checkpoint and nothing else; the arguments are those of `import_weights`."""
    file = open_weights(resolve(str(source)), inside or "")
    tensors, entries = file.tensors, file.entries
    sets = [name for name in CONTAINERS if re.search(r"\btensors?\b", entries.get(name, ""))]
    found = seen(file, format, model)
    return WeightListing(
        file.path,
        sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()),
        inside or (sets[0] if len(sets) > 1 else None),
        entries,
        file.metadata,
        shapes_of(tensors),
        {name: str(tensor.dtype).removeprefix("torch.") for name, tensor in tensors.items()},
        found,
        rule_problems(file, format, found),
    )


def group_tensors(
    shapes: Mapping[str, tuple[int, ...]], dtypes: Mapping[str, str]
) -> Iterator[TensorGroup]:
    alike: dict[tuple[str, tuple[int, ...], str], list[str]] = {}
    for name, shape in shapes.items():
        skeleton = _NUMBER.sub("#", name) if len(name) <= LONGEST_NAME else name
        alike.setdefault((skeleton, shape, dtypes[name]), []).append(name)
    for (skeleton, shape, dtype), names in alike.items():
        if len(names[0]) > LONGEST_NAME:
            yield TensorGroup(names[0], shape, dtype, 1)
            continue
        rows = [tuple(map(int, _NUMBER.findall(name))) for name in names]
        if "#" in "".join(names) or len({*rows}) < len(names):  # odd names, as they are: 01 and 1
            yield from (TensorGroup(name, shape, dtype, 1) for name in names)
            continue
        for group in _products(rows):
            yield TensorGroup(_joined(skeleton, group), shape, dtype, len(group))


def _products(rows: list[tuple[int, ...]]) -> Iterator[list[tuple[int, ...]]]:
    """Rows of numbers in as few groups as are products of sets: (0, 1) x (1, 2)."""
    columns = [sorted({*column}) for column in zip(*rows, strict=True)]
    if prod(map(len, columns)) == len(rows):  # which are all different
        yield rows
        return
    split = max(i for i, column in enumerate(columns) if len(column) > 1)
    parts: dict[int, list[tuple[int, ...]]] = {value: [] for value in columns[split]}
    for row in rows:
        parts[row[split]].append(row)
    for part in parts.values():
        yield from _products(part)


def _joined(skeleton: str, rows: list[tuple[int, ...]]) -> str:
    pieces = skeleton.split("#")
    columns = [sorted({*column}) for column in zip(*rows, strict=True)]
    numbers = [_span(column) for column in columns]
    return "".join(a + b for a, b in itertools.zip_longest(pieces, numbers, fillvalue=""))


def _span(numbers: Iterable[int]) -> str:
    values = list(numbers)
    if len(values) == 1:
        return str(values[0])
    if values == list(range(values[0], values[-1] + 1)) and len(values) > 2:
        return f"{{{values[0]}-{values[-1]}}}"
    return f"{{{','.join(map(str, values))}}}"
