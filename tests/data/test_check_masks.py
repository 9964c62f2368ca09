"""The data check of images with masks: what is counted, and that nothing odd escapes it."""

import json
import os
import re
import shutil

import numpy as np
import pytest
from mask_files import NAMES, bad_masks, image, mask, pairs
from PIL import Image
from source_facts import assert_problems

from vitreous.cli.main import main
from vitreous.data.check.truth_check import series_of
from vitreous.data.formats import open_source
from vitreous.tasks.data_check import bad_samples, check

RANDOM = np.random.default_rng(1)
BINARY = {0: "ground", 1: "thing", 255: None}


@pytest.fixture
def data(tmp_path):
    """Three images to train on and two for val; half of each mask is 0, half is 3."""
    for split, count in (("train", 3), ("val", 2)):
        for i in range(count):
            image(tmp_path / split / "images" / f"{split}{i}.png")
            halves = np.zeros((6, 8), np.uint8)
            halves[:, 4:] = 3
            mask(tmp_path / split / "masks" / f"{split}{i}.png", halves)
    return tmp_path


def checked(path, names=NAMES, **options):
    return check(open_source(path, names=names, val_fraction=0), **options)


def whats(report):
    return [problem.what for problem in report.problems]


def test_what_was_understood(data):
    values = np.full((6, 8), 255, np.uint8)
    values[0] = 3
    mask(data / "train" / "masks" / "train0.png", values)
    report = checked(data)
    assert (report.kind, report.truth_kind) == ("masks", "mask")
    assert report.splits == {"train": 3, "val": 2}
    assert report.truth.classes == {"sky": {"train": 2, "val": 2}, "road": {"train": 3, "val": 2}}
    assert report.truth.pixels == {
        "sky": {"train": 48, "val": 48},
        "road": {"train": 56, "val": 48},
    }
    assert report.truth.ignored == {"train": 40, "val": 0}
    assert report.truth.lone == {"train": 0, "val": 0}
    assert report.bytes == sum(path.stat().st_size for path in data.rglob("*.png"))
    assert report.sizes["most_common"] == [6, 8]
    assert_problems(report.problems, [("train/images/train0.png", "83%.*ignored")])
    assert json.loads(json.dumps(report.to_dict()))["pixels"]["sky"] == {"train": 48, "val": 48}


@pytest.mark.parametrize("workers", [1, 4])
def test_every_bad_mask_is_named_once(data, workers):
    expected = bad_masks(data / "val" / "masks")
    for name in expected:
        image(data / "val" / "images" / name)
    (data / "train" / "images" / "train0.png").write_bytes(b"")
    image(data / "train" / "images" / "lost.png")
    report = checked(data, workers=workers)
    found = {problem.file: problem.what for problem in report.unusable}
    assert found.pop("train/images/train0.png") == "the file is empty"
    assert found.pop("train/images/lost.png").startswith("has no mask: looked for train/masks/")
    assert set(found) == {f"val/masks/{name}" for name in expected}
    assert len(report.unusable) == len(expected) + 2
    for file, what in found.items():
        assert re.search(expected[os.path.basename(file)].split(", but .*")[0], what)
        assert str(data) not in what
    bad = bad_samples(open_source(data, names=NAMES), workers=workers)
    assert set(bad) == {f"val/images/{name}" for name in expected} | {
        "train/images/train0.png",
        "train/images/lost.png",
    }
    assert {problem.what for problem in bad.values()} == {p.what for p in report.unusable}
    assert report.splits["val"] == 2 + len(expected), "nothing is dropped"
    assert report.truth.pixels["sky"] == {"train": 48, "val": 48}


def test_the_limit_of_pixels_is_for_masks_too(data):
    assert len(checked(data, max_pixels=47).unusable) == 5
    assert checked(data, max_pixels=48).unusable == []


def test_classes_that_are_missing_or_rare(tmp_path):
    for i in range(20):
        image(tmp_path / "train" / "images" / f"{i}.png")
        values = np.arange(48, dtype=np.uint8).reshape(6, 8) % 2
        values[0, 0] = 2 if i < 4 else 0
        mask(tmp_path / "train" / "masks" / f"{i}.png", values)
    image(tmp_path / "val" / "images" / "x.png")
    mask(tmp_path / "val" / "masks" / "x.png", np.array([[0, 1, 3] * 16], np.uint8).reshape(6, 8))
    names = {0: "a", 1: "b", 2: "rare", 3: "new", 4: "nowhere"}
    assert {
        "class 'rare' has no pixels in val",
        "class 'rare' is in only 4 of the 20 images of train",
        "class 'new' has no pixels in train: it cannot be learned",
        "class 'nowhere' has no pixels at all",
    } <= set(whats(checked(tmp_path, names)))


def test_a_single_class_is_fatal(data):
    for path in data.glob("*/masks/*.png"):
        mask(path, np.zeros((6, 8), np.uint8))
    report = checked(data, {"0": "all"})
    assert [problem.what for problem in report.fatal] == [
        "has only the class 'all': nothing to tell apart"
    ]


def test_shares_that_differ(data):
    for path in data.glob("val/masks/*.png"):
        values = np.zeros((6, 8), np.uint8)
        values[0, :5] = 3
        mask(path, values)
    assert whats(checked(data)) == [
        "class 'road' is 10.42% of the labelled pixels of val, but 50.00% of train"
    ]


def test_masks_that_say_little(data):
    mask(data / "train" / "masks" / "train0.png", np.full((6, 8), 255, np.uint8))
    mask(data / "train" / "masks" / "train1.png", np.full((6, 8), 3, np.uint8))
    expected = {
        ("train/images/train0.png", "no labelled pixel"),
        ("train/images/train1.png", "'road'"),
    }
    assert_problems(checked(data).problems, expected, more=True)


def test_many_of_a_kind_are_counted(tmp_path, capsys):
    """A few examples and a count are printed; --json has them all."""
    for i in range(12):
        pairs(tmp_path, (f"images/{i}.png", f"masks/{i}.png"))
        mask(tmp_path / "masks" / f"{i}.png", np.zeros((6, 8), np.uint8))
    whole = "its mask is 'ground' as a whole"
    assert whats(checked(tmp_path, BINARY)).count(whole) == 12
    (tmp_path / "names.json").write_text(json.dumps(BINARY))
    assert main(["data", "check", str(tmp_path), "--val-fraction", "0.5"]) == 0
    out = capsys.readouterr().out
    assert (out.count(whole), out.count("… and 9 more like that")) == (3, 1)
    assert "--json lists all" in out


def test_single_pixels_look_like_a_fault(data):
    mask(data / "val" / "masks" / "val0.png", RANDOM.choice(np.array([0, 3], np.uint8), (6, 8)))
    report = checked(data)
    assert report.truth.lone["train"] == 0
    assert report.truth.lone["val"] > 0
    (what,) = [what for what in whats(report) if "all four neighbours" in what]
    assert what.endswith(
        "of val differ from all four neighbours: were the masks resized or compressed?"
    )


def test_the_same_picture(data):
    train, val = data / "train", data / "val"
    shutil.copy(train / "images" / "train0.png", val / "images" / "seen.png")
    shutil.copy(train / "masks" / "train0.png", val / "masks" / "seen.png")
    shutil.copy(train / "images" / "train1.png", train / "images" / "other.png")
    mask(train / "masks" / "other.png", np.full((6, 8), 3, np.uint8))
    report = checked(data)
    assert report.duplicates == {"train": 1, "val": 0, "across": 1}
    expected = {
        ("train/images/train0.png", "in train.*val/images/seen.png is in val"),
        ("train/images/other.png", "another mask.*train/images/train1.png"),
    }
    assert_problems(report.problems, expected, more=True)


def film(root, split, name, numbers, start):
    """Frames of a film: a picture that moves by a pixel for each number."""
    for number in numbers:
        path = root / split / "images" / f"{name}{number:04}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.roll(start, number, axis=1)).save(path)
        values = np.zeros(start.shape[:2], np.uint8)
        values[16:] = 1
        mask(root / split / "masks" / path.name, values)


def scene():
    return np.kron(RANDOM.integers(0, 256, (4, 4, 3)), np.ones((16, 32, 1))).astype(np.uint8)


def test_films_in_several_splits(tmp_path):
    one, two, three = scene(), scene(), scene()
    film(tmp_path, "train", "one_", [1, 30, 60], one)
    film(tmp_path, "train", "two_f", [1, 40, 90], two)
    film(tmp_path, "val", "two_f", [41, 70, 71, 72, 73], two)
    film(tmp_path, "test", "three_", [5, 40], three)
    film(tmp_path, "test", "one_", [61], one)
    report = checked(tmp_path, BINARY)
    assert report.truth.alike == {"train": 0, "val": 3, "test": 0, "across": 2}
    expected = {
        (str(tmp_path), r"one_… \(train 3, test 1\), two_f… \(train 3, val 5\)"),
        (str(tmp_path), "all 5 images of val .* two_f…"),
        (str(tmp_path), "3 of the 5 images of val"),
        ("train/images/one_0060.png", "test/images/one_0061.png of test"),
        ("train/images/two_f0040.png", "val/images/two_f0041.png of val"),
    }
    assert_problems(report.problems, expected)
    assert report.unusable == []


@pytest.mark.parametrize(
    ("id", "series"),
    [
        ("train/images/0016E5_07959.png", "0016E5_"),
        ("Seq05VD_f00300.png", "Seq05VD_f"),
        ("a/0001.jpg", ""),
        ("x.y/cat.png", "cat"),
    ],
)
def test_series(id, series):
    assert series_of(id) == series


def test_names_that_all_begin_alike_say_nothing(tmp_path):
    for split in ("train", "val"):
        for i in range(4):
            name = f"IMG_{i}{split[0] == 'v':d}.png"
            pairs(tmp_path, (f"{split}/images/{name}", f"{split}/masks/{name}"))
    assert not any("series" in what for what in whats(checked(tmp_path)))


def test_outlines_of_coco(tmp_path):
    for name in ("1.png", "2.png", "3.png"):
        image(tmp_path / name)
    values = {
        "images": [{"id": i, "file_name": f"{i}.png"} for i in (1, 2, 3)],
        "annotations": [
            {"id": 1, "image_id": 1, "category_id": 1, "segmentation": [[0, 0, 4, 0, 4, 6, 0, 6]]},
            {"id": 2, "image_id": 2, "category_id": 1, "segmentation": []},
            {"id": 3, "image_id": 7, "category_id": 1, "segmentation": []},
        ],
        "categories": [{"id": 1, "name": "thing"}],
    }
    (tmp_path / "a.json").write_text(json.dumps(values))
    source = open_source(tmp_path / "a.json", truth="mask", val_fraction=0)
    report = check(source)
    assert report.truth.pixels == {"background": {"train": 72}, "thing": {"train": 24}}
    assert [(p.file, p.what) for p in report.unusable] == [
        ("2.png", "annotation 2 has no outline (segmentation) that can be drawn")
    ]
    expected = [(f"{tmp_path}/a.json, annotation 3", "unknown image_id 7")]
    assert_problems(report.problems, expected, more=True)
    assert set(bad_samples(source)) == {"2.png"}


# ---- the command line


def test_command(data, capsys):
    values = np.full((6, 8), 255, np.uint8)
    values[:, :4], values[:, 4:7] = 0, 3
    mask(data / "val" / "masks" / "val0.png", values)
    names = data / "n.json"
    names.write_text(json.dumps(NAMES))
    assert main(["data", "check", str(data), "--names", str(names)]) == 0
    out, err = capsys.readouterr()
    for line in (
        f"{data}: segment, read as masks",
        "images      train 3, val 2",
        "near alike  none",
        "lone        train -, val - of the pixels differ from all four neighbours",
        "note        train: train/images with train/masks",
        "id  class              train  pixels  val  pixels",
        " 0  sky                    3  50.00%    2  53.33%",
        " 3  road                   3  50.00%    2  46.67%",
        "    (ignored, of all)              -        6.25%",
        "no problems",
    ):
        assert line in out
    assert err == ""
    assert main(["data", "check", str(data), "--names", str(names), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ignored"] == {"train": 0, "val": 6}
    assert report["classes"]["sky"] == {"train": 3, "val": 2}


def test_command_names_bad_masks(data, capsys):
    mask(data / "val" / "masks" / "val1.png", np.full((6, 8), 9, np.uint8))
    (data / "classes.json").write_text(json.dumps(NAMES))
    assert main(["data", "check", str(data)]) == 2
    out, err = capsys.readouterr()
    assert "1 fatal problem" in err
    assert re.search("fatal  val/masks/val1.png: .* 9", out)


def test_command_takes_the_task(data, capsys):
    assert main(["data", "check", str(data), "--task", "classify"]) == 2
    assert "ground truth is mask, not class" in capsys.readouterr().err
    assert main(["data", "check", "digits", "--task", "segment"]) == 2
    assert "ground truth is class, not mask" in capsys.readouterr().err
