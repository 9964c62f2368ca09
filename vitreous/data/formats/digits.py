"""Scikit-learn's handwritten digits: real data that needs no download."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vitreous.data.formats.builder import SourceBuilder
from vitreous.data.formats.names import with_names
from vitreous.data.source import Sample, Source
from vitreous.data.split import complete, hold_out
from vitreous.errors import DataError
from vitreous.labels import LabelMap


@dataclass
class DigitsSource(Source):
    """1,797 real handwritten digits, 8x8 (UCI, Optical Recognition of Handwritten Digits, test).
    The ids are their numbers in scikit-learn. The split never changes: 20 % test, 10 % of the rest
    val."""

    _images: Tensor = field(kw_only=True, repr=False)  # (1797, 1, 8, 8)

    def image(self, sample: Sample) -> Tensor:
        return self._images[int(sample.id)].clone()


class Digits(NamedTuple):
    shades: NDArray[np.uint8]
    """(1797, 8, 8), from 0 for paper to 255 for ink"""
    splits: dict[str, list[Sample]]


def read(builder: SourceBuilder) -> DigitsSource:
    if builder.path:
        raise DataError(f"digits:{builder.path}: there is only digits, without a number")
    digits = read_digits()
    notes = ["scikit-learn's digits: real handwriting, 8x8; the split is fixed"]
    return DigitsSource(
        name="digits",
        kind="built-in",
        labels=with_names(LabelMap.of_ids(range(10)), builder.names),
        splits=complete(digits.splits, builder.hold_out, notes),
        notes=notes,
        _images=torch.from_numpy(digits.shades)[:, None],
    )


@cache
def read_digits() -> Digits:
    rows = np.loadtxt(datasets_folder() / "data" / "digits.csv.gz", delimiter=",")
    # 17 shades, 0 to 16, to the full range of bytes
    shades = np.round(rows[:, :-1].reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
    samples = [Sample(str(i), int(target)) for i, target in enumerate(rows[:, -1])]
    rest, test = hold_out(samples, 0.2, seed=0)
    train, val = hold_out(rest, 0.1, seed=0)
    return Digits(shades, {"train": train, "val": val, "test": test})


def datasets_folder() -> Path:
    """Scikit-learn's. Its files are read directly, which saves the second and a half that importing
    scikit-learn takes."""
    package = find_spec("sklearn")
    assert package is not None
    assert package.origin is not None
    return Path(package.origin).with_name("datasets")
