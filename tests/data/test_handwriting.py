"""Real digits on real photographs, of which no part is in two splits."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from vitreous.data.formats import open_source
from vitreous.data.formats.digits import read_digits
from vitreous.data.formats.handwriting import COLUMNS, MOST_DIGITS, SMALL, scene


def test_an_image_is_a_function_of_seed_and_number():
    source, again, other = (
        open_source("handwriting"),
        open_source("handwriting:30"),
        open_source("handwriting", seed=1),
    )
    first, same, another = (each.image(each.splits["train"][8]) for each in (source, again, other))
    assert (first.shape, first.dtype) == ((3, SMALL, SMALL), torch.uint8)
    assert torch.equal(first, same)
    assert not torch.equal(first, another)
    assert not torch.equal(first, source.image(source.splits["test"][8]))
    assert [sample.target for sample in source.splits["val"][8:12]] == [8, 9, 0, 1]
    assert source.labels.names == tuple(map(str, range(10)))


def test_splits_share_neither_digits_nor_parts_of_photographs():
    digits = read_digits()
    ids = [sample.id for samples in digits.splits.values() for sample in samples]
    assert len(set(ids)) == len(ids) == 1797
    spans = sorted(COLUMNS.values())
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))
    assert COLUMNS.keys() == digits.splits.keys()


@pytest.mark.parametrize("truth", ["boxes", "mask", "instances", "labels"])
def test_every_kind_of_ground_truth_tells_of_the_same_digits(truth):
    source = open_source("handwriting:50", truth=truth)
    counts = set()
    for sample in source.splits["train"]:
        drawn, known = scene(source.seed, sample.id, None), source.truth(sample)
        counts.add(len(drawn.kinds))
        if truth == "labels":
            assert known.nonzero().flatten().tolist() == sorted(set(drawn.kinds))
        elif truth == "mask":
            assert set(known.unique().tolist()) == {0, *(1 + kind for kind in drawn.kinds)}
        else:
            assert known["labels"].tolist() == list(drawn.kinds)
            assert known["boxes"].tolist() == [list(map(float, box)) for box in drawn.boxes]
    assert counts == set(range(1, MOST_DIGITS + 1))


def test_digits_are_whole_and_apart():
    for number in range(60):
        drawn = scene(0, f"train/{number}", None)
        for object_, (left, top, right, bottom) in enumerate(drawn.boxes, 1):
            rows, columns = np.nonzero(drawn.places == object_)
            assert (columns.min(), rows.min()) == (left, top)
            assert (columns.max() + 1, rows.max() + 1) == (right, bottom)
            inside = drawn.places[top:bottom, left:right]
            assert set(np.unique(inside)) <= {0, object_}


def test_mirror_images_are_no_handwriting():
    assert not open_source("handwriting").may_flip
    assert open_source("shapes").may_flip
