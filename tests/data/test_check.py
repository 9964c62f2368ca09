"""The data check: what it says of good data, and that nothing bad escapes it."""

import json
import os
import shutil

import numpy as np
import picture_files
import pytest
import tifffile
from PIL import Image
from source_facts import assert_problems

import vitreous.api
from vitreous.cli.main import main
from vitreous.data.augment import Augment
from vitreous.data.formats import open_source
from vitreous.data.formats.files import FileSource
from vitreous.data.loader import EvalSet, Order, TrainSet, eval_batches, train_batches
from vitreous.data.preprocess import Preprocess
from vitreous.data.statistics import measure_statistics
from vitreous.data.truth import Truth
from vitreous.errors import DataError
from vitreous.tasks.data_check import bad_samples, check

RANDOM = np.random.default_rng(0)


def picture(path, shape=(8, 6, 3)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(RANDOM.integers(0, 256, shape, dtype=np.uint8)).save(path)
    return path


@pytest.fixture
def good(tmp_path):
    for split, count in (("train", 4), ("val", 2)):
        for name in ("cat", "dog"):
            for i in range(count):
                picture(tmp_path / split / name / f"{i}.png")
    return tmp_path


def test_a_detection_set_without_empty_images_is_told_what_follows(tmp_path, capsys):
    for name in "ab":
        path = tmp_path / "images" / f"{name}.png"
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (40, 20), (ord(name), 0, 0)).save(path)
        (tmp_path / "labels").mkdir(exist_ok=True)
        (tmp_path / "labels" / f"{name}.txt").write_text("0 0.5 0.5 0.5 0.5\n")
    main(["data", "check", str(tmp_path), "--val-fraction=0"])
    assert "false alarms" in (said := capsys.readouterr().out)
    assert "no images without objects" in said
    (tmp_path / "labels" / "b.txt").write_text("")
    main(["data", "check", str(tmp_path), "--val-fraction=0"])
    assert "false alarms" not in (said := capsys.readouterr().out)
    assert "1 image without objects" in said


def test_what_was_understood(good):
    report = check(open_source(good))
    assert (report.kind, report.truth_kind) == ("folder", "class")
    assert report.splits == {"train": 8, "val": 4}
    assert report.truth.classes == {"cat": {"train": 4, "val": 2}, "dog": {"train": 4, "val": 2}}
    assert report.sizes["median"] == report.sizes["most_common"] == [8, 6]
    assert (report.channels, report.dtypes) == ({3: 12}, {"uint8": 12})
    assert report.bytes == sum(path.stat().st_size for path in good.rglob("*.png"))
    assert report.duplicates == {"train": 0, "val": 0, "across": 0}
    assert (report.problems, report.fatal) == ([], [])
    json.dumps(report.to_dict())


def test_statistics(good):
    report = check(open_source(good))
    images = np.stack([np.asarray(Image.open(p)) for p in sorted(good.glob("train/*/*.png"))]) / 255
    np.testing.assert_allclose(report.mean, images.mean(axis=(0, 1, 2)), atol=5e-5)
    np.testing.assert_allclose(report.std, images.std(axis=(0, 1, 2)), atol=5e-5)


def test_statistics_of_16_bits_and_of_gray_among_colour(tmp_path):
    for i, shade in enumerate((0, 65535)):
        path = tmp_path / "deep" / "ab"[i] / "1.png"
        path.parent.mkdir(parents=True)
        Image.fromarray(np.full((4, 4), shade, np.uint16)).save(path)
    report = check(open_source(tmp_path / "deep"))
    assert (report.mean, report.std) == ([0.5], [0.5])
    picture(tmp_path / "mixed" / "a" / "1.png", (5, 5))
    picture(tmp_path / "mixed" / "b" / "1.png", (7, 5, 3))
    picture(tmp_path / "mixed" / "b" / "2.png", (6, 5, 3))
    picture(tmp_path / "mixed" / "b" / "3.png", (6, 5, 3))
    report = check(open_source(tmp_path / "mixed"))
    assert len(report.mean) == 3
    assert report.channels == {1: 1, 3: 3}
    assert any("differ in channels" in note for note in report.notes)
    assert (report.sizes["smallest"], report.sizes["largest"]) == ([5, 5], [7, 5])


def bad_corpus(folder):
    """Spoils a folder; name of each bad file -> what must be said of it."""
    whole = picture(folder / "whole.jpg", (64, 64, 3)).read_bytes()
    (folder / "whole.jpg").unlink()
    (folder / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (folder / "empty.png").write_bytes(b"")
    (folder / "page.jpg").write_text("<html><body>not found</body></html>")
    (folder / "text.png").write_text("hello")
    (folder / "bomb.png").write_bytes(picture_files.bomb(20_000, 20_000))
    (folder / "large.png").write_bytes(picture_files.bomb(12_000, 9_000))
    (folder / "noise.tif").write_bytes(b"II*\0" + bytes(range(200)))
    (folder / "broken.png").symlink_to(folder / "nowhere.png")
    (folder / "loop.png").symlink_to(folder / "loop.png")
    os.mkfifo(folder / "pipe.png")
    Image.fromarray(np.full((4, 4), np.nan, np.float32)).save(folder / "nan.tif")
    with open(os.path.join(folder, os.fsdecode(b"caf\xe9.png")), "wb"):
        pass
    return {
        "cut.jpg": "is cut short",
        "empty.png": "the file is empty",
        "page.jpg": "is an HTML page",
        "text.png": "is not an image",
        "bomb.png": "too many pixels",
        "large.png": "too many pixels",
        "noise.tif": "is ",
        "broken.png": "is a link to a file that does not exist",
        "loop.png": "cannot be read",
        "pipe.png": "is not a regular file",
        "nan.tif": "not finite",
        "caf\\xe9.png": "the file is empty",
    }


@pytest.mark.parametrize("workers", [1, 4])
def test_every_bad_file_is_named_once(good, workers):
    expected = bad_corpus(good / "train" / "cat")
    source = open_source(good)
    report = check(source, workers=workers)
    assert {os.path.basename(problem.file) for problem in report.fatal} == set(expected)
    assert len(report.fatal) == len(expected)
    for problem in report.fatal:
        assert problem.file.startswith("train/cat/")
        assert expected[os.path.basename(problem.file)] in problem.what
        assert "\n" not in problem.what
        assert str(good) not in problem.what
    bad = bad_samples(source, workers=workers)
    assert {problem.file for problem in report.fatal} == set(bad)
    assert all(bad[id].what for id in bad)
    assert report.splits["train"] == 8 + len(expected)  # nothing is dropped


def test_a_folder_of_nothing_but_bad_files(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        for i in range(2):
            (tmp_path / name / f"{i}.jpg").write_bytes(b"")
    report = check(open_source(tmp_path))
    assert len(report.fatal) == 4
    assert (report.sizes, report.mean) == ({}, [])


def test_limit_of_pixels(good):
    assert len(check(open_source(good), max_pixels=47).fatal) == 12
    assert check(open_source(good), max_pixels=48).fatal == []


def whats(report):
    return [problem.what for problem in report.problems]


def test_classes_that_are_missing_or_small(good):
    shutil.rmtree(good / "val" / "cat")
    picture(good / "train" / "eel" / "1.png")
    report = check(open_source(good))
    assert whats(report) == [
        "class 'cat' has no images in val",
        "class 'eel' has only one image",
        "class 'eel' has no images in val",
    ]
    assert report.fatal == []


def test_a_single_class_is_fatal(tmp_path):
    picture(tmp_path / "all" / "1.png")
    picture(tmp_path / "all" / "2.png")
    assert [p.what for p in check(open_source(tmp_path)).fatal] == [
        "has only the class 'all': nothing to tell apart"
    ]


def test_duplicates(good):
    train, val = good / "train", good / "val"
    shutil.copy(train / "cat" / "0.png", train / "cat" / "copy.png")
    shutil.copy(train / "cat" / "1.png", val / "cat" / "seen.png")
    with Image.open(train / "dog" / "2.png") as image:  # other bytes, the same pixels
        image.save(train / "cat" / "both.bmp")
    report = check(open_source(good))
    assert report.duplicates == {"train": 2, "val": 0, "across": 1}
    expected = {
        ("train/cat/1.png", "in train.*val/cat/seen.png is in val"),
        ("train/cat/both.bmp", "'cat'.*train/dog/2.png is 'dog'"),
    }
    assert_problems([problem for problem in report.problems if not problem.leak], expected)
    assert report.fatal == []


def test_the_same_picture_in_two_splits_is_a_leak_and_comes_first(good, capsys):
    """It is a warning with counts, before everything else."""
    for number in range(3):
        shutil.copy(
            good / "train" / "cat" / f"{number}.png", good / "val" / "cat" / f"x{number}.png"
        )
    (good / "val" / "dog" / "bad.png").write_bytes(b"")
    main(["data", "check", str(good)])
    problems = capsys.readouterr().out.partition("problems, ")[2].splitlines()[1:]
    assert problems[0].startswith(
        f"  leak   {good}: 3 of the 8 images of val are in train too, as val/cat/x0.png, which is "
        "train/cat/0.png: "
    )
    assert problems[1].startswith("  fatal  val/dog/bad.png")


def one_image_per_class(folder):
    picture(folder / "cat" / "1.png")
    picture(folder / "dog" / "1.png")


def one_class(folder):
    picture(folder / "cat" / "1.png")
    picture(folder / "cat" / "2.png")


def a_label_on_every_image(folder):
    for number in range(4):
        picture(folder / f"{number}.png")
    rows = "".join(f"{number}.png,always{';odd' if number % 2 else ''}\n" for number in range(4))
    (folder / "t.csv").write_text(f"path,labels\n{rows}")


def only_to_evaluate_on(folder):
    picture(folder / "test" / "cat" / "1.png")
    picture(folder / "test" / "dog" / "1.png")


def a_class_of_bad_images(folder):
    for split in ("train", "val"):
        picture(folder / split / "cat" / "1.png")
        (folder / split / "dog").mkdir()
        (folder / split / "dog" / "1.png").write_bytes(b"")


@pytest.mark.parametrize(
    "make",
    [
        *(one_image_per_class, one_class, a_label_on_every_image, only_to_evaluate_on),
        a_class_of_bad_images,
    ],
)
def test_what_train_refuses_is_fatal(tmp_path, make, capsys):
    """Both ask the same function, and say the same."""
    make(tmp_path)
    path = next(iter(tmp_path.glob("*.csv")), tmp_path)
    assert main(["train", str(path), "--on-bad", "skip", "--out", str(tmp_path / "run")]) == 2
    refused = capsys.readouterr().err.splitlines()[-1]
    assert main(["data", "check", str(path), "--json"]) == 2
    report = json.loads(capsys.readouterr().out)
    (what,) = [p["what"] for p in report["problems"] if p["fatal"] and p["file"] == str(path)]
    assert refused in (f"vitreous: {path} {what}", f"vitreous: {path}: {what}")


@pytest.mark.parametrize("name", ["digits", "shapes:40"])
@pytest.mark.parametrize("task", ["classify", "detect"])
def test_mean_and_std_are_those_of_training(name, task, tmp_path):
    """Of one split there is one mean."""
    if (name, task) == ("digits", "detect"):
        pytest.skip("digits have no boxes")
    lines = []
    vitreous.api.dry_run(name, task=task, out=tmp_path / "run", log=lines.append)
    (measured,) = [line for line in lines if line.startswith("mean and std")]
    report = vitreous.api.check_data(name, task=task)
    assert f"{tuple(report.mean)}, {tuple(report.std)}" in measured


def test_a_row_without_a_file(tmp_path):
    picture(tmp_path / "1.png")
    (tmp_path / "t.csv").write_text("path,label\n1.png,cat\n2.png,dog\n")
    (problem,) = check(open_source(tmp_path / "t.csv", val_fraction=0)).unusable
    assert (problem.file, problem.what) == ("2.png", "there is no such file")


def test_a_fault_of_ours_is_not_hidden(good, monkeypatch):
    monkeypatch.setattr(FileSource, "image", lambda self, sample: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        check(open_source(good))


# ---- the command line


def test_command(good, capsys):
    assert main(["data", "check", str(good)]) == 0
    out, err = capsys.readouterr()
    for line in (
        f"{good}: classify, read as folder",
        "images      train 8, val 4",
        "sizes       8x6",
        "channels    3; values uint8",
        "duplicates  none",
        " 0  cat        4    2",
        "no problems",
    ):
        assert line in out
    assert err == ""


def test_command_with_problems(good, capsys):
    expected = bad_corpus(good / "train" / "cat")
    assert main(["data", "check", str(good)]) == 2
    out, err = capsys.readouterr()
    assert err.startswith(f"vitreous: {good}: {len(expected)} fatal problems, with which 'train' ")
    for name, what in expected.items():
        (line,) = [line for line in out.splitlines() if f"/{name}: " in line]
        assert line.startswith("  fatal  train/cat/")
        assert what in line


def test_command_json(good, capsys):
    (good / "val" / "cat" / "bad.png").write_bytes(b"")
    assert main(["data", "check", str(good), "--json"]) == 2
    report = json.loads(capsys.readouterr().out)
    assert report["splits"] == {"train": 8, "val": 5}
    assert report["problems"] == [
        {"file": "val/cat/bad.png", "what": "the file is empty", "fatal": True, "leak": False}
    ]


def test_command_names(tmp_path, capsys):
    for number in range(4):
        picture(tmp_path / f"{number}.png")
    rows = "".join(f"{number}.png,{number % 2}\n" for number in range(4))
    (tmp_path / "t.csv").write_text(f"path,label\n{rows}")
    (tmp_path / "names.txt").write_text("cat\ndog\n")
    arguments = ["data", "check", str(tmp_path / "t.csv"), "--names", str(tmp_path / "names.txt")]
    assert main(arguments) == 0
    assert "0  cat" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nowhere", "nowhere: there is no such file or folder"),
        ("torchvision:CIFAR10", "pass --download to download it"),
        ("torchvision:CIFAR", "is not known"),
    ],
)
def test_command_refuses(path, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VITREOUS_DATA", str(tmp_path))
    assert main(["data", "check", path]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


def test_unknown_class_is_one_message(good, capsys):
    picture(good / "val" / "cow" / "1.png")
    assert main(["data", "check", str(good)]) == 2
    err = capsys.readouterr().err
    assert err == f"vitreous: {good}: class 'cow' is in val but not in train\n"
    with pytest.raises(DataError, match="cow"):
        open_source(good)


# ---- images that can be read and yet not be used as they are


def test_images_of_other_channels(good):
    odd = good / "val" / "dog" / "odd.tif"
    tifffile.imwrite(odd, np.zeros((5, 6, 8), np.uint8))
    picture(good / "train" / "cat" / "gray.png", (5, 5))
    source = open_source(good)
    (problem,) = check(source).fatal
    assert_problems([problem], [("val/dog/odd.tif", "5 channels, expected 3")])
    assert set(bad_samples(source)) == {"val/dog/odd.tif"}
    assert len(bad_samples(source, channels=5)) == 13, "all but the odd one"
    assert set(bad_samples(source, channels=1)) == {"val/dog/odd.tif"}


def test_gray_and_colour_count_together(tmp_path):
    for number in range(3):
        picture(tmp_path / "a" / f"gray{number}.png", (5, 5))
        picture(tmp_path / "b" / f"colour{number}.png")
    for number in range(4):
        tifffile.imwrite(tmp_path / "a" / f"{number}.tif", RANDOM.random((5, 6, 8)))
    bad = bad_samples(open_source(tmp_path))
    assert set(bad) == {f"a/{number}.tif" for number in range(4)}


@pytest.mark.parametrize("augmented", [False, True])
def test_an_image_of_other_channels_is_named(good, augmented):
    odd = good / "train" / "dog" / "odd.tif"
    tifffile.imwrite(odd, np.zeros((5, 6, 8), np.uint8))
    source = open_source(good)
    samples, preprocess = source.splits["train"], Preprocess(image_size=8)
    if augmented:
        data = TrainSet(source, samples, preprocess, Augment(crop="shift"), Truth(), seed=0)
        batches = train_batches(data, Order(len(samples), 3, 0, 0, 3), workers=0)
    else:
        batches = eval_batches(EvalSet(source, samples, preprocess, Truth()), 3, workers=0)
    with pytest.raises(DataError) as error:
        list(batches)
    assert str(error.value).startswith(f"{odd}: has 5 channels, expected 3")
    with pytest.raises(DataError, match=rf"{odd}: has 5 channels"):
        measure_statistics(source, samples, preprocess)


def test_samples_without_a_file_are_named_too():
    source = open_source("digits")
    data = EvalSet(source, source.splits["test"], Preprocess(image_size=8, channels=4), Truth())
    with pytest.raises(DataError, match=r"^digits, image \d+: has 1 channels, expected 4"):
        list(eval_batches(data, 4, workers=0))


def test_pages_that_are_not_read_are_told(good, capsys):
    frames = [Image.new("RGB", (8, 6), colour) for colour in ("red", "lime", "blue")]
    for name in ("scan.tif", "moving.gif", "moving.webp", "moving.png"):
        path = good / "train" / "cat" / name
        frames[0].save(path, save_all=True, append_images=frames[1:])
    tifffile.imwrite(
        good / "train" / "dog" / "all.tif", np.zeros((3, 6, 8)), photometric="minisblack"
    )
    report = check(open_source(good))
    told = [p for p in report.problems if "pages" in p.what]
    assert [(p.file, p.what, p.fatal) for p in told] == [
        (f"train/cat/{name}", "has 3 pages or frames; only the first is read", False)
        for name in ("moving.gif", "moving.png", "moving.webp", "scan.tif")
    ]
    assert report.fatal == []
    assert main(["data", "check", str(good)]) == 0
    assert (
        "train/cat/scan.tif: has 3 pages or frames; only the first is read"
        in capsys.readouterr().out
    )
