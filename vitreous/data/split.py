"""Which samples are held out: a function of the seed and the samples' ids, and of nothing else.

So the split is the same on every machine and in whatever order files are listed, and a few new
images leave nearly all others where they were.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

from vitreous.data.source import SPLITS, Sample
from vitreous.errors import ConfigError, DataError

HELD_OUT = "held out from train"
"""In the note of a source whose val or test was made so."""


class HoldOut(NamedTuple):
    """What becomes of data that has no val or test of its own."""

    val: float = 0.1
    """The part of train that is held out as val,"""
    test: float = 0.0
    """and before that the part that is held out as test."""
    seed: int = 0

    def check(self) -> None:
        for name in ("val", "test"):
            fraction = getattr(self, name)
            if not 0 <= fraction < 1:
                raise ConfigError(
                    f"{name}_fraction = {fraction}: expected a part, from 0 to below 1"
                )


def draw(seed: int, id: str) -> int:
    """A number that looks random but belongs to this id."""
    return int.from_bytes(hashlib.blake2b(f"{seed}/{id}".encode(), digest_size=8).digest())


def hold_out(
    samples: Sequence[Sample], fraction: float, seed: int, *, truth_kind: str = "class"
) -> tuple[list[Sample], list[Sample]]:
    """(kept, held out), both in the order given; each class, or set of labels, gives its share.

    class: a class of at least two samples gives at least one and keeps at least one.
    labels: sets of labels that are too rare to give one are drawn from together.
    mask, boxes: an image is not of one class; all samples are drawn from together.
    """
    if not fraction:
        return list(samples), []
    groups: dict[Hashable, list[Sample]] = defaultdict(list)
    for sample in samples:
        groups[sample.target if truth_kind in ("class", "labels") else None].append(sample)
    if truth_kind == "labels":
        rare = [target for target, members in groups.items() if fraction * len(members) < 1]
        groups[None] = [sample for target in rare for sample in groups.pop(target)]
    held: set[str] = set()
    for members in groups.values():
        count = min(max(round(fraction * len(members)), 1), len(members) - 1)
        members.sort(key=lambda sample: (draw(seed, sample.id), sample.id))
        held.update(sample.id for sample in members[:count])
    kept = [sample for sample in samples if sample.id not in held]
    return kept, [sample for sample in samples if sample.id in held]


def complete(
    splits: Mapping[str, Sequence[Sample]],
    asked: HoldOut,
    notes: list[str],
    *,
    truth_kind: str = "class",
) -> dict[str, Sequence[Sample]]:
    """The splits in their usual order, with a val and a test of their own, or held out from train:
    first what is asked for as test, then val from the rest. The notes say which."""
    asked.check()
    found = dict(splits)
    for name in ("test", "val"):
        fraction = getattr(asked, name)
        if name in found and fraction != HoldOut._field_defaults[name]:
            notes.append(
                f"{name}_fraction = {fraction:g} is not used: the data has a {name} of its own"
            )
        if name in found or "train" not in found:
            continue
        kept, held = hold_out(found["train"], fraction, asked.seed, truth_kind=truth_kind)
        if held:
            found |= {"train": kept, name: held}
            of_each = {"class": " of each class", "labels": " of each set of labels"}
            part = f"{fraction:.0%}{of_each.get(truth_kind, '')}"
            images = "image" if len(held) == 1 else "images"
            notes.append(f"{name}: {len(held):,} {images} {HELD_OUT} ({part}, seed {asked.seed})")
    return {name: found[name] for name in SPLITS if name in found}


def check_apart(splits: dict[str, list[Sample]], name: str) -> None:
    """An image belongs to one split: a model must not be tested on what it was trained on."""
    seen: dict[str, str] = {}
    for split, samples in splits.items():
        for sample in samples:
            if seen.setdefault(sample.id, split) != split:
                both = f"{seen[sample.id]} and {split}"
                raise DataError(f"{name}: {sample.id} is in both {both}: keep it in one")
