"""Built-in data that is drawn, shapes and handwriting: every kind of ground truth is of the same
objects, and nothing but the seed, the split and the number decides what is drawn."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
import torch
from source_facts import sizes

from vitreous.data.formats import handwriting, open_source, relations, shapes
from vitreous.data.formats.digits import read_digits
from vitreous.data.formats.generated import ROOM
from vitreous.errors import DataError
from vitreous.tasks.data_check import check

SCENES = {
    "shapes": lambda source, sample: shapes.scene(source.seed, sample.id),
    "handwriting": lambda source, sample: handwriting.scene(source.seed, sample.id, None),
}
CLASSES = {"shapes": shapes.SHAPES, "handwriting": tuple(map(str, range(10)))}
TRUTHS = ("labels", "mask", "boxes", "instances")


def tensors(truth):
    if isinstance(truth, dict):
        return [value.dense() if name == "masks" else value for name, value in truth.items()]
    return [torch.as_tensor(truth)]


def same(first, second):
    return all(torch.equal(a, b) for a, b in zip(tensors(first), tensors(second), strict=True))


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("truth", ["class", *TRUTHS])
def test_an_image_is_a_function_of_seed_split_and_number(name, truth):
    source, other = (open_source(name, truth=truth, seed=seed) for seed in (0, 1))
    again = pickle.loads(pickle.dumps(open_source(f"{name}:30", truth=truth)))
    sample = source.splits["train"][8]
    image, known = source.image(sample), source.truth(sample)
    side = 32 if (name, truth) == ("handwriting", "class") else 64
    assert (image.shape, image.dtype) == ((3, side, side), torch.uint8)
    source.image(source.splits["train"][1999])
    assert torch.equal(image, again.image(again.splits["train"][8]))
    assert same(known, again.truth(again.splits["train"][8]))
    assert not torch.equal(image, other.image(sample))
    assert not torch.equal(image, source.image(source.splits["val"][8]))
    image[:] = 0
    for each in tensors(known) if truth != "class" else ():
        each[...] = 9
    assert torch.equal(source.image(sample), again.image(sample)), "what is given away is a copy"
    assert same(source.truth(sample), again.truth(sample))


@pytest.mark.parametrize("name", SCENES)
def test_every_kind_of_ground_truth_tells_of_the_same_objects(name):
    sources = {truth: open_source(f"{name}:60", truth=truth) for truth in TRUTHS}
    names, first = CLASSES[name], int(name == "shapes")
    for truth, source in sources.items():
        assert source.truth_kind == truth
        assert source.labels.names == (("background", *names) if truth == "mask" else names)
    assert sources["mask"].labels.external == tuple(range(len(names) + 1))
    assert sources["boxes"].labels.external == tuple(range(first, len(names) + first))
    counts, seen = set(), set()
    for sample in sources["boxes"].splits["train"]:
        drawn = SCENES[name](sources["boxes"], sample)
        counts.add(len(drawn.kinds))
        seen |= {*drawn.kinds}
        assert len({each.image(sample).numpy().tobytes() for each in sources.values()}) == 1
        labels, mask, boxes, instances = (each.truth(sample) for each in sources.values())
        assert labels.dtype == torch.float32
        assert labels.nonzero().flatten().tolist() == sorted({*drawn.kinds})
        assert mask.dtype == torch.int16
        assert np.array_equal(
            mask, np.array([0, *(1 + kind for kind in drawn.kinds)])[drawn.places]
        )
        assert 0.005 < (mask > 0).float().mean() < 0.8
        assert not boxes["crowd"].any()
        for found in (boxes, instances):
            assert found["labels"].tolist() == list(drawn.kinds)
            assert np.array_equal(found["boxes"], drawn.boxes)
        masks = instances["masks"].dense().numpy()
        image = sources["boxes"].image(sample).numpy().astype(float)
        for number, (left, top, right, bottom) in enumerate(drawn.boxes, 1):
            assert np.array_equal(masks[number - 1], drawn.places == number)
            rows, columns = np.nonzero(drawn.places == number)
            assert (columns.min(), rows.min()) == (left, top)
            assert (columns.max() + 1, rows.max() + 1) == (right, bottom)
            if name == "handwriting":  # digits lie apart
                assert {*np.unique(drawn.places[top:bottom, left:right])} <= {0, number}
            else:  # and shapes differ from the ground around them
                inside, outside = (image[:, drawn.places == n].mean(1) for n in (number, 0))
                assert np.abs(inside - outside).max() > 10
    assert (counts, seen) == ({1, 2, 3, 4}, {*range(len(names))})


@pytest.mark.parametrize("name", SCENES)
def test_numbers_of_images(name):
    assert sizes(open_source(f"{name}:20", truth="mask")) == {"train": 20, "val": 20, "test": 40}
    assert len(open_source(name, truth="mask").splits["test"]) == 600
    assert len(open_source(f"{name}:1000000000").splits["train"]) == 10**9
    source = open_source(name)
    assert source.labels.names == CLASSES[name]
    count = len(source.labels)
    assert [s.target for s in source.splits["test"][: count + 1]] == [*range(count), 0]
    with pytest.raises(DataError, match=f"{name}:many: expected the number"):
        open_source(f"{name}:many")
    with pytest.raises(DataError, match="no name for class 1"):
        open_source(name, truth="boxes", names={"2": "plus", "0": "none"})


def test_drawn_scenes_are_kept_within_bounds():
    source = open_source("shapes", truth="boxes")
    sample = source.splits["train"][0]
    drawn = shapes.scene(source.seed, sample.id)
    assert shapes.scene(source.seed, sample.id) is drawn
    kept = shapes.scene.cache_info().maxsize
    assert kept * (drawn.image.nbytes + drawn.places.nbytes) <= ROOM
    assert kept > 2900, "all of the usual data"
    with ThreadPoolExecutor(4) as pool:
        threads = list(pool.map(source.truth, source.splits["test"][:40]))
    assert all(map(same, threads, map(source.truth, source.splits["test"][:40])))


def test_shapes_to_classify_have_not_changed():
    source = open_source("shapes")
    sums = [int(source.image(sample).long().sum()) for sample in source.splits["train"][:4]]
    assert sums == [1611872, 1434168, 1770008, 1916303]


def test_many_shapes_hide_little_of_each_other():
    for number in range(20):
        every = range(len(shapes.SHAPES))
        scene = shapes.draw_scene(np.random.default_rng(number), 96, every)
        assert scene.image.shape == (96, 96, 3)
        assert 3 <= len(scene.kinds) == len(scene.boxes) == scene.places.max()


def test_splits_share_neither_digits_nor_parts_of_photographs():
    digits, columns = read_digits(), handwriting.COLUMNS
    ids = [sample.id for samples in digits.splits.values() for sample in samples]
    assert len(set(ids)) == len(ids) == 1797
    assert all(end <= begin for (_, end), (begin, _) in pairwise(sorted(columns.values())))
    assert columns.keys() == digits.splits.keys()


def test_mirror_images_are_no_handwriting():
    assert not open_source("handwriting").may_flip
    assert open_source("shapes").may_flip


@pytest.mark.parametrize(
    ("name", "truth"),
    [("digits", "class"), ("shapes:60", "class"), ("shapes", "boxes"), ("shapes", "mask")],
)
def test_the_check_finds_nothing_wrong_with_built_in_data(name, truth):
    source = open_source(name, truth=truth)
    if truth != "class":
        source.splits = {split: part[:40] for split, part in source.splits.items()}
    report = check(source)
    assert [p.what for p in report.problems if "of the labelled pixels" not in p.what] == []
    assert (report.truth_kind, report.bytes, len(report.mean)) == (
        truth,
        None,
        1 if name == "digits" else 3,
    )
    assert set(report.duplicates.values()) == {0}
    none = dict.fromkeys(source.splits, 0)
    if truth == "mask":
        assert set(report.truth.classes["background"].values()) == {40}
    if truth == "boxes":
        assert report.truth.empty == report.truth.cut == none
        assert report.truth.per_image["train"]["largest"] == 4
        objects = sum(by["train"] for by in report.truth.objects.values())
        assert sum(report.truth.object_sizes["train"].values()) == objects >= 40


def test_relations_are_what_the_pixels_show():
    """The class is where the red shape is, seen from the blue one."""
    source = open_source("relations:200")
    train, test = source.splits["train"], source.splits["test"]
    assert len(train) == 200
    assert {sample.id for sample in train}.isdisjoint(sample.id for sample in test)
    for sample in train:
        known = source.truth(sample)
        image, drawn = source.image(sample).float(), relations.scene(source.seed, sample.id, known)
        centres = []
        for number, (strong, weak) in {1: (0, 2), 2: (2, 0)}.items():
            rows, columns = np.nonzero(drawn.places == number)
            colour = image[:, rows, columns].median(dim=1).values
            assert colour[strong] - colour[weak] > 50
            centres.append((rows.mean(), columns.mean()))
        down, right = (a - b for a, b in zip(*centres, strict=True))
        across = "right" if right > 0 else "left"
        along = "below" if down > 0 else "above"
        assert source.labels.names[known] == (across if abs(right) > abs(down) else along)
