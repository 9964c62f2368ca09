"""What a folder means is recognised, or it is asked; nothing becomes a class by accident."""

import re

import numpy as np
import pytest
from PIL import Image
from source_facts import assert_problems, sizes

from vitreous.cli.main import main
from vitreous.data.formats import open_source
from vitreous.errors import DataError
from vitreous.tasks.data_check import bad_samples

RANDOM = np.random.default_rng(0)


def put(root, *files):
    """Images, masks (with `mask` in their path), and files of text."""
    for file in files:
        path = root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".jpg":
            Image.fromarray(RANDOM.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(path)
        elif path.suffix in (".png", ".tif"):
            Image.fromarray(RANDOM.integers(0, 2, (8, 8), dtype=np.uint8)).save(path)
        elif path.suffix == ".xml":
            box = "<xmin>1</xmin><ymin>1</ymin><xmax>4</xmax><ymax>4</ymax>"
            thing = f"<object><name>cell</name><bndbox>{box}</bndbox></object>"
            path.write_text(f"<annotation>{thing}</annotation>")
        else:
            path.write_text("0 0.5 0.5 0.5 0.5\n" if path.suffix == ".txt" else "x = 1\n")
    return root


def numbered(*patterns, count=4):
    return [pattern.format(number) for pattern in patterns for number in range(count)]


def opened(root, **options):
    source = open_source(root, **options)
    return source.kind, sizes(source)


BOTH = {"train": 4, "val": 4}
CITY = "leftImg8bit/val/ulm/ulm_1", "gtFine/val/ulm/ulm_1"


@pytest.mark.parametrize(
    ("files", "kind", "splits"),
    [
        (("train2017/a/{}.jpg", "val2017/a/1{}.jpg"), "folder", BOTH),
        (
            ("Training_set/a/{}.jpg", "test_set/a/1{}.jpg"),
            "folder",
            {"train": 3, "val": 1, "test": 4},
        ),
        (*(("images/train2017/{}.jpg", "labels/train2017/{}.txt"),), *("yolo", {"train": 4})),
        (
            (
                *("images/train/{}.jpg", "masks/train/{}.png"),
                *("images/val/1{}.jpg", "masks/val/1{}.png"),
            ),
            *("masks", BOTH),
        ),
        (
            (
                *("images/train2017/{}.jpg", "masks/train2017/{}.png"),
                *("images/val2017/1{}.jpg", "masks/val2017/1{}.png"),
            ),
            *("masks", BOTH),
        ),
        (("photos/{}.jpg", "color_masks/{}.png"), "masks", {"train": 4}),
        (("{}.jpg", "{}_mask.png"), "masks", {"train": 4}),
        (("{}_sat.jpg", "{}_mask.png"), "masks", {"train": 4}),
        (
            ("train/{}.jpg", "train/{}_mask.png", "val/1{}.jpg", "val/1{}_mask.png"),
            *("masks", BOTH),
        ),
        (("benign/{}.jpg", "benign/{}_mask.png", "normal/{}.jpg"), "masks", {"train": 8}),
    ],
)
def test_layouts(tmp_path, files, kind, splits):
    put(tmp_path, *numbered(*files))
    fraction = 0.1 if "test" in splits else 0
    assert opened(tmp_path, val_fraction=fraction) == (kind, splits)


@pytest.mark.parametrize(
    ("kind", "image", "label", "split"),
    [
        ("voc", "JPEGImages/a.jpg", "Annotations/a.xml", "train"),
        ("voc", "images/a.jpg", "annotations/a.xml", "train"),
        ("voc", "train/images/a.jpg", "train/annotations/a.xml", "train"),
        ("voc", "images/val/a.jpg", "annotations/val/a.xml", "val"),
        ("voc", "valid/a.jpg", "valid/a.xml", "val"),
        ("voc", "a.jpg", "a.xml", "train"),
        ("yolo", "images/a.jpg", "labels/a.txt", "train"),
        ("yolo", "images/train/a.jpg", "labels/train/a.txt", "train"),
        ("yolo", "images/val/a.jpg", "labels/val/a.txt", "val"),
        ("yolo", "train/images/a.jpg", "train/labels/a.txt", "train"),
        ("yolo", "valid/images/a.jpg", "valid/labels/a.txt", "val"),
        ("yolo", "train/a.jpg", "train/a.txt", "train"),
        ("yolo", "a.jpg", "a.txt", "train"),
        ("masks", "train/images/a.jpg", "train/masks/a.png", "train"),
        ("masks", "Training/imgs/a.png", "Training/Annotations/a.png", "train"),
        ("masks", "valid/img/a.jpg", "valid/label/a.png", "val"),
        ("masks", "images/train/a.jpg", "masks/train/a.png", "train"),
        ("masks", "images/training/a.jpg", "annotations/training/a.png", "train"),
        ("masks", "images/validation/a.jpg", "annotations/validation/a.png", "val"),
        ("masks", "train/a.png", "trainannot/a.png", "train"),
        ("masks", "test/a.png", "testannot/a.png", "test"),
        ("masks", "train/a.png", "train_labels/a_L.png", "train"),
        ("masks", "train_images/a.png", "train_masks/a.png", "train"),
        ("masks", "images_test/a.png", "masks-test/a.png", "test"),
        ("masks", "images/a.jpg", "masks/a.png", "train"),
        ("masks", "JPEGImages/a.jpg", "SegmentationClass/a.png", "train"),
        ("masks", "images/deep/er/a.jpg", "gt/deep/er/a.tif", "train"),
        ("masks", f"{CITY[0]}_leftImg8bit.png", f"{CITY[1]}_gtFine_labelIds.png", "val"),
        ("masks", "images/a.jpg", "masks/a_mask.png", "train"),
        ("masks", "images/a_sat.jpg", "masks/a_mask.png", "train"),
        ("masks", "images/a.jpg", "masks/a_segmentation.png", "train"),
    ],
)
def test_images_with_label_files(tmp_path, kind, image, label, split):
    put(tmp_path, image, label)
    for name in (tmp_path, f"{kind}:{tmp_path}"):
        source = open_source(name, val_fraction=0)
        assert (source.kind, sizes(source), source.problems) == (kind, {split: 1}, [])
        (sample,) = source.splits[split]
        assert (sample.id, sample.target) == (image, label)
        truth = source.truth(sample)
        if kind == "masks":
            assert truth.shape == (8, 8)
        else:
            assert truth["boxes"].tolist() == [{"voc": [0, 0, 4, 4], "yolo": [2, 2, 6, 6]}[kind]]
        assert not any("skipped" in note for note in source.notes)


@pytest.mark.parametrize(
    ("kind", "image", "label", "what", "word"),
    [
        ("voc", "JPEGImages/{}.jpg", "Annotations/{}.xml", "no annotation", "annotation"),
        ("yolo", "images/{}.jpg", "labels/{}.txt", "", "label file"),
        ("masks", "images/{}.jpg", "masks/{}.png", "no mask", "mask"),
    ],
)
def test_what_has_no_partner(tmp_path, kind, image, label, what, word):
    both = [each.format(name) for name in "ab" for each in (image, label)]
    put(tmp_path, *both, image.format("lost"), label.format("orphan"))
    put(tmp_path, image.format("b").replace(".jpg", ".png"))
    source = open_source(tmp_path, val_fraction=0)
    assert_problems(
        source.problems, [(label.format("orphan"), f"there is no image for this {word}")]
    )
    twins = [image.format("b"), image.format("b").replace(".jpg", ".png")]
    said = {
        one: f"has the same name as {other}: whose is the {word}?"
        for one, other in (twins, twins[::-1])
    }
    if what:
        said[image.format("lost")] = f"has {what}: looked for {label.format('lost')}"
    samples = {sample.id: sample for sample in source.splits["train"]}
    for id, error in said.items():
        with pytest.raises(DataError, match=f"^{tmp_path}/{id}: {re.escape(error)}"):
            source.truth(samples[id])
    assert set(bad_samples(source)) == set(said)


@pytest.mark.parametrize(
    ("folders", "file", "text"),
    [
        (("cat", "dog"), "cat/1.xml", "<annotation/>"),
        (("cat", "dog"), "cat/1.txt", "0 0.5 0.5 0.5 0.5"),
        (("photos", "others"), "annotations/1.xml", "<svg/>"),
        (("photos", "others"), "labels/1.txt", "a caption of five words"),
        (("cat", "dog"), "annotations/train.json", '{"cat/1.jpg": "asleep"}'),
        (("cat", "dog"), "settings.yaml", "epochs: 3\ntrain: true"),
        (("train/mask", "train/no_mask", "val/mask", "val/no_mask"), "a.md", ""),
        (("with_mask", "without_mask"), "a.md", ""),
    ],
)
def test_class_folders_stay_class_folders(tmp_path, folders, file, text):
    """Whatever other files and words there are."""
    put(tmp_path, *(f"{folder}/1.jpg" for folder in folders), file)
    (tmp_path / file).write_text(text)
    assert open_source(tmp_path, val_fraction=0).kind == "folder"


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("voc", "no images with annotations: looked for JPEGImages"),
        ("yolo", r"no images with label files: looked for data\.yaml, imag"),
        ("masks", "no images with masks: looked for train/images"),
        ("coco", "no COCO files: looked for annotations/instances_train"),
        ("idx", "no IDX files: looked for train-images"),
    ],
)
def test_a_format_that_a_folder_does_not_have(tmp_path, kind, message):
    with pytest.raises(DataError, match=message):
        open_source(f"{kind}:{put(tmp_path, 'images/1.jpg')}")
    if kind != "coco":
        with pytest.raises(DataError, match=r"there is no such (file or )?folder"):
            open_source(f"{kind}:{tmp_path}/nowhere")


def test_masks_beside_images_belong_to_them(tmp_path):
    put(tmp_path, *numbered("{}.jpg", "{}_mask.png"), "4.jpg", "1_mask_1.png")
    source = open_source(tmp_path, val_fraction=0)
    assert {s.id: s.target for s in source.splits["train"]} == {
        **{f"{n}.jpg": f"{n}_mask.png" for n in (0, 2, 3)},
        **{"1.jpg": "", "4.jpg": ""},
    }
    assert "has 2 masks, 1_mask.png and 1_mask_1.png" in source.unpaired["1.jpg"]
    assert source.unpaired["4.jpg"] == "has no mask: looked for ./4_mask.png and the like"


@pytest.mark.parametrize(
    ("files", "facts"),
    [
        (("images/{}.jpg",), ["images", "Seen: images (4 images)", "masks:PATH", "folder:PATH"]),
        (
            ("images/{}.jpg", "annotations/{}.json"),
            ["annotations (4 .json), images (4 images)", "coco:PATH"],
        ),
        (
            ("train/images/{}.jpg", "train/labels/{}.json"),
            ["Seen: train/{images (4 images), labels (4 .json)}"],
        ),
        (("photos/{}.jpg", "masks/x{}.jpg"), ["no image has a mask of its own"]),
        (
            ("Scripts/{}.py", "Scripts/{}.jpg", "docs/{}.jpg"),
            ["looks like a program", "Scripts (4"],
        ),
        (("lib/site-packages/x/{}.py", "lib/y/{}.jpg"), ["looks like a program"]),
        (("a/{}.txt",), ["no images in its folders", "Seen: a (4 .txt)"]),
        (("{}.jpg",), ["4 images, and nothing that says what they show", "yolo: each image"]),
        (("train2017/{}.jpg",), ["train2017 has 4 images but no class folders"]),
    ],
)
def test_what_is_in_doubt_is_an_error_that_lists_what_was_seen(tmp_path, files, facts, capsys):
    put(tmp_path, *numbered(*files))
    for command in (["data", "check"], ["train", "--dry-run"]):
        assert main([*command, str(tmp_path)]) == 2
        err = capsys.readouterr().err
        assert all(fact in err for fact in facts), err


def test_a_program_with_many_images(tmp_path):
    put(tmp_path, *numbered("docs/{}.jpg", count=20), "src/a.py", "setup.py")
    with pytest.raises(DataError, match=r"looks like a program \(setup\.py\)"):
        open_source(tmp_path)
    (tmp_path / "setup.py").unlink()
    assert open_source(tmp_path).kind == "folder", "a script among images is no program"


@pytest.mark.parametrize(
    ("files", "inner", "has"),
    [
        (
            ("CamVid/train/{}.png", "CamVid/trainannot/{}.png", "CamVid/test/1{}.png"),
            *("CamVid", "data to be read as masks"),
        ),
        (("bccd/JPEGImages/{}.jpg", "bccd/Annotations/{}.xml"), "bccd", "read as voc"),
        (("sets/pets/images/{}.jpg", "sets/pets/labels/{}.txt"), "sets/pets", "read as yolo"),
        (("flowers/train/rose/{}.jpg", "flowers/train/lily/{}.jpg"), "flowers", "splits"),
        (("dataset/rose/{}.jpg", "dataset/lily/{}.jpg"), "dataset", "class folders"),
    ],
)
def test_a_data_set_inside_a_repository_is_named(tmp_path, files, inner, has):
    put(tmp_path, *numbered(*files), "Scripts/test.py", "Scripts/colours.png", "README.md")
    with pytest.raises(DataError, match=rf"has .*{has}.* did you mean {tmp_path}/{inner}\?") as got:
        open_source(tmp_path)
    assert f"folder:{tmp_path} reads each of" in str(got.value)
    assert open_source(tmp_path / inner).splits
    assert "Scripts" in open_source(f"folder:{tmp_path}").labels.names


@pytest.mark.parametrize(
    "files",
    [
        ("cat/{}.jpg", "cat/1{}.jpg", "dog/{}.jpg"),
        ("dogs/husky/{}.jpg", "dogs/poodle/{}.jpg", "cats/{}.jpg"),
        ("cat/train/{}.jpg", "cat/val/{}.jpg", "cat/val/1{}.jpg", "dog/train/{}.jpg"),
        ("cat/{}.jpg", "cat/{}.txt", "dog/{}.jpg", "dog/{}.txt", "dog/1{}.jpg"),
    ],
)
def test_classes_that_are_alike_are_no_repository(tmp_path, files):
    put(tmp_path, *numbered(*files))
    assert len(open_source(tmp_path).labels) == 2


@pytest.mark.parametrize(
    ("files", "inner", "has"),
    [
        (("flowers/rose/{}.jpg", "flowers/lily/{}.jpg"), "flowers", "class folders"),
        (("a/b/rose/{}.jpg", "a/b/lily/{}.jpg"), "a/b", "class folders"),
        (("data/train/rose/{}.jpg", "data/val/rose/1{}.jpg"), "data", "class folders"),
        (("obj_train_data/{}.jpg", "obj_train_data/{}.txt"), "obj_train_data", "read as yolo"),
        (("set/images/{}.jpg", "set/masks/{}.png"), "set", "read as masks"),
    ],
)
def test_a_folder_too_many(tmp_path, files, inner, has):
    put(tmp_path, *numbered(*files))
    with pytest.raises(DataError, match=rf"{has}: did you mean {tmp_path}/{inner}\?"):
        open_source(tmp_path)
    assert open_source(tmp_path / inner).splits
    assert open_source(f"folder:{tmp_path}").labels.names == (inner.split("/")[0],)


def test_folders_inside_all_classes_are_told(tmp_path):
    inside = ("animals/cat/{}.jpg", "animals/dog/{}.jpg", "plants/oak/{}.jpg", "plants/elm/{}.jpg")
    put(tmp_path, *numbered(*inside))
    source = open_source(tmp_path)
    assert source.labels.names == ("animals", "plants")
    assert any(f"Did you mean {tmp_path}/animals?" in note for note in source.notes)


def test_the_format_decides(tmp_path):
    put(tmp_path, *numbered("images/{}.jpg", "icons/{}.jpg"))
    with pytest.raises(DataError, match="images"):
        open_source(tmp_path)
    assert open_source(f"folder:{tmp_path}").labels.names == ("icons", "images")
