"""Each kind of source: what is found in it, how it is split, and what is refused."""

import csv
import gzip
import os
import pickle
import struct
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from source_facts import ids, sizes

from vitreous.cli.main import main
from vitreous.data.formats import Columns, open_source, same_source
from vitreous.data.source import Sample
from vitreous.data.split import few_of, hold_out
from vitreous.errors import ConfigError, DataError


def picture(path, shade=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (4, 3), shade).save(path)


def tree(root, *files):
    for shade, file in enumerate(files):
        picture(root / file, shade)
    return root


def classes(source, split):
    return [source.labels.names[sample.target] for sample in source.splits[split]]


# ---- splitting


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=200),
    st.floats(0.01, 0.9),
    st.integers(0, 99),
    st.randoms(),
)
def test_a_split_is_stratified_and_depends_on_ids_alone(targets, fraction, seed, random):
    samples = [Sample(f"{i}.png", target) for i, target in enumerate(targets)]
    kept, held = hold_out(samples, fraction, seed)
    assert sorted(s.id for s in kept + held) == sorted(s.id for s in samples)
    have, gave = Counter(targets), Counter(s.target for s in held)
    for target, count in have.items():
        assert abs(gave[target] - fraction * count) <= 1
        if count >= 2:
            assert 1 <= gave[target] < count
        else:
            assert gave[target] == 0
    random.shuffle(samples)
    again_kept, again_held = hold_out(samples, fraction, seed)
    assert {s.id for s in again_held} == {s.id for s in held}
    assert {s.id for s in again_kept} == {s.id for s in kept}


def test_seeds_give_different_splits():
    samples = [Sample(str(i), 0) for i in range(100)]
    held = [tuple(s.id for s in hold_out(samples, 0.2, seed)[1]) for seed in range(5)]
    assert len(set(held)) == 5


def test_new_images_leave_the_others_where_they_were():
    samples = [Sample(str(i), 0) for i in range(110)]
    before = {s.id for s in hold_out(samples[:100], 0.2, 0)[1]}
    after = {s.id for s in hold_out(samples, 0.2, 0)[1]}
    assert len(before - after) <= 2


@pytest.mark.parametrize(
    ("count", "of_each"),
    [(1, [1]), (3, [1, 1, 1]), (8, [3, 3, 2]), (25, [10, 10, 5]), (99, [70, 20, 5])],
)
def test_a_few_samples_are_of_all_classes_alike(count, of_each):
    sizes = {0: 20, 1: 70, 2: 5}
    samples = [Sample(f"{c}/{i}", c) for c, size in sizes.items() for i in range(size)]
    few = few_of(samples, count, 0)
    assert sorted(Counter(s.target for s in few).values(), reverse=True) == of_each
    assert few == [sample for sample in samples if sample in few]  # in their order
    assert {s.id for s in few} == {s.id for s in few_of(samples[::-1], count, 0)}


def test_a_few_samples_without_classes_are_from_all_over():
    samples = [Sample(f"{i:03}", None) for i in range(200)]
    few = [int(s.id) for s in few_of(samples, 8, 0, truth_kind="mask")]
    assert len(few) == 8
    assert min(few) < 70 < 130 < max(few)


def test_no_val_if_none_is_wanted(tmp_path):
    tree(tmp_path, "a/1.png", "a/2.png", "b/1.png")
    assert list(open_source(tmp_path, val_fraction=0).splits) == ["train"]
    with pytest.raises(ConfigError, match=r"val_fraction = 1\.5"):
        open_source(tmp_path, val_fraction=1.5)


# ---- class folders


def test_class_folders_without_splits(tmp_path):
    names = [f"{name}/{i}.png" for name in ("class10", "class2") for i in range(20)]
    source = open_source(tree(tmp_path, *names))
    assert (source.kind, source.truth_kind) == ("folder", "class")
    assert source.labels.names == ("class2", "class10")
    assert sizes(source) == {"train": 36, "val": 4}
    assert Counter(classes(source, "val")) == {"class2": 2, "class10": 2}
    assert "val: 4 images held out" in source.notes[0]
    sample = source.splits["train"][0]
    assert source.image(sample).shape == (1, 3, 4)
    natural = [int(i.split("/")[1][:-4]) for i in ids(source)["train"] if i.startswith("class2/")]
    assert natural == sorted(natural)


def test_the_order_of_creation_does_not_matter(tmp_path):
    names = [f"{name}/{i}.png" for name in "abc" for i in range(12)]
    one = open_source(tree(tmp_path / "one", *names))
    two = open_source(tree(tmp_path / "two", *reversed(names)))
    assert one.splits == two.splits
    assert one.labels == two.labels


@pytest.mark.parametrize("val", ["val", "valid", "validation", "Val"])
def test_folders_of_splits(tmp_path, val):
    tree(tmp_path, "train/b/1.png", "train/a/1.png", f"{val}/b/2.png", "test/a/3.png")
    source = open_source(tmp_path)
    assert ids(source) == {
        "train": ["train/a/1.png", "train/b/1.png"],
        "val": [f"{val}/b/2.png"],  # a val that lacks a class does not shift the others
        "test": ["test/a/3.png"],
    }
    assert classes(source, "val") == ["b"]
    assert classes(source, "test") == ["a"]


def test_val_is_taken_from_train_where_only_test_is_given(tmp_path):
    tree(tmp_path, *(f"train/{name}/{i}.png" for name in "ab" for i in range(10)), "test/a/1.png")
    source = open_source(tmp_path)
    assert list(source.splits) == ["train", "val", "test"]
    assert len(source.splits["val"]) == 2


def test_data_to_evaluate_on_needs_no_train(tmp_path):
    source = open_source(tree(tmp_path, "test/a/1.png", "test/b/1.png"))
    assert list(source.splits) == ["test"]


def test_a_class_that_is_not_in_train_is_refused(tmp_path):
    tree(tmp_path, "train/Cat/1.png", "train/dog/1.png", "val/cat/2.png")
    with pytest.raises(DataError, match="class 'cat' is in val but not in train"):
        open_source(tmp_path)


def test_all_below_a_class_folder_belongs_to_it(tmp_path):
    tree(tmp_path, "a/x/y/1.png", "a/2.png", "b/train/1.png")
    source = open_source(tmp_path, val_fraction=0)
    assert ids(source)["train"] == ["a/2.png", "a/x/y/1.png", "b/train/1.png"]
    assert classes(source, "train") == ["a", "a", "b"]


def test_a_class_may_be_called_train(tmp_path):
    source = open_source(tree(tmp_path, "bus/1.png", "car/1.png", "train/1.png"))
    assert source.labels.names == ("bus", "car", "train")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["train/a/1.png", "bus/1.png"], "train looks like a split, but bus beside it has images"),
        (["train/1.png", "test/1.png"], "train has 1 image but no class folders"),
        (["train/a/1.png", "val/a/1.png", "valid/a/1.png"], "val and valid both mean val"),
        (["1.png", "2.png"], "2 images"),
    ],
)
def test_folders_that_could_mean_anything_are_refused(tmp_path, files, message):
    with pytest.raises(DataError, match=message) as error:
        open_source(tree(tmp_path, *files))
    assert str(error.value).startswith(str(tmp_path))


def test_what_is_not_used_is_said(tmp_path):
    tree(tmp_path, "train/a/1.png", "train/b/1.png", "train/loose.png", "test/7.png")
    for name in (".DS_Store", "train/a/Thumbs.db", "train/a/notes.TXT", "train/b/.hidden.png"):
        (tmp_path / name).write_text("")
    picture(tmp_path / "train" / ".ipynb_checkpoints" / "1.png")
    (tmp_path / "docs").mkdir()
    (tmp_path / "train" / "empty").mkdir()
    source = open_source(tmp_path)
    assert source.labels.names == ("a", "b")
    notes = "\n".join(source.notes)
    assert "skipped, as no images: 1 .db, 1 .txt, 3 hidden" in notes
    assert "test has 1 image but no class folders: it is not used" in notes
    assert "not used, without images: docs" in notes
    assert "beside the class folders, and so of no class: 1 image, like" in notes
    assert "loose.png" in notes
    (problem,) = source.problems
    assert "empty" in problem.file
    assert not problem.fatal


def test_links(tmp_path):
    tree(tmp_path / "data", "a/1.png", "b/1.png")
    tree(tmp_path / "elsewhere", "2.png")
    (tmp_path / "data" / "a" / "more").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "data" / "b" / "loop").symlink_to(tmp_path / "data" / "b")
    (tmp_path / "data" / "b" / "self.png").symlink_to(tmp_path / "data" / "b" / "self.png")
    source = open_source(tmp_path / "data", val_fraction=0)
    assert ids(source)["train"] == ["a/1.png", "a/more/2.png", "b/1.png", "b/self.png"]
    assert [problem.what for problem in source.problems] == ["is a link that leads into a loop"]
    with pytest.raises(DataError, match=r"self\.png: cannot be read"):
        source.image(source.splits["train"][3])


def test_names_that_are_not_utf8(tmp_path):
    tree(tmp_path, "a/1.png", "b/größe 图.png")
    os.rename(tmp_path / "a" / "1.png", os.path.join(tmp_path, "a", os.fsdecode(b"\xe9.png")))
    source = open_source(tmp_path, val_fraction=0)
    assert ids(source)["train"] == ["a/\\xe9.png", "b/größe 图.png"]
    for sample in source.splits["train"]:
        sample.id.encode()
        assert source.image(sample).shape == (1, 3, 4)


def test_codes_get_names(tmp_path):
    tree(tmp_path, "n01/1.png", "n02/1.png")
    source = open_source(tmp_path, names={"n02": "cat", "n01": "dog"})
    assert source.labels.names == ("dog", "cat")
    assert source.labels.external == ("n01", "n02")


# ---- tables


def table(path, *rows, delimiter=","):
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=delimiter).writerows(rows)
    return path


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_table_with_names(tmp_path, delimiter):
    tree(tmp_path, "x/1.png", "x/2, 3.png", "10.png")
    rows = [("label", "path"), ("dog", "x/1.png"), ("cat", "./x/2, 3.png"), ("dog", "10.png")]
    source = open_source(table(tmp_path / "t.csv", *rows, delimiter=delimiter), val_fraction=0)
    assert (source.kind, source.labels.names) == ("csv", ("cat", "dog"))
    assert ids(source)["train"] == ["10.png", "x/1.png", "x/2, 3.png"]
    assert classes(source, "train") == ["dog", "dog", "cat"]
    assert all(source.image(sample).shape == (1, 3, 4) for sample in source.splits["train"])


def test_table_with_numbers_and_splits(tmp_path):
    rows = [("path", "label", "split")]
    rows += [
        (f"{i}.png", 10 * (i % 3) + 1, ("train", "validation", "TEST")[i // 3]) for i in range(9)
    ]
    source = open_source(table(tmp_path / "t.csv", *rows), names={1: "a", 11: "b", 21: "c"})
    assert source.labels.external == (1, 11, 21)
    assert source.labels.names == ("a", "b", "c")
    assert ids(source)["val"] == ["3.png", "4.png", "5.png"]
    assert ids(source)["test"] == ["6.png", "7.png", "8.png"]


def test_columns_of_a_table_can_be_named(tmp_path, capsys):
    """By options, which the error names and the recipe keeps."""
    for number in range(8):
        picture(tmp_path / f"{number}.png", 20 * number)
    rows = "".join(f"{n}.png,x,{'ab'[n % 2]},{'valid' if n > 5 else ''}\n" for n in range(8))
    path = tmp_path / "t.csv"
    path.write_text(f"File,label,kind,part\n{rows}")
    with pytest.raises(DataError, match=r"no column 'path'.*--path-column, --label-column"):
        open_source(path)
    source = open_source(path, columns=Columns("File", "kind", "part"))
    assert source.labels.names == ("a", "b")
    assert ids(source)["val"] == ["6.png", "7.png"]
    assert open_source(path, columns=Columns("File")).labels.names == ("x",)
    with pytest.raises(DataError, match=r"--label-column knd: .*did you mean 'kind'"):
        open_source(path, columns=Columns("File", "knd"))
    with pytest.raises(ConfigError, match="was read as digits, which has no columns"):
        open_source("digits", columns=Columns("File"))
    options = ["--path-column=File", "--label-column=kind", "--split-column", "part"]
    assert main(["data", "check", str(path), *options]) == 0
    run = tmp_path / "run"
    small = ["--model=vit", "--set=patch=4", "--set=dim=8", "--set=depth=1", "--set=heads=1"]
    small += ["--image-size=8", "--epochs=1", "--workers=0"]
    assert main(["train", str(path), *options, *small, "--out", str(run)]) == 0
    assert 'label_column = "kind"' in (run / "recipe.toml").read_text()
    assert main(["evaluate", str(run)]) == 0
    other = tmp_path / "other.csv"
    other.write_text(f"File,label,kind,part\n{rows}")
    assert main(["evaluate", str(run), str(other)]) == 0
    other.write_text(f"File,label,sort,part\n{rows}")
    assert main(["evaluate", str(run), str(other)]) == 2
    assert main(["evaluate", str(run), str(other), "--label-column=sort"]) == 0
    assert "val: 2 images" in capsys.readouterr().out


def test_table_with_mixed_labels_has_names(tmp_path):
    rows = [("path", "label"), ("a.png", "1"), ("b.png", "01"), ("c.png", "2")]
    assert open_source(table(tmp_path / "t.csv", *rows)).labels.names == ("01", "1", "2")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "no column 'path': it is empty"),
        ([()], "no column 'path': it is empty"),
        ([("path", "label")], "no rows below its header"),
        ([("a.png", "cat")], "no column 'path': it has a.png, cat.*first line must name"),
        ([("path", "lable"), ("a.png", "cat")], "no column 'label': it has path, lable"),
        ([("path", "label"), ("a.png", "")], "line 2: has no label"),
        ([("path", "label"), ("", "cat")], "line 2: has no path"),
        ([("path", "label"), ("a.png",)], "line 2: has no label"),
        ([("path", "label"), ("a.png", "cat", "x")], "line 2: has more values"),
        ([("path", "label", "split"), ("a.png", "cat", "dev")], "line 2: split 'dev'"),
        (
            [("path", "label"), ("a.png", "cat"), ("./a.png", "dog")],
            "line 3: a.png .*'dog' in train, .*line 2 .*'cat' in train",
        ),
        (
            [("path", "label", "split"), ("a.png", "cat", "train"), ("b.png", "cta", "val")],
            "line 3: class 'cta' is in val but not in train: did you mean 'cat'",
        ),
    ],
)
def test_bad_tables(tmp_path, rows, message):
    path = table(tmp_path / "t.csv", *rows)
    with pytest.raises(DataError, match=message) as error:
        open_source(path)
    assert str(error.value).startswith(str(path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('a.png,"cat\nb.png,dog\nc.png,dog\n', "line 2: .*a quote is opened here and never closed"),
        ('\na.png,"cat\nb.png,dog"\n', "line 3: the label has a line break in it"),
        ('a.png,cat\n"b.png\nc.png",dog\n', "line 3: the path has a line break in it"),
        ('a.png,"cat"s\n', "line 2: cannot be understood: ',' expected"),
    ],
)
def test_a_quote_that_swallows_rows(tmp_path, text, message):
    (tmp_path / "t.csv").write_text("path,label\n" + text)
    with pytest.raises(DataError, match=message):
        open_source(tmp_path / "t.csv")


def test_a_line_break_in_a_column_that_is_not_used(tmp_path):
    (tmp_path / "t.csv").write_text('path,label,text\na.png,cat,"one\ntwo"\nb.png,,\n')
    with pytest.raises(DataError, match="line 4: has no label"):
        open_source(tmp_path / "t.csv")


def test_files_that_are_no_tables(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"path,label\ncaf\xe9.png,1\n")
    (tmp_path / "a.zip").write_bytes(b"PK")
    for name, message in (("t.csv", "not text in UTF-8"), ("a.zip", "unpack the archive")):
        with pytest.raises(DataError, match=rf"{name}: .*{message}"):
            open_source(tmp_path / name)
    with pytest.raises(DataError, match=r"no\.csv: there is no such file"):
        open_source(tmp_path / "no.csv")
    with pytest.raises(DataError, match=r"no\.csv: cannot be read"):
        open_source(f"csv:{tmp_path}/no.csv")


def test_a_repeated_line_is_said_once(tmp_path):
    rows = [("path", "label"), ("a.png", "cat"), ("a.png", "cat"), ("b.png", "dog")]
    source = open_source(table(tmp_path / "t.csv", *rows), val_fraction=0)
    assert ids(source)["train"] == ["a.png", "b.png"]
    assert [p.what for p in source.problems] == [f"line 3 of {tmp_path}/t.csv repeats line 2"]


# ---- IDX


def idx(path, array):
    head = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    opener = gzip.open if path.name.endswith(".gz") else open
    with opener(path, "wb") as file:
        file.write(head + array.astype(np.uint8).tobytes())


def mnist(folder, end="", classes=3, count=30):
    images = np.random.default_rng(0).integers(0, 256, (count, 5, 4))
    for part in ("train", "t10k"):
        idx(folder / f"{part}-images-idx3-ubyte{end}", images)
        idx(folder / f"{part}-labels-idx1-ubyte{end}", np.arange(count) % classes)
    return images


@pytest.mark.parametrize("end", ["", ".gz"])
def test_idx(tmp_path, end):
    images = mnist(tmp_path, end)
    source = open_source(tmp_path)
    assert (source.kind, source.labels.external) == ("idx", (0, 1, 2))
    assert [len(samples) for samples in source.splits.values()] == [27, 3, 30]
    assert source.splits["test"][4] == Sample("test/4", 1)
    copied = pickle.loads(pickle.dumps(source))
    assert len(pickle.dumps(source)) < 6000  # the images are not in it
    for one in (source, copied):
        image = one.image(one.splits["test"][4])
        assert image.dtype == torch.uint8
        np.testing.assert_array_equal(image.numpy(), images[4][None])
    named = open_source(f"idx:{tmp_path}", names=["shirt", "shoe", "bag"])
    assert named.labels.names == ("shirt", "shoe", "bag")


IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
CUT_GZ = gzip.compress(bytes(2000))[:-9]


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        (LABELS, np.zeros(29), "29 labels for 30 images"),
        (IMAGES, lambda data: data[:-1], "its header says 30x5x4, 600 bytes; it has 599"),
        (IMAGES, lambda data: data + b"x", "600 bytes; it has more"),
        (
            IMAGES,
            lambda data: b"\0\0\10\1" + data[4:],
            "is not an IDX file of bytes in 3 dimensions",
        ),
        ("t10k-labels-idx1-ubyte", None, "the labels of test are missing"),
        (f"{IMAGES}.gz", lambda data: CUT_GZ, "train-images"),
        ("t10k-labels-idx1-ubyte", np.arange(30) % 4, "class '3' is in test but not in train"),
    ],
)
def test_bad_idx(tmp_path, file, change, message):
    mnist(tmp_path)
    path = tmp_path / file
    if path.suffix == ".gz":
        (tmp_path / IMAGES).rename(path)
    if change is None:
        path.unlink()
    elif callable(change):
        path.write_bytes(change(path.read_bytes()))
    else:
        idx(path, change)
    with pytest.raises(DataError, match=message) as error:
        open_source(tmp_path)
    assert str(error.value).startswith(str(tmp_path))


# ---- built in


def test_digits():
    source = open_source("digits")
    assert sizes(source) == {"train": 1295, "val": 143, "test": 359}
    everything = {sample.id for samples in source.splits.values() for sample in samples}
    assert len(everything) == 1797
    assert source.splits == open_source("digits", seed=5).splits
    image = source.image(source.splits["train"][0])
    assert (image.shape, image.dtype, int(image.min())) == ((1, 8, 8), torch.uint8, 0)
    assert max(int(source.image(s).max()) for s in source.splits["train"][:20]) == 255
    assert ids(source)["test"][:3] == ids(open_source("digits"))["test"][:3]
    with pytest.raises(DataError, match="digits:5"):
        open_source("digits:5")


# ---- public data sets


class Fake:
    """As torchvision's CIFAR10 looks."""

    classes = ("plane", "car")
    opened = 0

    def __init__(self, root, train, download):
        if not download and not root.exists():
            raise RuntimeError("Dataset not found or corrupted. You can use download=True")
        self.targets = [0, 1] * (10 if train else 2)

    def __getitem__(self, place):
        Fake.opened += 1
        return Image.new("RGB", (4, 3), (place, 0, 0)), self.targets[place]


def test_public_data_needs_to_be_fetched_explicitly(tmp_path, monkeypatch):
    monkeypatch.setattr("torchvision.datasets.CIFAR10", Fake)
    monkeypatch.setenv("VITREOUS_DATA", str(tmp_path))
    with pytest.raises(
        DataError, match=rf"CIFAR10 is not in {tmp_path}/CIFAR10: pass download=True"
    ):
        open_source("torchvision:CIFAR10")
    source = open_source("torchvision:cifar10", download=True)
    assert Fake.opened == 0
    assert (source.name, source.labels.names) == ("torchvision:CIFAR10", ("plane", "car"))
    assert [len(samples) for samples in source.splits.values()] == [18, 2, 4]
    image = pickle.loads(pickle.dumps(source)).image(source.splits["test"][3])
    assert image[:, 0, 0].tolist() == [3, 0, 0]
    assert open_source("torchvision:CIFAR10").splits == source.splits  # it is there now
    with pytest.raises(DataError, match="CIFAR11 is not known: did you mean 'cifar10'"):
        open_source("torchvision:CIFAR11")


def test_images_of_public_data_have_a_limit_too(tmp_path, monkeypatch):
    monkeypatch.setattr("torchvision.datasets.CIFAR10", Fake)
    monkeypatch.setenv("VITREOUS_DATA", str(tmp_path))
    source = open_source("torchvision:CIFAR10", download=True)
    source.max_pixels = 11
    with pytest.raises(DataError, match=r"CIFAR10, image test/3: .*too many pixels: 4x3"):
        source.image(source.splits["test"][3])


def test_the_public_data_sets_exist():
    from torchvision import datasets

    from vitreous.data.formats.torchvision import DATASETS

    assert [name for name in DATASETS if not hasattr(datasets, name)] == []


# ---- what a name means


def test_every_source_can_be_pickled(tmp_path):
    tree(tmp_path / "f", "a/1.png", "b/2.png")
    path = table(tmp_path / "f" / "t.csv", ("path", "label"), ("a/1.png", "a"), ("b/2.png", "b"))
    for name in (tmp_path / "f", path, "digits", "shapes"):
        source = open_source(name, val_fraction=0)
        copied = pickle.loads(pickle.dumps(source))
        assert copied.splits == source.splits
        sample = source.splits["train"][-1]
        assert torch.equal(copied.image(sample), source.image(sample))


def test_unknown_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"digts: there is no such file.*did you mean 'digits'"):
        open_source("digts")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty: .*no images"):
        open_source("empty")
    (tmp_path / "empty" / "labels.csv").write_text("")
    with pytest.raises(DataError, match=r"perhaps you mean empty/labels\.csv"):
        open_source("empty")
    (tmp_path / "hollow" / "a").mkdir(parents=True)
    with pytest.raises(DataError, match="hollow: no images in its folders"):
        open_source("hollow")
    with pytest.raises(DataError, match="nowhere: there is no such folder"):
        open_source("folder:nowhere")


def test_a_built_in_name_wins_over_a_folder_unless_it_is_written_as_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tree(tmp_path, "digits/a/1.png", "digits/b/1.png"))
    assert open_source("digits").kind == "built-in"
    assert open_source("./digits").kind == "folder"
    assert open_source(Path("digits")).kind == "folder"
    assert open_source("folder:digits").kind == "folder"


def test_the_same_data_under_other_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tree(tmp_path, "digits/a/1.png")
    (tmp_path / "link").symlink_to(tmp_path / "digits")
    for other in ("./digits", "digits/", "link", "folder:digits", str(tmp_path / "digits")):
        assert same_source(other, str(tmp_path / "digits"))
        assert not same_source(other, "digits"), "the built-in data"
    assert same_source("digits", "digits")
    assert not same_source("shapes:10", "shapes:20")
