"""Images that are nearly the same: frames of one film, and pictures that look alike."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from vitreous.data.check.truth_check import Inspected
from vitreous.data.source import SPLITS, Problem
from vitreous.labels import natural

ALIKE = 0.02, 0.98  # mean difference of thumbnails, in 0..1, and their correlation
LISTED = 10  # series in one problem
MANY_ALIKE = 0.25  # of the images of a split


def series_of(id: str) -> str:
    """The name without the number at its end: what the frames of a film have in common."""
    return re.sub(r"\d+$", "", os.path.splitext(os.path.basename(id))[0])


def series_problems(name: str, good: Sequence[Inspected]) -> Iterable[Problem]:
    """Frames of one film in several splits: what is tested is nearly what was learned. Names that
    all begin alike, or all differently, say nothing."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for one in good:
        counts[series_of(one.sample.id)][one.split] += 1
    if len(counts) < 2 or 2 * len(counts) > len(good):
        return
    both = {series: by for series, by in counts.items() if series and len(by) > 1}
    told = [
        f"{series}… ({', '.join(f'{split} {count}' for split, count in by.items())})"
        for series, by in sorted(both.items(), key=lambda item: natural(item[0]))
    ]
    if told:
        more = f" and {len(told) - LISTED} more" if len(told) > LISTED else ""
        yield Problem(
            name,
            f"images of the same series are in several splits: {', '.join(told[:LISTED])}{more}: "
            "if they are frames of one film, the splits are not independent",
            False,
        )
    within = {split: [series for series, by in counts.items() if by[split]] for split in SPLITS}
    if len(within["train"]) < 2:
        return
    for split, all_series in within.items():
        if len(all_series) == 1 and (count := counts[all_series[0]][split]) > 1:
            what = f"all {count} images of {split} are of one series, {all_series[0]}…"
            yield Problem(name, f"{what}: it shows little of what there is", False)


def alike_problems(
    name: str, good: Sequence[Inspected], counts: dict[str, int]
) -> Iterable[Problem]:
    """Images that look nearly like their neighbour by name; equal ones are told elsewhere. counts:
    of each split, and `across` them; filled here."""
    ordered = sorted(
        (one for one in good if one.thumbnail is not None),
        key=lambda one: natural(os.path.basename(one.sample.id)),
    )
    for one, other in pairwise(ordered):
        assert one.thumbnail is not None
        assert other.thumbnail is not None
        if one.digest == other.digest or not _look_alike(one.thumbnail, other.thumbnail):
            continue
        if one.split == other.split:
            counts[one.split] += 1
        else:
            counts["across"] += 1
            what = f"of {one.split} looks nearly like {other.sample.id} of {other.split}"
            yield Problem(one.sample.id, what, False)
    for split, images in Counter(one.split for one in ordered).items():
        count = counts[split]
        if count > MANY_ALIKE * images:
            what = f"{count} of the {images} images of {split} look nearly like the one before"
            yield Problem(name, f"{what}: they are worth fewer", False)


def _look_alike(one: NDArray[np.float32], other: NDArray[np.float32]) -> bool:
    difference, correlation = ALIKE
    if np.abs(one - other).mean() > difference:
        return False
    a, b = one - one.mean(), other - other.mean()
    return bool((a * b).sum() >= correlation * np.sqrt((a * a).sum() * (b * b).sum()) > 0)
