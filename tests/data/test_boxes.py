"""Boxes, whatever file they come from: the rules, the shapes, and the data check."""

import json
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from vitreous.cli.main import main
from vitreous.data.formats import open_source
from vitreous.data.objects.table import (
    AnnotatedObject,
    Annotation,
    ObjectTable,
    check_corners,
    cut_to_image,
)
from vitreous.errors import DataError
from vitreous.tasks.data_check import bad_samples, check

RANDOM = np.random.default_rng(0)
CLASSES = {number: number for number in range(3)}


# ---- the rules


number = st.floats(allow_nan=True, allow_infinity=True) | st.integers(-50, 90).map(float)
records = st.lists(
    st.tuples(st.integers(0, 2), st.tuples(number, number, number, number), st.booleans()),
    max_size=8,
)


def placed(boxes, size, **options):
    table = ObjectTable("box {number}")
    annotation = table.add_image(Annotation())
    table.add(annotation, boxes)
    table.close().label(CLASSES)
    return cut_to_image(table, annotation, size, **options)


@given(records, st.integers(1, 60), st.integers(1, 60), st.booleans())
def test_every_box_is_used_told_or_wrong(many, height, width, parts):
    boxes = [AnnotatedObject(i, *record, name=f"box {i}") for i, record in enumerate(many)]
    kept = []
    for box, verdict in zip(boxes, check_corners(boxes, normalised=parts), strict=True):
        left, top, right, bottom = box.corners
        usual = all(abs(side) < 1e9 for side in box.corners)
        if verdict.kept:
            kept.append(box)
        elif verdict.error:
            assert verdict.error.startswith(f"{box.name}:")
            assert not (usual and left <= right and top <= bottom)
        else:
            assert verdict.remark.endswith("left out")
    assert len({(b.category, b.corners, b.crowd) for b in kept}) == len(kept)
    try:
        truth, over = placed(kept, (height, width), normalised=parts)
    except DataError:  # one lies outside
        return
    assert truth["boxes"].shape == (len(kept), 4)
    assert truth["labels"].tolist() == [box.category for box in kept]
    assert truth["crowd"].tolist() == [box.crowd for box in kept]
    left, top, right, bottom = truth["boxes"].T
    assert ((left >= 0) & (left < right) & (right <= width)).all()
    assert ((top >= 0) & (top < bottom) & (bottom <= height)).all()
    assert len(over) == len(kept)
    assert all(far == 0 or far > 0.01 for far in over)


def test_boxes_inside_stay_as_they_are():
    boxes = [AnnotatedObject(1, 1, (0, 0, 8, 6)), AnnotatedObject(2, 0, (1.25, 2.5, 3, 4), True)]
    assert all(verdict == (True, "", "") for verdict in check_corners(boxes))
    truth, over = placed(boxes, (6, 8))
    assert truth["boxes"].tolist() == [[0, 0, 8, 6], [1.25, 2.5, 3, 4]]
    assert over == [0, 0]
    truth, _ = placed([], (6, 8))
    assert [tuple(values.shape) for values in truth.values()] == [(0, 4), (0,), (0,)]


# ---- the data check


def boxed(number, image, box, category=1, **more):
    return {"id": number, "image_id": image, "category_id": category, "bbox": box, **more}


def coco(root, annotations, count=1, size=(100, 120), names=("cat", "dog"), split="train"):
    """A split of images, numbered from 1 and all different, as COCO's."""
    height, width = size
    records = []
    for number in range(1, count + 1):
        path = root / split / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        small = RANDOM.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(small).resize((width, height), Image.Resampling.NEAREST).save(path)
        records.append({"id": number, "file_name": path.name, "height": height, "width": width})
    categories = [{"id": i, "name": name} for i, name in enumerate(names, 1)]
    values = {"images": records, "annotations": annotations, "categories": categories}
    path = root / "annotations" / f"instances_{split}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values))
    return path


def checked(path, **options):
    return check(open_source(path, val_fraction=0), **options)


def told(report):
    """But not that there is no val."""
    return {(p.file, p.what) for p in report.problems if not p.fatal or p in report.unusable}


def whats(report):
    return [problem.what for problem in report.problems]


def test_what_is_counted(tmp_path):
    coco(
        tmp_path,
        [
            boxed(1, 1, [0, 0, 31, 31]),
            boxed(2, 1, [40, 0, 32, 32]),
            boxed(3, 1, [0, 0, 100, 96], 2),
            boxed(4, 2, [10, 10, 40, 40]),
            boxed(5, 2, [0, 0, 120, 100], 2, iscrowd=1),
            boxed(6, 2, [90, 90, 31, 10]),
        ],
        count=3,
    )
    coco(tmp_path, [boxed(1, 1, [5, 5, 20, 20], 2)], split="val")
    report = checked(tmp_path)
    assert (report.kind, report.truth_kind, report.splits) == (
        "coco",
        "boxes",
        {"train": 3, "val": 1},
    )
    assert report.truth.classes == {"cat": {"train": 2, "val": 0}, "dog": {"train": 1, "val": 1}}
    assert report.truth.objects == {"cat": {"train": 4, "val": 0}, "dog": {"train": 1, "val": 1}}
    assert report.truth.crowd == {"train": 1, "val": 0}
    assert report.truth.empty == {"train": 1, "val": 0}
    assert report.truth.object_sizes == {
        "train": {"small": 2, "medium": 2, "large": 1},
        "val": {"small": 1, "medium": 0, "large": 0},
    }
    assert report.truth.per_image == {
        "train": {"median": 2, "largest": 3},
        "val": {"median": 1, "largest": 1},
    }
    assert report.truth.cut == {"train": 1, "val": 0}
    assert whats(report) == ["class 'cat' has no objects in val"]
    assert json.loads(json.dumps(report.to_dict()))["objects"]["cat"] == {"train": 4, "val": 0}


def test_images_with_more_objects_than_queries(tmp_path):
    grid = [[x, y, 4, 4] for x in range(0, 120, 5) for y in range(0, 25, 5)]
    annotations = [boxed(i, 1, box) for i, box in enumerate(grid)]  # 120
    annotations += [boxed(200 + i, 2, box) for i, box in enumerate(grid[:100])]
    annotations.append(boxed(400, 2, [0, 0, 120, 100], iscrowd=1))
    coco(tmp_path, annotations, count=2)
    many = "has {} objects, but a model with {} queries finds at most those"
    assert {what for file, what in told(checked(tmp_path)) if file == "train/1.png"} == {
        many.format(120, 100)
    }
    found = told(checked(tmp_path, queries=50))
    assert ("train/2.png", many.format(100, 50)) in found
    assert not any("queries" in what for what in whats(checked(tmp_path, queries=120)))


def test_classes_that_are_missing_or_rare(tmp_path):
    annotations = [boxed(i, i, [5, 5, 30, 40], 1) for i in range(1, 21)]
    annotations += [boxed(30, 1, [50, 50, 30, 30], 2)]
    coco(tmp_path, annotations, count=20, names=("usual", "rare", "new", "nowhere"))
    val = [boxed(1, 1, [5, 5, 30, 40], 3), boxed(2, 1, [50, 5, 30, 30], 1)]
    coco(tmp_path, val, names=("usual", "rare", "new", "nowhere"), split="val")
    assert {
        "class 'rare' has no objects in val",
        "class 'rare' is in only 1 of the 20 images of train",
        "class 'new' has no objects in train: it cannot be learned",
        "class 'nowhere' has no objects at all",
    } <= set(whats(checked(tmp_path)))


def test_boxes_that_are_probably_one_object(tmp_path):
    path = coco(
        tmp_path,
        [
            boxed(1, 1, [10, 10, 50, 50]),
            boxed(2, 1, [12, 12, 50, 50]),
            boxed(3, 1, [11, 11, 50, 50], 2),
            boxed(4, 1, [40, 40, 50, 50]),
            boxed(5, 1, [11, 10, 50, 50], iscrowd=1),
            boxed(6, 1, [90, 10, 1.5, 50]),
        ],
    )
    report = checked(tmp_path)
    assert told(report) == {
        (
            f"{path}, annotation 2",
            "covers nearly what annotation 1 covers, 85% of both: is it the same cat?",
        ),
        (f"{path}, annotation 6", "its box is only 1.5 pixels thin"),
    }


def test_sizes_and_absences_that_are_not_usual(tmp_path):
    annotations = []
    for image in range(1, 31):
        side = 20 + image % 5
        annotations.append(boxed(image, image, [30, 30, side, side], 2))
        if image < 29:
            annotations.append(boxed(100 + image, image, [60, 60, side / 2, side / 2], 1))
    annotations += [boxed(300, 1, [0, 0, 100, 90], 1)]
    path = coco(tmp_path, annotations, count=31)
    report = checked(tmp_path)
    without = "has no 'cat', which 93% of the images have: is it labelled wholly?"
    assert told(report) == {
        (
            f"{path}, annotation 300",
            "is 95 pixels in the mean of its sides, where 11 are usual for 'cat'",
        ),
        ("train/29.png", without),
        ("train/30.png", without),  # but not 31, which has no objects at all
    }


def test_the_same_picture_with_other_boxes(tmp_path):
    coco(tmp_path, [boxed(1, 1, [5, 5, 30, 40]), boxed(2, 2, [5, 5, 30, 41])], count=3)
    picture = (tmp_path / "train" / "1.png").read_bytes()
    (tmp_path / "train" / "2.png").write_bytes(picture)
    (tmp_path / "train" / "3.png").write_bytes(picture)
    report = checked(tmp_path)
    assert report.duplicates == {"train": 2, "across": 0}
    what = "has other boxes than the same picture train/2.png (3 copies in all)"
    assert ("train/1.png", what) in told(report)


def test_bad_images_and_bad_boxes_are_both_named(tmp_path):
    coco(tmp_path, [boxed(i, i, [5, 5, 30, 40]) for i in (1, 2)] + [boxed(3, 3, "?")], count=3)
    (tmp_path / "train" / "2.png").write_bytes(b"")
    report = checked(tmp_path)
    assert [problem.file for problem in report.unusable] == ["train/2.png", "train/3.png"]
    assert set(bad_samples(open_source(tmp_path))) == {"train/2.png", "train/3.png"}
    assert report.truth.objects["cat"] == {"train": 1}
    assert report.splits == {"train": 3}, "nothing is dropped"


def test_command(tmp_path, capsys):
    coco(tmp_path, [boxed(i, 1, [5 * i, 5, 4, 4]) for i in range(12)], count=2)
    assert (
        main(["data", "check", str(tmp_path), "--queries", "10", "--json", "--val-fraction", "0"])
        == 2
    ), "there is no val"
    report = json.loads(capsys.readouterr().out)
    assert report["per_image"]["train"] == {"median": 6.0, "largest": 12}
    assert any("12 objects, but a model with 10 queries" in p["what"] for p in report["problems"])


# ---- real data


BCCD = os.path.join(os.path.dirname(__file__), "..", "..", "..", "shared", "data", "bccd")


@pytest.mark.skipif(not os.path.isdir(BCCD), reason="the blood cells are not here")
def test_the_oddities_of_bccd_are_named():
    source = open_source(BCCD)
    assert source.labels.names == ("Platelets", "RBC", "WBC")
    report = check(source)
    assert report.splits == {"train": 205, "val": 87, "test": 72}
    assert {name: sum(by.values()) for name, by in report.truth.objects.items()} == {
        "Platelets": 361,
        "RBC": 4153,
        "WBC": 372,
    }
    named = {problem.file: problem.what for problem in report.problems}
    for record in ("00338.xml, object 13 (RBC)", "00343.xml, object 4 (RBC)"):  # clicks
        assert "has no area" in named[f"Annotations/BloodImage_{record}"]
    for record in ("00113.xml, object 13 (WBC)", "00133.xml, object 10 (Platelets)"):
        assert "are usual for" in named[f"Annotations/BloodImage_{record}"]  # of another class
    for record in ("00020.xml, object 15 (RBC)", "00100.xml, object 3 (RBC)"):  # drawn twice
        assert "is it the same RBC?" in named[f"Annotations/BloodImage_{record}"]
    for image in ("00134", "00152", "00250"):  # full of red cells, and none is labelled
        assert "has no 'RBC'" in named[f"JPEGImages/BloodImage_{image}.jpg"]
    assert (
        "looks nearly like JPEGImages/BloodImage_00038.jpg of train"
        in (named["JPEGImages/BloodImage_00037.jpg"])
    )
    assert report.unusable == []
