"""What holds for annotated objects in every format."""

import builtins
import pickle
from collections import Counter

import numpy as np
import pytest
import torch
from annotated_scene import (
    BOXES,
    BROKEN,
    HEIGHT,
    INSTANCES,
    NAMES,
    OUTLINES,
    SCENE,
    WIDTH,
    WRITERS,
    Thing,
)
from source_facts import assert_problems, assert_spoiled, sizes

from vitreous.data.augment import Augment
from vitreous.data.formats import open_source
from vitreous.data.loader import Draw, EvalSet, TrainSet
from vitreous.data.preprocess import Preprocess
from vitreous.data.source import IGNORED
from vitreous.errors import DataError
from vitreous.tasks import TASKS, task_class
from vitreous.tasks.data_check import bad_samples, check


def opened(path, **options):
    return open_source(path, **{"val_fraction": 0, **options})


@pytest.fixture(params=BOXES)
def kind(request):
    return request.param


@pytest.fixture
def writer(kind, tmp_path):
    return BOXES[kind](tmp_path)


def by_name(source):
    return {sample.id[-5]: sample for sample in source.splits["train"]}


# ---- boxes


def test_boxes_classes_and_crowds(writer, kind):
    crowd = Thing((5, 5, 20, 15), "dog", crowd=kind != "yolo")  # which has no crowds
    source = opened(writer.write(SCENE | {"d": [crowd]}))
    assert (source.kind, source.truth_kind, source.problems) == (kind, "boxes", [])
    assert source.labels.names == NAMES
    assert "train: without objects: 1 image" in source.notes
    for one in (source, pickle.loads(pickle.dumps(source))):
        for name, things in SCENE.items():
            truth = one.truth(by_name(one)[name])
            expected = torch.tensor([thing.box for thing in things]).reshape(-1, 4).float()
            torch.testing.assert_close(truth["boxes"], expected)
            assert truth["labels"].tolist() == [NAMES.index(thing.name) for thing in things]
            assert not truth["crowd"].any()
            assert [truth[name].dtype for name in ("boxes", "labels", "crowd")] == [
                *(torch.float32, torch.int64, torch.bool)
            ]
        assert one.truth(by_name(one)["d"])["crowd"].tolist() == [crowd.crowd]
    truth = source.truth(by_name(source)["a"])
    truth["boxes"][:] = 0  # may be written to
    assert source.truth(by_name(source)["a"])["boxes"].max() == WIDTH


def test_the_order_of_files_does_not_matter(writer, kind, tmp_path):
    one = opened(writer.write())
    two = opened(BOXES[kind](tmp_path / "other").write(dict(reversed(SCENE.items()))))
    assert one.labels == two.labels
    for name, sample in by_name(one).items():
        other = by_name(two)[name]
        assert torch.equal(one.truth(sample)["boxes"], two.truth(other)["boxes"])


def test_what_is_left_out_is_told_and_the_rest_is_used(writer):
    box = (2, 3, 12, 10)
    things = [Thing(box), Thing(box), Thing(box, "dog"), Thing((4, 4, 4, 11)), Thing((0, 0, 5, 5))]
    scene = SCENE | {"a": things}
    source = opened(writer.write(scene))
    facts = {2: "class and the box of .*: left out", 3: "both are used", 4: "no area .*left out"}
    expected = [
        (writer.record("a", number, things[number - 1], scene), fact)
        for number, fact in facts.items()
    ]
    assert_problems(source.problems, expected)
    truth = source.truth(by_name(source)["a"])
    assert truth["labels"].tolist() == [0, 1, 0]
    assert check(source).unusable == []


@pytest.mark.parametrize("stated", [True, False])
def test_boxes_that_reach_over_the_edge_are_cut_off_and_told(kind, tmp_path, stated):
    things = [Thing((-1, 2, 9, 9)), Thing((20, 12, 50, 24)), Thing((1, 1, 5, 5))]
    writer, scene = BOXES[kind](tmp_path, sizes=stated), SCENE | {"a": things}
    source = opened(writer.write(scene))
    torch.testing.assert_close(
        source.truth(by_name(source)["a"])["boxes"],
        torch.tensor([[0.0, 2, 9, 9], [20, 12, 40, 20], [1, 1, 5, 5]]),
    )
    report = check(source)
    assert (report.truth.cut, report.unusable) == ({"train": 2}, [])
    over = [p for p in report.problems if "over the edge" in p.what]
    assert [p.file for p in over] == [writer.record("a", 2, things[1], scene)]  # not the one pixel
    assert over[0].what.startswith("its box reaches 10 pixels")
    known = "2 boxes" if stated or kind == "yolo" else "1 box"  # before any image is read
    assert f"train: over the edge of their image, and cut off there: {known}" in source.notes


def test_an_object_that_tells_nothing_spoils_its_image_alone(writer):
    source = opened(writer.write(SCENE | {"a": [*SCENE["a"], BROKEN]}))
    assert_spoiled(source, writer.image("a"), writer.wrong("a"), "")
    said = f"train: with boxes that cannot be used: 1 image, like {writer.image('a')}"
    assert said in source.notes


def test_classes_may_be_renamed_or_ignored(writer, kind):
    cat, dog = {"coco": ("3", "7"), "yolo": ("0", "1"), "voc": NAMES}[kind]
    source = opened(writer.write(), names={dog: "hound", cat: None})
    assert source.labels.names == ("hound",)
    assert source.truth(by_name(source)["c"])["labels"].tolist() == [0]
    called = "0" if kind == "yolo" else "cat"
    assert f"ignored: 3 objects of {called}: the names file has null" in source.notes
    assert check(source).unusable == [], "one class is enough"


def test_val_is_held_out_by_the_seed(writer):
    path = writer.write({f"{i:02}": SCENE["a"] for i in range(20)})
    source = opened(path, val_fraction=0.1, seed=3)
    assert sizes(source) == {"train": 18, "val": 2}
    assert opened(path, val_fraction=0.1, seed=3).splits == source.splits
    assert opened(path, val_fraction=0.1, seed=4).splits != source.splits


def test_images_of_another_size_are_refused(writer, kind):
    source = opened(writer.write(size=(HEIGHT + 1, WIDTH)))
    if kind == "yolo":  # which does not know
        assert len(source.truth(by_name(source)["a"])["boxes"]) == 2
        return
    with pytest.raises(DataError, match=r"are for 20x40 .*the image is 21x40") as error:
        source.truth(by_name(source)["a"])
    assert str(error.value).startswith(f"{writer.root}/{writer.wrong('a')}: ")


def test_images_that_exif_rotates_are_refused(kind, tmp_path):
    source = opened(BOXES[kind](tmp_path, exif=3).write())
    with pytest.raises(DataError, match=r"EXIF .*\(orientation 3\)"):
        source.truth(by_name(source)["a"])
    decoded = source.decode(by_name(source)["a"])
    with pytest.raises(DataError, match=r"EXIF .*\(orientation 3\)"):
        source.truth(by_name(source)["a"], decoded.size)


def test_an_image_that_is_missing(writer):
    source = opened(writer.write())
    (writer.root / writer.image("a")).unlink()
    for read in (source.image, source.truth):
        with pytest.raises(DataError, match=r"a\.png: there is no such file"):
            read(by_name(source)["a"])


# ---- outlines


def drawn(things):
    """(n, h, w)"""
    masks = np.zeros((len(things), HEIGHT, WIDTH), bool)
    for mask, thing in zip(masks, things, strict=True):
        left, top, right, bottom = thing.box
        mask[top:bottom, left:right] = True
    return masks


@pytest.mark.parametrize("kind", OUTLINES)
def test_masks_are_drawn_from_polygons(kind, tmp_path):
    path = OUTLINES[kind](tmp_path, polygons=True).write()
    source = pickle.loads(pickle.dumps(opened(path, truth="mask")))
    assert source.labels.names == ("background", *NAMES)
    for name, things in SCENE.items():
        expected = np.zeros((HEIGHT, WIDTH), np.int16)
        for thing, mask in zip(things, drawn(things), strict=True):
            expected[mask] = 1 + NAMES.index(thing.name)
        assert np.array_equal(source.truth(by_name(source)[name]), expected)
    ignoring = opened(path, truth="mask", names={"background": None} if kind == "coco" else None)
    outside = IGNORED if kind == "coco" else 0
    assert ignoring.truth(by_name(source)["b"]).unique().tolist() == [outside]
    assert opened(path).truth(by_name(source)["a"])["boxes"].tolist() == [
        [*map(float, thing.box)] for thing in SCENE["a"]
    ]


@pytest.mark.parametrize("kind", INSTANCES)
def test_instances_have_a_mask_each(kind, tmp_path):
    source = opened(INSTANCES[kind](tmp_path, polygons=True).write(), truth="instances")
    assert (source.kind, source.labels.names) == (kind, NAMES)
    for name, things in SCENE.items():
        truth, masks = source.truth(by_name(source)[name]), drawn(things)
        order = np.argsort([NAMES.index(t.name) for t in things]) if kind == "instances" else ...
        assert np.array_equal(truth["masks"].dense(), masks[order] if things else masks)
        assert truth["area"].tolist() == masks.sum(axis=(1, 2))[order].tolist()
        expected = np.array([thing.box for thing in things]).reshape(-1, 4)[order]
        assert truth["boxes"].tolist() == expected.tolist()
    assert check(source).unusable == []


# ---- nothing is opened twice


@pytest.fixture
def opens(monkeypatch):
    """How often each picture is opened, by its path."""
    counts, real = Counter(), builtins.open

    def counting(file, *args, **options):
        if str(file).endswith((".png", ".tif")):
            counts[str(file)] += 1
        return real(file, *args, **options)

    monkeypatch.setattr(builtins, "open", counting)
    return counts


@pytest.mark.parametrize("task", ["detect", "instance", "segment"])
@pytest.mark.parametrize("kind", WRITERS)
def test_nothing_is_opened_twice(kind, task, tmp_path, opens):
    """In training, in evaluation, and in the search for bad samples."""
    if (kind, task) not in {
        *(("voc", "detect"), ("masks", "segment"), ("instances", "instance")),
        *((kind, task) for kind in OUTLINES),
    }:
        pytest.skip(f"{kind} is not for {task}")
    writer = WRITERS[kind](tmp_path, polygons=True)
    if kind == "masks":
        writer.end = "tif"
    source = opened(writer.write(), truth=TASKS[task])
    samples, moves = source.splits["train"], task_class(task).truth
    pictures = sum(str(each).endswith(("png", "tif")) for s in samples for each in source.files(s))
    preprocess = Preprocess(image_size=16)

    def once(read):
        opens.clear()
        read()
        assert set(opens.values()) == {1}
        assert len(opens) == pictures

    train = TrainSet(source, samples, preprocess, Augment(), moves, 0)
    evaluated = EvalSet(source, samples, preprocess, moves)
    once(lambda: [train._get(Draw(0, i, i)) for i in range(len(samples))])
    once(lambda: [evaluated[i] for i in range(len(samples))])
    once(lambda: bad_samples(source, choose_preprocess=lambda source: preprocess))
