"""Pairs of boxes that are near each other: all that count are found, in bounded memory."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vitreous.data.check import boxes as check
from vitreous.data.check.boxes import NEARLY, InspectedBoxes
from vitreous.data.check.truth_check import Inspected
from vitreous.data.objects import overlap as module
from vitreous.data.objects.overlap import iou, near_pairs
from vitreous.data.source import Sample


def crowded(count, seed, extent=30.0, classes=3):
    """Boxes (n, 4) of which many overlap, and their classes (n,)."""
    random = torch.Generator().manual_seed(seed)
    corners = torch.rand(count, 2, generator=random) * extent
    sides = torch.rand(count, 2, generator=random) * 8
    boxes = torch.cat((corners, corners + sides), dim=1)
    if count > 1:  # whole numbers: equal boxes, boxes without area, IoUs at the very threshold
        boxes[: count // 2] = boxes[: count // 2].round()
    return boxes, torch.randint(classes, (count,), generator=random)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 60), st.integers(0, 1000), st.sampled_from((0.01, 0.5, 0.8, 1.0)))
def test_every_pair_that_overlaps_so_much_is_there(count, seed, least):
    boxes, labels = crowded(count, seed)
    every = iou(boxes[:, None], boxes)
    expected = ((every >= least) & (labels[:, None] == labels)).triu(1).nonzero()
    found = [(pairs[part >= least], part) for pairs, part in near_pairs(boxes, labels, least)]
    assert sorted(p for pairs, _ in found for p in pairs.tolist()) == expected.tolist()


def test_pieces_are_small_and_few(monkeypatch):
    """20,000 objects have 200 million pairs, of which hardly any are near."""
    monkeypatch.setattr(module, "PIECE", 10_000)
    boxes, labels = crowded(20_000, 0, extent=1000.0, classes=2)
    sizes = [len(found.pairs) for found in near_pairs(boxes, labels, NEARLY)]
    assert max(sizes) <= 10_000 + 20_000
    assert sum(sizes) < 1_000_000
    same = torch.tensor([[0.0, 0.0, 9.0, 9.0]]).repeat(500, 1)
    sizes = [len(found.pairs) for found in near_pairs(same, torch.zeros(500), NEARLY)]
    assert sum(sizes) == 500 * 499 // 2
    assert max(sizes) <= 10_000 + 500


def inspected(boxes, labels, crowd):
    names = tuple(f"object {i + 1}" for i in range(len(boxes)))
    truth = InspectedBoxes(
        digest=b"",
        boxes=boxes.numpy(),
        labels=labels.numpy(),
        crowd=crowd.numpy(),
        names=names,
        records=tuple(f"a.xml, {name}" for name in names),
        cut=0,
    )
    return Inspected("train", Sample("a.jpg", "a.xml"), truth=truth)


def by_brute_force(boxes, labels, crowd, names):
    overlap = iou(boxes[:, None], boxes)
    same = (labels[:, None] == labels) & ~(crowd[:, None] | crowd) & (overlap >= NEARLY)
    return [
        (
            f"a.xml, object {second + 1}",
            f"covers nearly what object {first + 1} covers, {overlap[second, first]:.0%} of both: "
            f"is it the same {names[labels[first]]}?",
        )
        for second, first in same.tril(-1).nonzero().tolist()
    ]


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 80), st.integers(0, 1000))
def test_findings_are_those_of_the_matrix_of_all_pairs(count, seed):
    boxes, labels = crowded(count, seed, extent=12.0)
    crowd, names = torch.arange(count) % 7 == 3, ("cat", "dog", "cow")
    found = list(check._nearly_twice([inspected(boxes, labels, crowd)], names))
    assert found == by_brute_force(boxes, labels, crowd, names)


def test_of_very_many_twins_the_first_are_named_and_the_others_counted(monkeypatch):
    monkeypatch.setattr(check, "MOST_TWINS", 5)
    boxes, labels = torch.tensor([[0.0, 0.0, 9.0, 9.0]]).repeat(6, 1), torch.zeros(6).long()
    crowd = torch.zeros(6, dtype=torch.bool)
    found = list(check._nearly_twice([inspected(boxes, labels, crowd)], ("cat",)))
    assert found[:5] == by_brute_force(boxes, labels, crowd, ("cat",))[:5]
    assert found[5:] == [("a.jpg", "has 10 more pairs of boxes that cover nearly the same")]
