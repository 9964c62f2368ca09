"""Which samples are held out: a function of the seed and the samples' ids, and of nothing else.

So the split is the same on every machine and in whatever order files are listed, and a few new
images leave nearly all others where they were.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations, islice, zip_longest
from typing import NamedTuple

from vitreous.data.source import SPLITS, Problem, Sample
from vitreous.errors import ConfigError, DataError
from vitreous.wording import counted

HELD_OUT = "held out from train"
"""In the note of a source whose val or test was made so."""


class HoldOut(NamedTuple):
    """What becomes of data that has no val or test of its own."""

    val: float = 0.1
    """The part of train that is held out as val,"""
    test: float = 0.0
    """and before that the part that is held out as test."""
    seed: int = 0


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
    groups = _groups(samples, seed, truth_kind)
    if truth_kind == "labels":
        rare = [target for target, members in groups.items() if fraction * len(members) < 1]
        groups[None] = _ordered([sample for target in rare for sample in groups.pop(target)], seed)
    held: set[str] = set()
    for members in groups.values():
        count = min(max(round(fraction * len(members)), 1), len(members) - 1)
        held.update(sample.id for sample in members[:count])
    kept = [sample for sample in samples if sample.id not in held]
    return kept, [sample for sample in samples if sample.id in held]


def few_of(
    samples: Sequence[Sample], count: int, seed: int, *, truth_kind: str = "class"
) -> list[Sample]:
    """`count` samples from all over, in the order given: of each class, or set of labels, as many
    as of any other, as far as it has them."""
    groups = _groups(samples, seed, truth_kind)
    common = sorted(groups.values(), key=len, reverse=True)
    in_turn = (each for turn in zip_longest(*common) for each in turn if each is not None)
    chosen = {sample.id for sample in islice(in_turn, count)}
    return [sample for sample in samples if sample.id in chosen]


def part_of(
    samples: Sequence[Sample], fraction: float, seed: int, *, truth_kind: str = "class"
) -> list[Sample]:
    """A fraction of the samples, in the order given. It is the beginning of one order of all of
    them, so a smaller fraction is a part of a larger one.

    Each class, or set of labels, is spread evenly over that order, and so gives its share. Of each
    class there is at least one; of many sets of labels that are rare, some are there.
    """
    place: dict[str, tuple[float, int]] = {}
    groups = _groups(samples, seed, truth_kind)
    for target, members in groups.items():
        # where a group begins: else of many rare ones all would come first, or none
        begin = draw(seed, f"group {target}") / 2**64
        for rank, sample in enumerate(members):
            one_each = truth_kind == "class" and rank == 0
            at = 0.0 if one_each else (rank + begin) / len(members)
            place[sample.id] = at, draw(seed, sample.id)
    least = len(groups) if truth_kind == "class" else 1
    count = max(round(fraction * len(place)), min(least, len(place)))
    chosen = set(sorted(place, key=lambda id: (*place[id], id))[:count])
    return [sample for sample in samples if sample.id in chosen]


def _groups(samples: Sequence[Sample], seed: int, truth_kind: str) -> dict[Hashable, list[Sample]]:
    """By class or set of labels, or all together: in masks and boxes an image is not of one class.
    In each group they stand as the seed orders them."""
    groups: dict[Hashable, list[Sample]] = defaultdict(list)
    for sample in _ordered(samples, seed):
        groups[sample.target if truth_kind in ("class", "labels") else None].append(sample)
    return groups


def _ordered(samples: Sequence[Sample], seed: int) -> list[Sample]:
    return sorted(samples, key=lambda sample: (draw(seed, sample.id), sample.id))


def complete(
    splits: Mapping[str, Sequence[Sample]],
    asked: HoldOut,
    notes: list[str],
    *,
    truth_kind: str = "class",
) -> dict[str, Sequence[Sample]]:
    """The splits in their usual order, with a val and a test of their own, or held out from train:
    first what is asked for as test, then val from the rest. The notes say which."""
    found = dict(splits)
    for name in ("test", "val"):
        fraction = getattr(asked, name)
        if not 0 <= fraction < 1:
            what = "expected a part, from 0 to below 1"
            raise ConfigError(f"{name}_fraction = {fraction}: {what}")
        if name in found and fraction != HoldOut._field_defaults[name]:
            notes.append(
                f"{name}_fraction = {fraction:g} is not used: the data has a {name} of its own"
            )
        if name in found or "train" not in found:
            continue
        kept, held = hold_out(found["train"], fraction, asked.seed, truth_kind=truth_kind)
        if held:
            found |= {"train": kept, name: held}
            if name == "test" and "val" in found:  # which may share images with train
                chosen = {sample.id for sample in held}
                found["val"] = [sample for sample in found["val"] if sample.id not in chosen]
            of_each = {"class": " of each class", "labels": " of each set of labels"}
            part = f"{fraction:.0%}{of_each.get(truth_kind, '')}"
            images = counted(len(held), "image")
            notes.append(f"{name}: {images} {HELD_OUT} ({part}, seed {asked.seed})")
    return {name: found[name] for name in SPLITS if name in found}


def shared_images(splits: dict[str, list[Sample]], name: str) -> list[Problem]:
    """Images that are in several splits. Sample files of YOLO have one folder as train and val; it
    can be trained on, but a model must not be judged by what it was trained on."""
    found = []
    for here, there in combinations([split for split in SPLITS if splits.get(split)], 2):
        known = {sample.id: sample for sample in splits[here]}
        both = [sample.id for sample in splits[there] if sample.id in known]
        if differs := next((s.id for s in splits[there] if known.get(s.id, s) != s), None):
            what = f"{differs} is in both {here} and {there}, with labels of its own in each"
            raise DataError(f"{name}: {what}: keep it in one")
        if both:
            every = len(both) == len(splits[there])
            count = "all" if every else f"{len(both):,} of the {len(splits[there]):,}"
            what = (
                f"{count} images of {there} are in {here} too, as {both[0]}: what is measured on "
                f"{there} is better than it will be on new images. Give {there} images of its own, "
                "or leave it out: then a part of train is held out"
            )
            found.append(Problem(name, what, fatal=False, leak=True))
    return found
