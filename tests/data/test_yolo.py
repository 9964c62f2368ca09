"""YOLO's text files and data.yaml: what lines mean, where files are, and what is refused."""

import contextlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from source_facts import assert_problems, assert_spoiled, ids

from vitreous.cli.main import main
from vitreous.data.formats import open_source, same_source
from vitreous.data.objects.data_yaml import read_data_yaml
from vitreous.errors import DataError
from vitreous.tasks.data_check import bad_samples, check
from vitreous.train.open_data import open_usable
from vitreous.train.recipe import Recipe

HEIGHT, WIDTH = 20, 40


def image(path, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (WIDTH, HEIGHT), "gray").save(path, **options)


def text(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def put(root, name, lines="0 0.5 0.5 0.5 0.5\n", images="images", labels="labels"):
    image(root / images / f"{name}.jpg")
    text(root / labels / f"{name}.txt", lines)


@pytest.fixture
def data(tmp_path):
    """Two images to train on and one for val, with data.yaml."""
    for split, names in (("train", "ab"), ("val", "c")):
        for name in names:
            put(tmp_path, name, images=f"images/{split}", labels=f"labels/{split}")
    text(tmp_path / "data.yaml", "train: images/train\nval: images/val\nnames: [cat, dog]\n")
    return tmp_path


def opened(path, **options):
    return open_source(path, **{"val_fraction": 0, **options})


# ---- what is read


def test_lines_are_parts_of_the_image(tmp_path):
    put(tmp_path, "a", "1 0.5 0.5 1 1\n\n0 0.25 0.25 0.25 0.5\r\n  2.0 .75 0.5 0.1 1e-1  ")
    put(tmp_path, "b", "")
    image(tmp_path / "images" / "c.jpg")
    source = opened(tmp_path)
    assert (source.kind, source.truth_kind) == ("yolo", "boxes")
    assert (source.labels.names, source.labels.external) == (("0", "1", "2"), (0, 1, 2))
    first, *empty = source.splits["train"]
    truth = source.truth(first)
    expected = torch.tensor([[0, 0, 40, 20], [5, 0, 15, 10], [28, 9, 32, 11]])
    torch.testing.assert_close(truth["boxes"], expected.float())
    assert truth["labels"].tolist() == [1, 0, 2]
    assert [len(source.truth(sample)["boxes"]) for sample in empty] == [0, 0]
    assert "without a label file, which means no objects: 1 image" in source.notes
    assert "train: without objects: 2 images" in source.notes
    assert any("the classes are all numbers that occur: 0, 1, 2" in note for note in source.notes)
    assert source.problems == []
    assert same_source(f"yolo:{tmp_path}", str(tmp_path))


@settings(max_examples=30, deadline=None)
@given(
    st.dictionaries(
        st.integers(0, 99_999),
        st.text("abc: #'\"-é", min_size=1, max_size=6).map(str.strip).filter(bool),
        min_size=1,
        max_size=6,
    ),
    st.randoms(use_true_random=False),
)
def test_whatever_numbers_classes_have_each_keeps_its_name(tmp_path_factory, by_id, random):
    folder = tmp_path_factory.getbasetemp() / "yolo-ids"
    by_id = {id: f"{name}{id}" for id, name in by_id.items()}
    drawn = [random.choice(list(by_id)) for _ in range(5)]
    put(folder, "a", "".join(f"{id} 0.5 0.5 0.{i + 1} 0.5\n" for i, id in enumerate(drawn)))
    quoted = {id: name.replace("'", "''") for id, name in by_id.items()}
    lines = "".join(f"  {id}: '{name}'\n" for id, name in quoted.items())
    path = text(folder / "data.yaml", f"train: images\nnames:\n{lines}")
    source = opened(path)
    labels = source.truth(source.splits["train"][0])["labels"].tolist()
    assert [source.labels.names[label] for label in labels] == [by_id[id] for id in drawn]
    assert [source.labels.external[label] for label in labels] == drawn
    assert source.labels.external == tuple(sorted(by_id)), "also those without an object"


# ---- where files are


def test_data_yaml(data):
    for name in (data, data / "data.yaml", f"yolo:{data}", f"yolo:{data}/data.yaml"):
        source = opened(name)
        assert ids(source) == {
            "train": ["images/train/a.jpg", "images/train/b.jpg"],
            "val": ["images/val/c.jpg"],
        }
        assert source.labels.names == ("cat", "dog"), "also without an object"
        assert source.splits["val"][0].target == "labels/val/c.txt"
    assert "folders and names of the classes: data.yaml" in source.notes
    assert "train: images/train with labels/train" in source.notes


@pytest.mark.parametrize(
    ("content", "images"),
    [
        ("train: ../train/images", "train/images"),  # as Roboflow writes it
        ("path: .\ntrain: train/images", "train/images"),
        ("path: sub\ntrain: images/train", "sub/images/train"),
        ("path: nowhere\ntrain: images", "images"),
        ("train: [images/one, images/two]", "images/one"),
        ("train: [images, images/one]", "images/one"),
        ("train:\n  - images/one\n  - images/two\ntest:", "images/one"),
        ("train: sub", "sub/images"),
        ("train: both", "both"),
        ("train: lists/train.txt", "images/one"),
    ],
)
def test_where_data_yaml_says_that_images_are(tmp_path, content, images):
    put(tmp_path, "a", images=images, labels=images.replace("images", "labels"))
    if "two" in content:
        put(tmp_path, "b", images="images/two", labels="labels/two")
    text(tmp_path / "lists" / "train.txt", "./images/one/a.jpg\n\n")
    put(tmp_path, "other", images="images/one", labels="labels/one")
    path = text(tmp_path / "data.yaml", f"# mine\nnc: 2\nnames: ['cat', no]\n{content}\n")
    source = opened(path)
    assert source.labels.names == ("cat", "no"), "a name is text, whatever it may mean in YAML"
    samples = {sample.id.rpartition("/")[2]: sample for sample in source.splits["train"]}
    assert len(samples) == len(source.splits["train"]), "each once"
    has_other = images in ("images", "images/one") and "lists" not in content
    assert ("other.jpg" in samples) == has_other
    assert source.truth(samples["a.jpg"])["boxes"].tolist() == [[10, 5, 30, 15]]
    assert ("b.jpg" in samples) == ("two" in content)


def test_a_list_with_an_image_that_is_missing(data):
    text(data / "train.txt", "images/train/a.jpg\nimages/train/nowhere.jpg\n")
    text(data / "data.yaml", "train: train.txt\nval: images/val\nnames: [cat]\n")
    source = opened(data)
    assert "train: 2 images listed in train.txt" in source.notes
    with pytest.raises(DataError, match=r"images/train/nowhere\.jpg: there is no such file"):
        source.truth(source.splits["train"][1])
    assert list(bad_samples(source)) == ["images/train/nowhere.jpg"]


def test_names_of_classes(tmp_path):
    put(tmp_path, "a", "1 0.5 0.5 0.5 0.5")
    text(tmp_path / "labels" / "classes.txt", "cat\ndog\n")
    source = opened(tmp_path)
    assert (source.labels.names, source.problems) == (("cat", "dog"), [])
    assert "names of the classes: labels/classes.txt" in source.notes
    assert opened(tmp_path, names=["Katze", "Hund"]).labels.names == ("Katze", "Hund")
    ignoring = opened(tmp_path, names={"1": None})
    assert ignoring.labels.names == ("cat",)
    assert ignoring.truth(ignoring.splits["train"][0])["boxes"].shape == (0, 4)
    assert "ignored: 1 object of 1: the names file has null" in ignoring.notes
    text(tmp_path / "classes.txt", "cow\ndog\n")
    with pytest.raises(DataError, match=r"classes\.txt and .*classes\.txt name the classes diff"):
        opened(tmp_path)
    (tmp_path / "classes.txt").unlink()
    (tmp_path / "labels" / "classes.txt").unlink()
    assert opened(tmp_path, names=["a", "b", "c"]).labels.external == (0, 1, 2)
    put(tmp_path, "a", "")
    with pytest.raises(DataError, match="nothing names the classes: pass names=FILE"):
        opened(f"yolo:{tmp_path}")


def test_several_yaml_files(tmp_path):
    for name in ("a", "b"):
        text(tmp_path / f"{name}.yaml", "train: x\nnames: [a]")
    with pytest.raises(DataError, match=r"has a\.yaml and b\.yaml: give the path of one of them"):
        opened(tmp_path)


def test_the_same_images_to_train_and_to_test(data):
    """A leak, and no reason not to train: sample files have it."""
    text(data / "data.yaml", "train: images/train\nval: images/train\nnames: [cat, dog]\n")
    source = opened(data)
    assert source.splits["train"] == source.splits["val"]
    (leak,) = [problem for problem in source.problems if problem.leak]
    assert not leak.fatal
    assert "all images of val are in train too, as images/train/a.jpg" in leak.what
    assert "leave it out: then a part of train is held out" in leak.what
    report = check(source)
    assert [problem for problem in report.problems if problem.leak] == [leak]  # once
    assert not report.fatal
    said = []
    open_usable(Recipe(data=str(data)), said.append)
    assert any(line.startswith(f"leak: {data}: all images of val") for line in said)


def test_no_label_file_at_all(data):
    for file in data.glob("labels/*/*.txt"):
        file.unlink()
    with pytest.raises(DataError, match=rf"no image has a label file: looked in {data}/labels/tr"):
        opened(data)


def test_yolo_and_voc_in_one_folder(tmp_path):
    put(tmp_path, "a")
    text(tmp_path / "annotations" / "a.xml", "<annotation></annotation>")
    source = opened(tmp_path)
    assert source.kind == "yolo"
    assert "was read as yolo; voc:PATH reads it as voc" in source.notes


# ---- lines that are written badly


POLYGON = "0 0.1 0.1 0.9 0.1 0.9 0.9"
BAD_LINES = {
    "too few": ("0 0.5 0.5 0.5", "has 4 numbers, expected 5: class, centre x"),
    "a score": ("0 0.5 0.5 0.5 0.5 0.9", "has 6 numbers.* they are predictions"),
    "a polygon beyond 1": ("0 0.1 0.2 0.3 1.4 0.5 0.6", "y of point 2 is 1.4, expected 0"),
    "half a point": (f"{POLYGON} 0.1", "has 8 numbers, expected 5: .* or 7 or more"),
    "words": ("cat 0.5 0.5 0.5 0.5", "'cat' is not a number"),
    "commas": ("0,0.5,0.5,0.5,0.5", "has 1 numbers, expected 5"),
    "not a number": ("0 0.5 nan 0.5 0.5", "'nan' is not a number"),
    "infinite": ("0 0.5 inf 0.5 0.5", "'inf' is not a number"),
    "half a class": ("0.5 0.5 0.5 0.5 0.5", "the class is 0.5, expected"),
    "a class below zero": ("-1 0.5 0.5 0.5 0.5", "the class is -1, expected"),
    "an unknown class": ("7 0.5 0.5 0.5 0.5", "class 7 has no name, the last .* is 1"),
    "pixels": ("0 20 10 15 12", r"centre x is 20, .* 1.*: are these pixels\?"),
    "beyond 1": ("0 0.5 1.01 0.5 0.5", "centre y is 1.01, expected 0 to 1"),
    "negative": ("0 0.5 0.5 -0.5 0.5", "width is -0.5, expected 0 to 1"),
}


@pytest.mark.parametrize("case", BAD_LINES)
def test_a_line_that_tells_nothing_spoils_its_image(data, case):
    line, message = BAD_LINES[case]
    put(data, "b", f"1 0.5 0.5 0.5 0.5\n{line}\n", "images/train", "labels/train")
    assert_spoiled(opened(data), "images/train/b.jpg", "labels/train/b.txt", f"line 2: {message}")


def test_every_bad_line_is_told(data):
    put(data, "b", "0 1\n0 2\n" + "0 3\n" * 5, "images/train", "labels/train")
    source = opened(data)
    with pytest.raises(DataError, match=r"line 1: .*line 2: .*line 5: .* \(and 2 more\)$"):
        source.truth(source.splits["train"][1])


def test_files_that_cannot_be_read(data):
    put(data, "a", b"\xff\xfe0 0.5", "images/train", "labels/train")
    (data / "labels" / "train" / "b.txt").unlink()
    (data / "labels" / "train" / "b.txt").mkdir()
    put(data, "c", b"0" * 10_000_001, "images/val", "labels/val")
    source = opened(data)
    messages = {"a": "is not text in UTF-8", "c": "is larger than"}
    for split, part in source.splits.items():
        for sample in part:
            name = sample.id[-5]
            if name in messages:
                said = rf"labels/{split}/{name}\.txt: {messages[name]}"
                with pytest.raises(DataError, match=said):
                    source.truth(sample)
            else:
                assert source.truth(sample)["boxes"].shape == (0, 4), "a folder is no label file"


def test_boxes_at_the_edge(data):
    lines = ("0 0.01 0.5 0.05 0.2", "0 0.9 0.9 0.6 0.6", "0 0.1000004 0.2 0.2 0.2")
    put(data, "a", "\n".join(lines), "images/train", "labels/train")
    source = opened(data)
    report = check(source)
    fact = ("labels/train/a.txt, line 2", "8 pixels over the edge")
    assert_problems(report.problems, [fact], more=True)
    assert report.truth.cut == {"train": 2, "val": 0}, "not the rounding of six decimals"
    assert len(source.truth(source.splits["train"][0])["boxes"]) == 3
    put(data, "a", "0 0.9 0.5 0.00001 0.5", "images/train", "labels/train")
    with pytest.raises(DataError, match="line 1: its box is outside the image of 20x40"):
        opened(data).truth(source.splits["train"][0])  # less than a hundredth of a pixel


# ---- data.yaml that is written badly


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is not YOLO's data"),
        ("- a\n- b", "is not YOLO's data"),
        ("just text", "is not YOLO's data"),
        ("names: [a", "is not YAML"),
        ("\tnames: a", "is not YAML"),
        ("a: \x01", "is not YAML"),
        ("names: [a]", "has no folder of images for train, val or test"),
        ("train:\nval:\nnames: [a]", "has no folder of images"),
        ("train: images/train\ntrain: images/val\nnames: [a]", "line 2: 'train' occurs twice"),
        ("train: {a: b}\nnames: [a]", "train: expected a folder of images, or a list of folders"),
        ("train: nowhere\nnames: [a]", r"train: there is no .*/nowhere$"),
        ("path: [a]\ntrain: images/train", "path: expected a folder"),
        ("train: images/train\nnames: cat", "names: expected a list of names"),
        ("train: images/train\nnames: [a, [b]]", "names: no name for class 1"),
        ("train: images/train\nnames: [a, '']", "names: no name for class 1"),
        ("train: images/train\nnames: {x: a}", "names: 'x' is not the number of a class"),
        (
            "train: images/train\nnames: {0: a, 00: b}",
            "names: '00' is not the number of a class, or",
        ),
        ("train: images/train\nnames: [a, a]", "two classes have the same name: a"),
        ("train: images/train\nnc: 3\nnames: [a, b]", "nc is 3, but names has 2"),
        ("train: images/train\nnc: many", "nc: expected the number of classes, not 'many'"),
        ("train: images/train\nnc: 99999999999999", "nc: expected the number of classes"),
        ("a: &a [x]\nb: [*a, *a]\ntrain: images/train", r"line 2: has an alias \(\*a\): write the"),
        ("train: &t images/train\nval: *t", r"line 2: has an alias \(\*t\)"),
        ("train: images/train\n? [a, b]\n: c", "line 2: expected a name before the colon"),
        ("[" * 100_000, "line 1: .*nested more than 10 deep"),
        ("a: " + "x" * 1_000_000, "is larger than 1,000,000 bytes"),
    ],
)
def test_data_yaml_that_cannot_be_used(data, content, message):
    path = text(data / "data.yaml", content)
    with pytest.raises(DataError, match=message) as error:
        opened(path)
    if "same name" not in message:
        assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


def test_data_yaml_runs_nothing(data):
    content = "train: images/train\nnames: !!python/object/apply:os.system ['touch hacked']\n"
    path = text(data / "data.yaml", content + "download: https://a.b/c.zip\n")
    assert read_data_yaml(str(path)).labels.names == ("touch hacked",), (
        "a list, whatever it asks for"
    )
    assert not (data / "hacked").exists()


def test_classes_that_are_only_counted(data):
    text(data / "data.yaml", "train: images/train\nnc: 2\n")
    assert opened(data).labels.names == ("0", "1")


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.lists(
            st.floats().map(str) | st.integers(-3, 9).map(str) | st.text(max_size=4), max_size=8
        ).map(" ".join),
        max_size=4,
    )
)
def test_nothing_in_a_file_makes_the_reading_crash(tmp_path_factory, lines):
    folder = tmp_path_factory.getbasetemp() / "fuzz-yolo"
    put(folder, "a", "\n".join(lines).encode("utf-8", "surrogatepass"))
    put(folder, "b")
    source = opened(f"yolo:{folder}", names=["cat"])
    report = check(source, workers=1)
    assert len(report.unusable) == len(bad_samples(source, workers=1)) <= 1
    with contextlib.suppress(DataError):
        boxes = source.truth(source.splits["train"][0])["boxes"]
        assert (boxes[:, 2:] > boxes[:, :2]).all()


# ---- the command line


def test_command(data, capsys):
    put(data, "b", "0 0.5 0.5 0.5 0.5\n0 1 2\n", "images/train", "labels/train")
    assert main(["data", "check", str(data / "data.yaml")]) == 2
    out = capsys.readouterr().out
    assert f"{data}/data.yaml: detect, read as yolo" in out
    assert "  fatal  labels/train/b.txt: line 2: has 3 numbers, expected 5" in out
    assert "  note   {}: class 'dog' has no objects at all".format(data / "data.yaml") in out
    assert main(["data", "check", str(data), "--task", "segment"]) == 2
    assert "no label file has a polygon" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("names: [cat, dog\n", r"data\.yaml: is not YAML"),
        ("!!python/object/apply:os.system [ls]\n", r"data\.yaml: is not YOLO's data"),
        ("names: [cat, dog]\n", r"data\.yaml: has no folder of images"),
        (
            "train: images/train\nnames: [cat, cat]\n",
            r"data\.yaml: names: two classes have the same name: cat",
        ),
    ],
)
def test_a_broken_data_yaml_is_not_passed_over(data, content, message):
    text(data / "data.yaml", content)
    with pytest.raises(DataError, match=message):
        opened(data)


def test_a_path_that_is_not_there_is_told(data):
    more = "train: images/train\nval: images/val\nnames: [cat, dog]\n"
    text(data / "data.yaml", f"path: /nothere\n{more}")
    assert "data.yaml: path: there is no /nothere; looked beside the file" in opened(data).notes


# ---- polygons

TRIANGLE = "0 0 0 0.5 0 0.5 1"
SQUARE = "1 0.5 0.5 1 0.5 1 1 0.5 1"


def test_a_box_among_polygons_is_no_mask(tmp_path):
    put(tmp_path, "a", f"{TRIANGLE}\n0 0.5 0.5 0.5 0.5\n", "images", "labels")
    put(tmp_path, "b", f"{SQUARE}\n", "images", "labels")
    (tmp_path / "classes.txt").write_text("cat\n")
    source = opened(tmp_path, truth="mask")
    assert {p.file: p.what for p in check(source).unusable} == {
        "labels/a.txt": "line 2: is a box, from which no mask can be drawn",
        "labels/b.txt": "line 1: class 1 has no name",
    }
