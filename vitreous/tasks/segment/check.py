"""What the data check says of masks: how much there is of each class, and what is odd about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from vitreous.data.check.common import (
    alike_problems,
    by_class,
    rare_problems,
    series_problems,
    some,
)
from vitreous.data.check.inspect import Seen, SeenMask
from vitreous.data.source import Problem

MUCH_IGNORED = 0.2  # of a mask
OTHER_SHARE = 4  # times as much of a class in one split as in another
SMALL_SHARE = 0.001  # a class that has less everywhere is not compared
MANY_LONE = 0.005  # of all pixels


@dataclass
class MaskReport:
    """By split, what was counted."""

    images: dict[str, dict[str, int]]
    """For each class, the images that it occurs in."""
    pixels: dict[str, dict[str, int]]
    """For each class, its pixels."""
    ignored: dict[str, int]
    """Pixels without a class."""
    lone: dict[str, int]
    """Pixels that are unlike all four around them."""
    alike: dict[str, int]
    """Images that look nearly like the one before, by the order of their names; under `across`
    those that do so in another split."""
    problems: list[Problem] = field(default_factory=list)


def check_masks(
    name: str, splits: Sequence[str], names: Sequence[str], good: Sequence[Seen]
) -> MaskReport:
    """`name` is the data's, `names` the classes', `good` the images that can be used."""
    masks: dict[str, list[tuple[Seen, SeenMask]]] = {split: [] for split in splits}
    for one in good:
        if one.mask is not None:
            masks[one.split].append((one, one.mask))
    pixels = {
        split: np.stack([mask.pixels for _, mask in seen]) if seen else np.zeros((0, len(names)))
        for split, seen in masks.items()
    }
    report = MaskReport(
        images=by_class(names, {split: (counts > 0).sum(0) for split, counts in pixels.items()}),
        pixels=by_class(names, {split: counts.sum(0) for split, counts in pixels.items()}),
        ignored={split: sum(mask.ignored for _, mask in seen) for split, seen in masks.items()},
        lone={split: sum(mask.lone for _, mask in seen) for split, seen in masks.items()},
        alike={**dict.fromkeys(splits, 0), "across": 0},
    )
    used = {split: len(seen) for split, seen in masks.items() if seen}
    report.problems = [
        *rare_problems(name, report.images, used, "pixels"),
        *_shares(name, report, used),
        *(problem for split in used for problem in _of_split(name, split, masks[split], names)),
        *series_problems(name, good),
        *alike_problems(name, good, report.alike),
    ]
    return report


def _shares(name: str, report: MaskReport, used: dict[str, int]) -> Iterable[Problem]:
    """Classes of which another split has far more, or far less, than train."""
    if "train" not in used:
        return
    labelled = {split: sum(by[split] for by in report.pixels.values()) for split in used}
    for class_, by_split in report.pixels.items():
        shares = {split: by_split[split] / max(labelled[split], 1) for split in used}
        here = shares["train"]
        for split, there in shares.items():
            low, high = sorted((here, there))
            if low and high >= SMALL_SHARE and high >= OTHER_SHARE * low:
                what = f"{there:.2%} of the labelled pixels of {split}, but {here:.2%} of train"
                yield Problem(name, f"class {class_!r} is {what}", False)


def _of_split(
    name: str, split: str, seen: Sequence[tuple[Seen, SeenMask]], names: Sequence[str]
) -> Iterable[Problem]:
    """Masks that say little."""
    empty, much, single = [], [], []
    for one, mask in seen:
        total = mask.ignored + int(mask.pixels.sum())
        if mask.ignored == total:
            empty.append((one, "its mask has no labelled pixel: all are ignored"))
        elif mask.ignored > MUCH_IGNORED * total:
            much.append((one, f"{mask.ignored / total:.0%} of its mask are ignored"))
        elif (mask.pixels > 0).sum() == 1:
            class_ = names[int(mask.pixels.argmax())]
            single.append((one, f"its mask is {class_!r} as a whole"))
    yield from some(name, empty, f"masks of {split} are ignored as a whole")
    yield from some(name, much, f"masks of {split} are ignored by more than {MUCH_IGNORED:.0%}")
    yield from some(name, single, f"masks of {split} have a single class")
    lone = sum(mask.lone for _, mask in seen)
    total = sum(mask.ignored + int(mask.pixels.sum()) for _, mask in seen)
    if lone > MANY_LONE * total:
        what = f"{lone / total:.1%} of the pixels of {split} are unlike all four around them"
        yield Problem(name, f"{what}: were the masks resized or compressed?", False)
