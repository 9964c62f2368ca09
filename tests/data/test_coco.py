"""COCO's JSON as masks: outlines of every kind, layouts, and files that are written badly."""

import contextlib
import json
import os
import pickle
import re

import numpy as np
import pytest
import torch
from faster_coco_eval.core import mask as runs
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from vitreous.data.coco import read_coco
from vitreous.data.source import IGNORED
from vitreous.data.sources import open_source
from vitreous.errors import DataError

HEIGHT, WIDTH = 20, 30
CATEGORIES = [{"id": 3, "name": "cat"}, {"id": 7, "name": "dog"}]


def polygon(left, top, right, bottom):
    return [left, top, right, top, right, bottom, left, bottom]


def thing(number, outline, category=3, image=1, **more):
    return {
        "id": number,
        "image_id": image,
        "category_id": category,
        "segmentation": outline,
        "bbox": [0, 0, 5, 5],
        "area": 25,
        "iscrowd": 0,
        **more,
    }


def square(number, category=3, image=1, **more):
    return thing(number, [polygon(2, 3, 12, 10)], category, image, **more)


def write(path, annotations, images=("1.png",), categories=CATEGORIES, folder=None, **more):
    """A COCO file and its images, numbered from 1; gives its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for name in images:
        file = (folder or path.parent) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (WIDTH, HEIGHT), "gray").save(file)
    records = [
        {"id": i, "file_name": name, "height": HEIGHT, "width": WIDTH}
        for i, name in enumerate(images, 1)
    ]
    values = {"images": records, "annotations": annotations, "categories": categories, **more}
    path.write_text(json.dumps(values), encoding="utf-8")
    return path


def opened(path, **options):
    return open_source(path, **{"task": "segment", "val_fraction": 0, **options})


def truth(path, **options):
    source = opened(path, **options)
    return source.truth(source.splits["train"][0]).numpy()


# ---- outlines


def encoded(pixels):
    rle = runs.encode(np.asfortranarray(pixels.astype(np.uint8)))
    return {"size": list(rle["size"]), "counts": rle["counts"].decode()}


def counted(pixels):
    flat = pixels.astype(int).flatten(order="F")
    changes = np.flatnonzero(np.diff(flat)) + 1
    counts = np.diff([0, *changes, len(flat)]).tolist()
    return {"size": list(pixels.shape), "counts": ([0] if flat[0] else []) + counts}


def test_polygons_and_runs_of_the_same_shape_are_the_same(tmp_path):
    expected = np.zeros((HEIGHT, WIDTH), bool)
    expected[3:10, 2:12] = True
    outlines = ([polygon(2, 3, 12, 10)], encoded(expected), counted(expected))
    for outline in outlines:
        mask = truth(write(tmp_path / "a.json", [thing(1, outline)]))
        np.testing.assert_array_equal(mask, np.where(expected, 1, 0))
    parts = [polygon(2, 3, 7, 10), polygon(7, 3, 12, 10)]
    mask = truth(write(tmp_path / "a.json", [thing(1, parts)]))
    np.testing.assert_array_equal(mask, np.where(expected, 1, 0))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.booleans(), min_size=12, max_size=12))
def test_runs_of_any_pixels(tmp_path_factory, pixels):
    expected = np.kron(np.array(pixels).reshape(3, 4), np.ones((7, 8)))[:HEIGHT, :WIDTH] > 0
    folder = tmp_path_factory.getbasetemp() / "runs"
    for outline in (encoded(expected), counted(expected)):
        mask = truth(
            write(folder / "a.json", [thing(1, outline), square(2, image=2)], ["1.png", "2.png"])
        )
        np.testing.assert_array_equal(mask, expected)


def test_smaller_objects_lie_on_larger_ones_and_crowds_are_ignored(tmp_path):
    large, small = [polygon(0, 0, 20, 20)], [polygon(5, 5, 10, 10)]
    crowd = np.zeros((HEIGHT, WIDTH), bool)
    crowd[:, 8:30] = True
    objects = [thing(1, small, 7), thing(2, large, 3), thing(3, counted(crowd), 3, iscrowd=1)]
    for order in (objects, objects[::-1]):
        mask = truth(write(tmp_path / "a.json", order))
        assert mask[6, 6] == mask[9, 9] == 2, "the small one"
        assert mask[15, 3] == 1
        assert mask[15, 15] == 1, "the crowd is larger and lies below"
        assert mask[6, 25] == IGNORED
        assert not (mask == 0).any()


def test_background(tmp_path):
    path = write(tmp_path / "a.json", [square(1, 7)], ["1.png", "empty.png"])
    source = opened(path)
    assert source.labels.names == ("background", "cat", "dog")
    assert source.labels.external == ("background", 3, 7)
    assert (source.kind, source.task) == ("coco", "segment")
    assert any("pixels of no object are the class 'background'" in note for note in source.notes)
    assert "train: 1 images have no objects" in source.notes
    masks = [source.truth(sample) for sample in source.splits["train"]]
    assert [mask.unique().tolist() for mask in masks] == [[0, 2], [0]]
    assert masks[0].dtype == torch.int16
    ignoring = opened(path, names={"background": None, "3": "kitten"})
    assert ignoring.labels.names == ("kitten", "dog")
    assert ignoring.labels.ignored == ("background",)
    assert ignoring.truth(ignoring.splits["train"][0]).unique().tolist() == [IGNORED, 1]
    without = opened(path, names={"7": None})
    assert without.truth(without.splits["train"][0]).unique().tolist() == [IGNORED, 0]
    with pytest.raises(DataError, match="the data has no class 5"):
        opened(path, names={"5": "cow"})


def test_a_category_that_is_called_background(tmp_path):
    categories = [{"id": 0, "name": "background"}, *CATEGORIES]
    source = opened(write(tmp_path / "a.json", [square(1)], categories=categories))
    assert source.labels.external == (0, 3, 7)
    assert source.truth(source.splits["train"][0]).unique().tolist() == [0, 1]


def test_pickled(tmp_path):
    source = opened(write(tmp_path / "a.json", [square(1), thing(2, counted(np.eye(20, 30) > 0))]))
    copied = pickle.loads(pickle.dumps(source))
    sample = source.splits["train"][0]
    assert copied.splits == source.splits
    assert torch.equal(copied.truth(sample), source.truth(sample))
    assert copied.image(sample).shape == (3, HEIGHT, WIDTH)


# ---- layouts


@pytest.mark.parametrize(
    ("file", "folder", "names"),
    [
        ("a.json", ".", ["1.png"]),
        ("a.json", ".", ["deep/1.png"]),
        ("a.json", "images", ["1.png"]),
        ("instances_train2017.json", "train2017", ["1.png"]),
        ("annotations/instances_train2017.json", "train2017", ["1.png"]),
        ("annotations/instances_train2017.json", "images/train2017", ["1.png"]),
        ("annotations/train.json", "images", ["1.png"]),
        ("annotations/train.json", ".", ["train/1.png"]),
        ("labels.json", "data", ["1.png"]),
    ],
)
def test_where_images_are(tmp_path, file, folder, names):
    path = write(tmp_path / file, [square(1)], names, folder=tmp_path / folder)
    for name in (path, f"coco:{path}"):
        source = opened(name)
        sample = source.splits["train"][0]
        assert os.path.samefile(source.file(sample), tmp_path / folder / names[0])
        assert source.truth(sample).shape == (HEIGHT, WIDTH)


def test_images_that_are_nowhere(tmp_path):
    path = write(tmp_path / "annotations" / "instances_val.json", [square(1)])
    (tmp_path / "annotations" / "1.png").unlink()
    with pytest.raises(DataError) as error:
        opened(path)
    said = str(error.value)
    assert said.startswith(f"{path}: its images (1.png …) are not in any of")
    for folder in ("annotations", "images", "val", "images/val"):
        assert f"{tmp_path}/{folder}" in said
    path = write(path, [square(1)], [f"{i}.png" for i in range(30)])
    (tmp_path / "annotations" / "7.png").unlink()
    source = opened(path)
    (sample,) = [sample for sample in source.splits["train"] if sample.id == "7.png"]
    for read in (source.image, source.truth):
        with pytest.raises(DataError, match=r"7\.png: there is no such file"):
            read(sample)


def test_an_absolute_path(tmp_path):
    image = tmp_path / "elsewhere" / "1.png"
    path = write(tmp_path / "a" / "a.json", [square(1)], [str(image)])
    assert opened(path).image(opened(path).splits["train"][0]).shape == (3, HEIGHT, WIDTH)


def coco_folder(root, splits=("train2017", "val2017"), **more):
    for split in splits:
        path = root / "annotations" / f"instances_{split}.json"
        write(path, [square(1)], ["1.png"], folder=root / split, **more)
    return root


def test_a_folder_as_cocos(tmp_path):
    coco_folder(tmp_path)
    (tmp_path / "annotations" / "captions_train2017.json").write_text("{}")
    for name in (tmp_path, f"coco:{tmp_path}"):
        source = opened(name)
        assert {split: [s.id for s in part] for split, part in source.splits.items()} == {
            "train": ["train2017/1.png"],
            "val": ["val2017/1.png"],
        }
        assert source.splits["val"][0].target == "annotations/instances_val2017.json#1"
        for part in source.splits.values():
            assert source.truth(part[0]).unique().tolist() == [0, 1]


def test_a_folder_as_roboflows(tmp_path):
    for split in ("train", "valid"):
        write(tmp_path / split / "_annotations.coco.json", [square(1)])
    source = opened(tmp_path)
    assert {split: [s.id for s in part] for split, part in source.splits.items()} == {
        "train": ["train/1.png"],
        "val": ["valid/1.png"],
    }


def test_splits_agree_on_classes_by_name(tmp_path):
    coco_folder(tmp_path)
    other = [{"id": 1, "name": "dog"}, {"id": 2, "name": "cat"}]
    path = tmp_path / "annotations" / "instances_val2017.json"
    write(path, [square(1, category=1)], folder=tmp_path / "val2017", categories=other)
    source = opened(tmp_path)
    assert source.labels.external == ("background", 3, 7)
    assert source.truth(source.splits["val"][0]).unique().tolist() == [0, 2], "a dog is a dog"
    other.append({"id": 3, "name": "cow"})
    write(path, [square(1, category=1)], folder=tmp_path / "val2017", categories=other)
    with pytest.raises(DataError, match=r"val2017\.json: has categories .* train has not: cow"):
        opened(tmp_path)


def test_folders_that_are_not_clear(tmp_path):
    coco_folder(tmp_path, ("train2014", "train2017"))
    with pytest.raises(DataError, match=r"instances_train2014\.json and .*2017.* both are for tra"):
        opened(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no COCO files: looked for annotations/instances_train"):
        opened(f"coco:{tmp_path}/empty")
    both = tmp_path / "both"
    for split in ("train", "val"):
        write(both / "annotations" / f"{split}.json", [square(1)], folder=both / "images")
    with pytest.raises(DataError, match=r"images/1\.png is in both train and val: keep it in one"):
        opened(both)


def test_other_json_files_do_not_make_a_folder_cocos(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        Image.new("L", (4, 4)).save(tmp_path / name / "1.png")
    (tmp_path / "annotations").mkdir()
    (tmp_path / "annotations" / "train.json").write_text('{"cat/1.png": "asleep"}')
    assert open_source(tmp_path, task=None).kind == "folder"


def test_the_task_must_be_said(tmp_path):
    path = write(tmp_path / "a.json", [square(1)])
    with pytest.raises(DataError, match=r"a\.json: is a COCO file.*--task segment"):
        open_source(path)
    with pytest.raises(DataError, match="was read as coco, which is data to segment, not to class"):
        open_source(path, task="classify")


def test_val_is_held_out(tmp_path):
    names = [f"{i}.png" for i in range(20)]
    path = write(tmp_path / "a.json", [square(1)], names)
    source = opened(path, val_fraction=0.1)
    assert {split: len(part) for split, part in source.splits.items()} == {"train": 18, "val": 2}
    assert "val: 2 images held out from train (10%, seed 0)" in source.notes


# ---- files that are written badly


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "is not a COCO file of objects.*it is not, and no list 'images'"),
        ('{"images": []}', "it has images, and no list 'annotations'"),
        ('{"images": [], "annotations": [], "categories": {}}', "no list 'categories'"),
        ('{"images": [], "annotations": [], "categories": []}', "no categories that can be used"),
        (
            '{"images": [], "annotations": [], "categories": [{"id": 1, "name": "a"}]}',
            "no images that can be used",
        ),
        (
            '{"images": [], "annotations": [], "categories": [{"id": 1, "name": "a"}, '
            '{"id": 1, "name": "b"}]}',
            "category 1 is both 'a' and 'b'",
        ),
    ],
)
def test_files_that_are_not_cocos(tmp_path, text, message):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(DataError, match=message) as error:
        opened(path)
    assert str(error.value).startswith(f"{path}: ")


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(DataError, match=r"no\.json: cannot be read"):
        opened(f"coco:{tmp_path}/no.json")
    (tmp_path / "a.json").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(DataError, match="is not text in UTF-8"):
        opened(tmp_path / "a.json")


def test_objects_without_outlines_are_for_boxes_only(tmp_path):
    path = write(tmp_path / "a.json", [thing(1, []), thing(2, None)])
    with pytest.raises(DataError, match=r"a\.json: none of its objects has an outline"):
        opened(path)


def test_two_categories_of_one_name(tmp_path):
    path = write(
        tmp_path / "a.json", [square(1)], categories=[*CATEGORIES, {"id": 9, "name": "cat"}]
    )
    with pytest.raises(DataError, match="two categories are called cat"):
        opened(path)


FAR = [1e9, 0, 1e9, 5, 0, 5]
SPOILED = {
    "no outline": (thing(5, []), "annotation 5 has no outline"),
    "no polygon": (thing(5, "abc"), "annotation 5 has no outline"),
    "a flat list": (thing(5, polygon(0, 0, 5, 5)), "annotation 5 has no outline"),
    "not a number": (thing(5, [[0, 0, 5, float("nan"), 5, 5]]), "annotation 5 has no outline"),
    "text in a polygon": (thing(5, [[0, 0, 5, "x", 5, 5]]), "annotation 5 has no outline"),
    "half a point": (thing(5, [[0, 0, 5, 0, 5, 5, 0]]), "annotation 5 has no outline"),
    "far away": (thing(5, [FAR]), "annotation 5: its outline lies far outside"),
    "runs of another size": (
        thing(5, {"size": [5, 5], "counts": [25]}),
        r"annotation 5: its RLE is for \[5, 5\], not for \[20, 30\]",
    ),
    "runs too short": (
        thing(5, {"size": [HEIGHT, WIDTH], "counts": [5, 5]}),
        "annotation 5: its RLE cannot be decoded",
    ),
    "runs too long": (
        thing(5, {"size": [HEIGHT, WIDTH], "counts": [5, 10_000]}),
        "annotation 5: its RLE cannot be decoded",
    ),
    "runs below zero": (
        thing(5, {"size": [HEIGHT, WIDTH], "counts": [5, -5, 600]}),
        "annotation 5: its RLE cannot be decoded",
    ),
    "runs of nonsense": (
        thing(5, {"size": [HEIGHT, WIDTH], "counts": "zzz~~~éé"}),
        "annotation 5: its RLE cannot be decoded",
    ),
    "runs without counts": (thing(5, {"size": [HEIGHT, WIDTH]}), "annotation 5 has no outline"),
    "a size of nonsense": (thing(5, {"size": 5, "counts": "x"}), "annotation 5: its RLE cannot be"),
    "unknown category": (square(5, category=99), r"annotation 5 of .*a\.json has the unknown cat"),
    "no category": (square(5, category=None), r"annotation 5 of .*a\.json has no category_id"),
}


@pytest.mark.parametrize("case", SPOILED)
def test_an_object_that_cannot_be_drawn_spoils_its_image(tmp_path, case):
    annotation, message = SPOILED[case]
    path = write(tmp_path / "a.json", [annotation, square(6, image=2)], ["1.png", "2.png"])
    source = opened(path)
    bad, good = source.splits["train"]
    with pytest.raises(DataError, match=f"^{tmp_path}/1.png: {message}") as error:
        source.truth(bad)
    assert "\n" not in str(error.value)
    assert source.truth(good).shape == (HEIGHT, WIDTH)


def test_odd_records_are_told_and_the_rest_is_used(tmp_path):
    annotations = [
        square("1"),
        square(2, image=99),
        square(3, image=None),
        "no record",
        square(4, bbox=[1, 2, float("nan"), 4]),
        thing(5, [[1, 1, 4, 4], polygon(0, 0, 3, 3)]),
        square(6, image="1"),
        square(None, image=10**400),
        square(8, image=True),
    ]
    path = write(tmp_path / "a.json", annotations)
    values = json.loads(path.read_text())
    values["images"] += [{"id": 8}, {"file_name": "x.png"}, None]
    values["images"][0] |= {"height": "tall", "width": None}
    values["categories"] += [{"id": 1}, None]
    path.write_text(json.dumps(values))
    coco = read_coco(str(path))
    told = {(problem.file.removeprefix(f"{path}, "), problem.what) for problem in coco.problems}
    assert told == {
        ("category 2 of the list", "has no id or no name: not used"),
        ("category 3 of the list", "has no id or no name: not used"),
        ("image 1", "height and width are tallxNone: not used"),
        ("image 1 of the list", "has no id or no file_name: not used"),
        ("image 2 of the list", "has no id or no file_name: not used"),
        ("image 3 of the list", "has no id or no file_name: not used"),
        ("annotation 2", "is for image 99, which is missing: not used"),
        ("annotation 3", "has no image_id: not used"),
        ("annotation 3 of the list", "has no image_id: not used"),
        (
            "annotation 4",
            "bbox is [1, 2, nan, 4], where left, top, width and height are expected: not used",
        ),
        ("annotation 5", "has a polygon of 2 points, which encloses nothing"),
        ("annotation 7 of the list", "has no image_id: not used"),
        ("annotation 8", "has no image_id: not used"),
        ("id", "1 times text where a number is usual: read as a number"),
        ("image_id", "1 times text where a number is usual: read as a number"),
    }
    assert [one.name for one in coco.objects[1]] == [f"annotation {i}" for i in (1, 4, 5, 6)]
    source = opened(path)
    assert source.problems == coco.problems
    assert source.truth(source.splits["train"][0]).unique().tolist() == [0, 1]


def test_images_that_are_there_twice(tmp_path):
    path = write(tmp_path / "a.json", [square(1)], ["1.png", "2.png", "3.png"])
    values = json.loads(path.read_text())
    values["images"].append({"id": 9, "file_name": "1.png"})
    values["images"].append({"id": 2, "file_name": "4.png"})
    path.write_text(json.dumps(values))
    source = opened(path)
    assert [sample.id for sample in source.splits["train"]] == ["1.png", "2.png", "3.png"]
    messages = ("1.png: is there twice, as image 1 and 9", "2.png: its id 2 is also that of 4.png")
    for sample, message in zip(source.splits["train"], messages, strict=False):
        with pytest.raises(DataError, match=re.escape(message)):
            source.truth(sample)
    assert len(source.problems) == 2


def test_a_size_that_is_not_the_images(tmp_path):
    path = write(tmp_path / "a.json", [square(1)])
    Image.new("L", (WIDTH, HEIGHT + 1)).save(tmp_path / "1.png")
    source = opened(path)
    said = rf"^{tmp_path}/1\.png: is 21x30 \(height x width\), but a\.json says 20x30"
    with pytest.raises(DataError, match=said):
        source.truth(source.splits["train"][0])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_nothing_in_a_file_makes_the_reading_crash(tmp_path_factory, data):
    folder = tmp_path_factory.getbasetemp() / "fuzz"
    path = write(folder / "a.json", [square(1), square(2)])
    values = json.loads(path.read_text())
    part = data.draw(st.sampled_from(["images", "annotations", "categories"]))
    record = values[part][0]
    record[data.draw(st.sampled_from(sorted(record)))] = data.draw(json_values)
    path.write_text(json.dumps(values))
    with contextlib.suppress(DataError):
        source = opened(path)
        for sample in source.splits["train"]:
            source.truth(sample)
