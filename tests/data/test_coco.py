"""COCO's JSON as masks and as boxes: outlines, ids, layouts, and files that are written badly."""

import contextlib
import json
import os
import re
import tracemalloc

import numpy as np
import pytest
import torch
from faster_coco_eval.core import mask as runs
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from source_facts import assert_problems, assert_spoiled, ids

from vitreous.data.formats import open_source
from vitreous.data.objects.coco_json import NAMES, Coco
from vitreous.data.objects.table import ObjectTable
from vitreous.data.source import IGNORED
from vitreous.errors import DataError
from vitreous.tasks.data_check import bad_samples, check

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


@contextlib.contextmanager
def changing(path):
    """What a file has, to be changed."""
    values = json.loads(path.read_text())
    yield values
    path.write_text(json.dumps(values))


def opened(path, **options):
    return open_source(path, **{"truth": "mask", "val_fraction": 0, **options})


def reading(path, outlines=True):
    coco = Coco(str(path), ObjectTable(NAMES, outlines=outlines))
    coco.table.close()
    return coco


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
    assert (source.kind, source.truth_kind) == ("coco", "mask")
    assert any("pixels of no object are the class 'background'" in note for note in source.notes)
    assert "train: without objects: 1 image" in source.notes
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


def test_an_absolute_path(tmp_path):
    image = tmp_path / "a" / "below" / "1.png"
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
        assert ids(source) == {"train": ["train2017/1.png"], "val": ["val2017/1.png"]}
        assert source.splits["val"][0].target == "annotations/instances_val2017.json#1"
        for part in source.splits.values():
            assert source.truth(part[0]).unique().tolist() == [0, 1]


def test_a_folder_as_roboflows(tmp_path):
    for split in ("train", "valid"):
        write(tmp_path / split / "_annotations.coco.json", [square(1)])
    assert ids(opened(tmp_path)) == {"train": ["train/1.png"], "val": ["valid/1.png"]}


def test_splits_agree_on_classes_by_name(tmp_path):
    coco_folder(tmp_path)
    other = [{"id": 1, "name": "dog"}, {"id": 2, "name": "cat"}]
    path = tmp_path / "annotations" / "instances_val2017.json"
    write(path, [square(1, category=1)], folder=tmp_path / "val2017", categories=other)
    source = opened(tmp_path)
    assert source.labels.external == ("background", 3, 7)
    assert source.truth(source.splits["val"][0]).unique().tolist() == [0, 2], "a dog is a dog"
    source = detect(tmp_path)
    assert source.labels.external == (3, 7)
    assert source.truth(source.splits["val"][0])["labels"].tolist() == [1]
    assert any("val:" in note and "other ids" in note for note in source.notes)
    assert source.image_ids == {"train2017/1.png": 1, "val2017/1.png": 1}
    other.append({"id": 3, "name": "cow"})
    write(path, [square(1, category=1)], folder=tmp_path / "val2017", categories=other)
    with pytest.raises(DataError, match=r"val2017\.json: has categories .* train: cow"):
        opened(tmp_path)


def test_folders_that_are_not_clear(tmp_path):
    coco_folder(tmp_path, ("train2014", "train2017"))
    with pytest.raises(DataError, match=r"instances_train2014\.json and .*2017.* both mean tra"):
        opened(tmp_path)
    both = tmp_path / "both"
    for split in ("train", "val"):
        write(both / "annotations" / f"{split}.json", [square(1)], folder=both / "images")
    with pytest.raises(DataError, match=r"images/1\.png is in both train and val, with labels"):
        opened(both)


def test_the_usual_task_is_to_detect(tmp_path):
    path = write(tmp_path / "a.json", [square(1)])
    assert open_source(path, val_fraction=0).truth_kind == "boxes"
    with pytest.raises(DataError, match=r"coco.* ground truth is boxes or mask"):
        open_source(path, truth="class")


# ---- files that are written badly


NOT_JSON = (
    *("", "[", "{", '{"a"', '{"a":', '{"a":1', '{"a":1,', '{"a":1,}', "{,}", "{a:1}", "{} x"),
    *('{"a":[1,2}', '{"a":[1 2]}', '{"a":[1,]}', '{"a":[]} x', '{"images":[{"id":}]}'),
    *("[" * 100_000, '{"a":' + "[" * 200_000),
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((text, "is not JSON") for text in NOT_JSON),
        *((text, "is not a COCO file") for text in ("{}", "[]", "3")),
        ("[]", "is not a COCO file of objects.*it is not, and no list 'images'"),
        ('{"images": []}', "it has images, and no list 'annotations'"),
        ('{"images": [], "annotations": [], "categories": {}}', "no list 'categories'"),
        ('{"images": [], "annotations": [], "categories": []}', "no usable categories"),
        (
            '{"images": [], "annotations": [], "categories": [{"id": 1, "name": "a"}]}',
            "no usable images",
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


def runs_for(counts):
    return thing(5, {"size": [HEIGHT, WIDTH], "counts": counts})


NO_OUTLINE, NO_BOX = "annotation 5 has no outline", "annotation 5 has no usable box"
NOT_DECODED = "annotation 5: its RLE cannot be decoded"
FAR = [1e9, 0, 1e9, 5, 0, 5]
SPOILED = {
    "no outline": (thing(5, []), NO_OUTLINE),
    "no polygon": (thing(5, "abc"), NO_OUTLINE),
    "a flat list": (thing(5, polygon(0, 0, 5, 5)), NO_OUTLINE),
    "not a number": (thing(5, [[0, 0, 5, float("nan"), 5, 5]]), NO_OUTLINE),
    "text in a polygon": (thing(5, [[0, 0, 5, "x", 5, 5]]), NO_OUTLINE),
    "half a point": (thing(5, [[0, 0, 5, 0, 5, 5, 0]]), NO_OUTLINE),
    "far away": (thing(5, [FAR]), "annotation 5: its outline lies far outside"),
    "runs of another size": (
        thing(5, {"size": [5, 5], "counts": [25]}),
        r"annotation 5: its RLE is for \[5, 5\], not for \[20, 30\]",
    ),
    "runs too short": (runs_for([5, 5]), NOT_DECODED),
    "runs too long": (runs_for([5, 10_000]), NOT_DECODED),
    "runs below zero": (runs_for([5, -5, 600]), NOT_DECODED),
    "runs of nonsense": (runs_for("zzz~~~éé"), NOT_DECODED),
    "runs without counts": (thing(5, {"size": [HEIGHT, WIDTH]}), NO_OUTLINE),
    "a size of nonsense": (thing(5, {"size": 5, "counts": "x"}), "annotation 5: its RLE cannot be"),
    "unknown category": (square(5, category=99), r"annotation 5 of .*a\.json has the unknown cat"),
    "no category": (square(5, category=None), r"annotation 5 of .*a\.json has no category_id"),
}


@pytest.mark.parametrize("case", SPOILED)
def test_an_object_that_cannot_be_drawn_spoils_its_image(tmp_path, case):
    annotation, message = SPOILED[case]
    path = write(tmp_path / "a.json", [annotation, square(6, image=2)], ["1.png", "2.png"])
    assert_spoiled(opened(path), "1.png", "1.png", message)


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
    with changing(path) as values:
        values["images"] += [{"id": 8}, {"file_name": "x.png"}, None]
        values["images"][0] |= {"height": "tall", "width": None}
        values["categories"] += [{"id": 1}, None]
    coco = reading(path)
    facts = {
        "category 2 of the list": "no name",
        "category 3 of the list": "no id",
        "image 1": "tallxNone",
        "image 1 of the list": "no file_name",
        "image 2 of the list": "no id",
        "image 3 of the list": "no id",
        "annotation 2": "image_id 99",
        "annotation 3": "no image_id",
        "annotation 3 of the list": "no image_id",
        "annotation 4": r"bbox is '\[1, 2, nan, 4\]'",
        "annotation 5": "2 points",
        "annotation 7 of the list": f"image_id '1{'0' * 39}'",
        "annotation 8": "image_id 'True'",
        "id": "1 .*text",
        "image_id": "1 .*text",
    }
    assert_problems(coco.problems, [(f"{path}, {of}", fact) for of, fact in facts.items()])
    names = [one.name for one in coco.table.objects(coco.images[1])]
    assert names == [f"annotation {i}" for i in (1, 4, 5, 6)]
    source = opened(path)
    assert source.problems == coco.problems
    assert source.truth(source.splits["train"][0]).unique().tolist() == [0, 1]


def test_images_that_are_there_twice(tmp_path):
    path = write(tmp_path / "a.json", [square(1)], ["1.png", "2.png", "3.png"])
    with changing(path) as values:
        values["images"] += [{"id": 9, "file_name": "./1.png"}, {"id": 2, "file_name": "4.png"}]
    source = opened(path)
    assert [sample.id for sample in source.splits["train"]] == ["1.png", "2.png", "3.png"]
    messages = ("1.png: occurs twice, as image 1 and 9", "2.png: its id 2 is also that of 4.png")
    for sample, message in zip(source.splits["train"], messages, strict=False):
        with pytest.raises(DataError, match=re.escape(message)):
            source.truth(sample)
    assert len(source.problems) == 2


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)


@pytest.mark.parametrize("truth", ["mask", "boxes"])
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_nothing_in_a_file_makes_the_reading_crash(tmp_path_factory, truth, data):
    path = tmp_path_factory.getbasetemp() / f"fuzz-{truth}" / "a.json"
    write(path, [square(1), square(2, bbox=[3, 4, 5, 6])])
    with changing(path) as values:
        part = data.draw(st.sampled_from(["images", "annotations", "categories"]))
        record = values[part][0]
        record[data.draw(st.sampled_from(sorted(record)))] = data.draw(json_values)
    with contextlib.suppress(DataError):
        source = opened(path, truth=truth)
        assert len(check(source, workers=1).unusable) >= len(bad_samples(source, workers=1))
        for sample in source.splits["train"]:
            found = source.truth(sample)
            if truth == "boxes":
                assert (found["boxes"][:, 2:] > found["boxes"][:, :2]).all()


# ---- boxes


def boxed(number, box, category=3, image=1, **more):
    return thing(number, [], category, image, bbox=box, **more)


def detect(path, **options):
    return opened(path, **{"truth": None, **options})


def first_boxes(path, **options):
    source = detect(path, **options)
    return source.truth(source.splits["train"][0])


def test_truth_of_boxes(tmp_path):
    annotations = [
        boxed(1, [2, 3, 10, 7]),
        boxed(2, [0.5, 0, 4.25, 20], 7),
        boxed(3, [0, 0, 30, 20], 7, iscrowd=1),
    ]
    path = write(tmp_path / "a.json", annotations, ["1.png", "empty.png"])
    source = detect(path)
    assert (source.kind, source.truth_kind) == ("coco", "boxes")
    assert (source.labels.names, source.labels.external) == (("cat", "dog"), (3, 7))
    truth, empty = map(source.truth, source.splits["train"])
    assert truth["boxes"].tolist() == [[2, 3, 12, 10], [0.5, 0, 4.75, 20], [0, 0, 30, 20]]
    assert truth["area"].tolist() == [25] * 3  # as the file has it, whatever the boxes are
    assert truth["area"].dtype == torch.float64
    assert [tuple(values.shape) for values in empty.values()] == [(0, 4), (0,), (0,)]
    assert source.image_ids == {"1.png": 1, "empty.png": 2}
    assert source.problems == []


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(
        st.integers(-5, 10) | st.integers(-(10**12), 10**12),
        st.text("abcdef", min_size=1, max_size=5),
        min_size=1,
        max_size=8,
    ),
    st.integers(0, 10**12),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_whatever_ids_a_file_has_a_class_keeps_its_id_and_name(
    tmp_path_factory, by_id, image_id, as_text, random
):
    by_id = {id: f"{name}{id}" for id, name in by_id.items()}
    drawn = [random.choice(list(by_id)) for _ in range(6)]
    categories = [{"id": id, "name": name} for id, name in by_id.items()]
    random.shuffle(categories)
    annotations = [
        boxed(number, [number, 1, 2, 3], str(id) if as_text and id >= 0 else id, image_id)
        for number, id in enumerate(drawn)
    ]
    folder = tmp_path_factory.getbasetemp() / "ids"
    path = write(folder / "a.json", annotations, categories=categories)
    with changing(path) as values:
        values["images"][0]["id"] = image_id
    source = detect(path)
    (sample,) = source.splits["train"]
    labels = source.truth(sample)["labels"].tolist()
    assert [source.labels.external[label] for label in labels] == drawn
    assert [source.labels.names[label] for label in labels] == [by_id[id] for id in drawn]
    assert list(source.labels.external) == sorted(by_id), "also those without an object"
    assert source.image_ids == {sample.id: image_id}


BAD_BOXES = {
    "no box": (boxed(5, None), NO_BOX),
    "an empty list": (boxed(5, []), NO_BOX),
    "three numbers": (boxed(5, [1, 2, 3]), NO_BOX),
    "text": (boxed(5, [1, 2, 3, "4"]), NO_BOX),
    "a word": (boxed(5, "large"), NO_BOX),
    "not a number": (boxed(5, [1, 2, float("nan"), 4]), NO_BOX),
    "infinite": (boxed(5, [1, 2, float("inf"), 4]), NO_BOX),
    "negative": (
        boxed(5, [8, 2, -3, 4]),
        "annotation 5: its box ends before it begins: left 8, top 2, right 5, bottom 6",
    ),
    "outside": (
        boxed(5, [31, 2, 5, 5]),
        r"annotation 5: its box is outside the image of 20x30 \(height x width\): left 31",
    ),
    "touching": (boxed(5, [-5, 2, 5, 5]), "annotation 5: its box is outside the image"),
    "far outside": (boxed(5, [-1e8, 0, 5, 5]), "annotation 5: its box is outside"),
    "beyond": (boxed(5, [-1e15, 0, 5, 5]), "annotation 5: its box has impossible numbers"),
    "unknown category": (boxed(5, [0, 0, 5, 5], 99), r"annotation 5 of .*a\.json has the unknown"),
    "no category": (boxed(5, [0, 0, 5, 5], None), r"annotation 5 of .*a\.json has no category_id"),
    "a category of letters": (
        boxed(5, [0, 0, 5, 5], "dog"),
        r"annotation 5 of .*a\.json has the category_id 'dog', expected a whole number",
    ),
}


@pytest.mark.parametrize("case", BAD_BOXES)
def test_a_box_that_tells_nothing_spoils_its_image(tmp_path, case):
    annotation, message = BAD_BOXES[case]
    good = boxed(6, [1, 1, 5, 5], image=2)
    path = write(tmp_path / "a.json", [good, annotation], ["1.png", "2.png"])
    assert_spoiled(detect(path), "1.png", "1.png", message)


def test_several_faults_of_one_image_are_all_told(tmp_path):
    annotations = [boxed(i, [8, 2, -3, 4]) for i in range(4)] + [boxed(9, [0, 0, 5, 5], 99)]
    source = detect(write(tmp_path / "a.json", annotations))
    with pytest.raises(DataError) as error:
        source.truth(source.splits["train"][0])
    assert [f"annotation {i}" in str(error.value) for i in (0, 1, 2, 3, 9)] == [True] * 5
    assert "train: with boxes that cannot be used: 1 image, like 1.png" in source.notes


def test_records_that_belong_nowhere_are_told(tmp_path):
    annotations = [
        boxed(1, [1, 1, 5, 5]),
        boxed(1, [2, 2, 5, 5]),
        boxed(2, [1, 1, 5, 5], image=77),
        boxed(3, [1, 1, 5, 5], image="one"),
        {"id": 4, "category_id": 3, "bbox": [1, 1, 5, 5]},
        boxed("five", [9, 9, 5, 5]),
    ]
    path = write(tmp_path / "a.json", annotations)
    with changing(path) as values:
        values["images"].append({"id": "two", "file_name": "2.png"})
        values["categories"].append({"id": "three", "name": "cow"})
    source = detect(path)
    facts = {
        "annotation 2": "image_id 77",
        "annotation 3": "image_id 'one'",
        "annotation 4": "no image_id",
        "image 1 of the list": "id 'two'",
        "category 2 of the list": "id 'three'",
        "annotations": "1 ids .* several annotations",
    }
    assert_problems(source.problems, [(f"{path}, {of}", fact) for of, fact in facts.items()])
    assert len(source.truth(source.splits["train"][0])["boxes"]) == 3


def test_images_that_exif_turns(tmp_path):
    path = write(tmp_path / "a.json", [boxed(1, [1, 1, 5, 5])], ["1.jpg"])
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("L", (HEIGHT, WIDTH)).save(tmp_path / "1.jpg", exif=exif)  # seen as 20x30
    assert first_boxes(path)["boxes"].tolist() == [[1, 1, 6, 6]]
    Image.new("L", (WIDTH, HEIGHT)).save(tmp_path / "1.jpg", exif=exif)
    with pytest.raises(DataError, match=r"but the image is 30x20 .*EXIF"):
        first_boxes(path)


def test_objects_without_any_box(tmp_path):
    path = write(tmp_path / "a.json", [square(1, bbox=None)])
    with pytest.raises(DataError, match=r"none of its objects has a box"):
        detect(path)
    assert len(detect(write(tmp_path / "b.json", [])).splits["train"]) == 1, "no objects are legal"


@pytest.mark.parametrize(
    ("part", "values", "why"),
    [
        ("images", {"id": "im-0", "file_name": "1.png"}, "has the id 'im-0', expected a whole"),
        ("images", {"id": 1.5, "file_name": "1.png"}, "has the id '1.5', expected a whole"),
        ("categories", {"id": "cat", "name": "cat"}, "has the id 'cat', expected a whole"),
        ("categories", {"id": 1}, "has no name"),
        ("images", None, "the list is empty"),
    ],
)
def test_a_file_without_anything_to_use_says_why(tmp_path, part, values, why):
    path = write(tmp_path / "a.json", [square(1)])
    with changing(path) as whole:
        whole[part] = [] if values is None else [values]
    with pytest.raises(DataError, match=f"has no usable {part}: {why}"):
        reading(path)


def test_values_that_mean_nothing_are_told(tmp_path):
    odd = [
        square(1, iscrowd="yes"),
        square(2, iscrowd="1"),
        square(3, area=-4),
        square(4, area="9"),
        square(5, area=9.5),
    ]
    coco = reading(write(tmp_path / "a.json", odd))
    facts = {1: "iscrowd is 'yes'", 3: "area is '-4'", 4: "area is '9'"}
    expected = [(f"{tmp_path}/a.json, annotation {id}", fact) for id, fact in facts.items()]
    assert_problems(coco.problems, expected)
    objects = list(coco.table.objects(coco.images[1]))
    assert [thing.crowd for thing in objects] == [False, True, False, False, False]
    assert [thing.area for thing in objects][2:] == [None, None, 9.5]


# ---- large files


def test_a_large_file_takes_little_memory(tmp_path):
    """224 MB took 1.7 GB, eight times the file; most of it for Python's objects."""
    random = np.random.default_rng(0)
    boxes = random.uniform(1, 10, (20_000, 4)).round(2).tolist()
    objects = [
        {"id": i, "image_id": i % 2 + 1, "category_id": 3, "bbox": b, "area": 5.5, "iscrowd": 0}
        for i, b in enumerate(boxes)
    ]
    path = write(tmp_path / "a.json", objects, ["1.png", "2.png"])
    reading(path, outlines=False)  # modules are imported now
    tracemalloc.start()
    try:
        coco = reading(path, outlines=False)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert coco.images[1].stop - coco.images[1].start == 10_000
    assert kept < path.stat().st_size
    assert peak < 4 * path.stat().st_size


def test_objects_in_a_table_are_as_the_file_has_them(tmp_path):
    """In its order, also where some are odd and images take turns."""
    objects = [
        thing(7, [], 3, image=2, bbox=[1, 2, 3, 4.5]),
        thing("8", [], 7, image=1, area=None),
        thing(9, [], 7, image=2, bbox=[0, 1, 2, 2], iscrowd=1, area=3),
        thing(10, [], 7, image=2, bbox="odd"),
        thing(11, [], 3, image=1, bbox=[1.5, 1, 2, 2]),
    ]
    path = write(tmp_path / "a.json", objects, ["1.png", "2.png"])
    coco = reading(path, outlines=False)
    assert [tuple(one)[:5] for one in coco.table.objects(coco.images[1])] == [
        (8, "dog", (0, 0, 5, 5), False, None),
        (11, "cat", (1.5, 1, 3.5, 3), False, 25),
    ]
    second = list(coco.table.objects(coco.images[2]))
    assert [tuple(one)[:5] for one in second] == [
        (7, "cat", (1, 2, 4, 6.5), False, 25),
        (9, "dog", (0, 1, 2, 3), True, 3),
        (10, "dog", None, False, 25),
    ]
    assert [one.name for one in second] == ["annotation 7", "annotation 9", "annotation 10"]
