"""Images with masks: which folders are understood, what a pixel's value means, what is refused."""

import json
import os
import pickle
import re
import struct
import zlib

import numpy as np
import picture_files
import pytest
import tifffile
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mask_files import NAMES, bad_masks, image, mask, pairs
from PIL import Image
from source_facts import sizes

from vitreous.data.decode.masks import read_mask
from vitreous.data.formats import FORMATS, ON_DISK, TRUTHS, open_source, same_source
from vitreous.data.formats.names import mask_labels, with_names
from vitreous.data.source import IGNORED, Sample
from vitreous.data.split import HoldOut, complete, hold_out
from vitreous.errors import ConfigError, DataError
from vitreous.labels import LabelMap

RANDOM = np.random.default_rng(0)


@pytest.fixture
def data(tmp_path):
    """Two images to train on, one for val, with masks."""
    for split, count in (("train", 2), ("val", 1)):
        for i in range(count):
            pairs(tmp_path, (f"{split}/images/{i}.jpg", f"{split}/masks/{i}.png"))
    return tmp_path


def opened(path, **options):
    return open_source(path, **{"names": NAMES, **options})


def ids(source):
    return {split: [(s.id, s.target) for s in part] for split, part in source.splits.items()}


# ---- folders


def test_splits_are_in_their_usual_order_and_files_in_natural_order(tmp_path):
    for split in ("test", "val", "train"):
        for i in (10, 9):
            pairs(tmp_path, (f"{split}/images/{i}.jpg", f"{split}/masks/{i}.png"))
    source = opened(tmp_path)
    assert list(source.splits) == ["train", "val", "test"]
    assert [s.id for s in source.splits["train"]] == ["train/images/9.jpg", "train/images/10.jpg"]
    assert source.notes[0] == "train: train/images with train/masks"


def test_images_and_masks_alone_give_some_to_val(tmp_path):
    pairs(tmp_path, *((f"images/{i}.jpg", f"masks/{i}.png") for i in range(20)))
    source = opened(tmp_path, seed=3)
    assert sizes(source) == {"train": 18, "val": 2}
    assert "val: 2 images held out from train (10%, seed 3)" in source.notes
    assert ids(source) == ids(opened(tmp_path, seed=3))
    assert ids(source) != ids(opened(tmp_path, seed=4))
    assert list(opened(tmp_path, val_fraction=0).splits) == ["train"]


def test_held_out_without_classes_is_one_group():
    samples = [Sample(str(i), f"{i}.png") for i in range(40)]
    kept, held = hold_out(samples, 0.1, 0, truth_kind="mask")
    assert (len(kept), len(held)) == (36, 4)
    notes = []
    assert len(complete({"train": samples}, HoldOut(), notes, truth_kind="mask")["val"]) == 4
    assert notes == ["val: 4 images held out from train (10%, seed 0)"]


def test_pascal_voc(tmp_path):
    pairs(tmp_path, *((f"JPEGImages/{i}.jpg", f"SegmentationClass/{i}.png") for i in "abcd"))
    image(tmp_path / "JPEGImages" / "only-boxes.jpg")
    (tmp_path / "Annotations").mkdir()
    (tmp_path / "Annotations" / "a.xml").write_text("<annotation/>")  # boxes, the usual task
    lists = tmp_path / "ImageSets" / "Segmentation"
    lists.mkdir(parents=True)
    (lists / "train.txt").write_text("a\nc\n")
    (lists / "val.txt").write_text("b\n\nnowhere\n")
    (lists / "trainval.txt").write_text("a\nb\nc\n")
    source = opened(tmp_path, truth="mask")
    assert ids(source) == {
        "train": [(f"JPEGImages/{i}.jpg", f"SegmentationClass/{i}.png") for i in "ac"],
        "val": [("JPEGImages/b.jpg", "SegmentationClass/b.png"), ("JPEGImages/nowhere.jpg", "")],
    }
    told = "splits as listed: train.txt (2), val.txt (2); in none of them, and not used: 2 images"
    assert told in source.notes
    with pytest.raises(DataError, match=r"nowhere\.jpg: is in val\.txt, but there is no such"):
        source.truth(source.splits["val"][1])
    assert set(source.unpaired) == {"JPEGImages/nowhere.jpg"}, "the boxes' image is not asked for"
    (lists / "train.txt").unlink()
    (lists / "val.txt").unlink()
    assert (
        sum(len(part) for part in opened(tmp_path, truth="mask").splits.values()) == 3
    )  # trainval.txt
    (lists / "val.txt").write_text("/JPEGImages/a.jpg /SegmentationClass/a.png\n")
    (lists / "train.txt").write_text("a\n")
    with pytest.raises(DataError, match=r"val\.txt: a is in train\.txt too"):
        opened(tmp_path, truth="mask")


def test_cityscapes_has_more_than_masks_among_the_masks(tmp_path):
    pairs(
        tmp_path, ("leftImg8bit/train/x/x_leftImg8bit.png", "gtFine/train/x/x_gtFine_labelIds.png")
    )
    for other in ("color", "instanceIds"):
        mask(tmp_path / "gtFine" / "train" / "x" / f"x_gtFine_{other}.png")
    (tmp_path / "gtFine" / "train" / "x" / "x_gtFine_polygons.json").write_text("{}")
    source = opened(tmp_path, val_fraction=0)
    assert (len(source.splits["train"]), source.problems, source.unpaired) == (1, [], {})
    assert any("beside the masks, and not used: 2 files" in note for note in source.notes)


def test_a_split_without_masks_is_not_used(data):
    image(data / "test" / "images" / "1.jpg")
    source = opened(data)
    assert list(source.splits) == ["train", "val"]
    assert "test/images has 1 image but no masks: it is not used" in source.notes


def test_what_has_no_partner(data):
    train = data / "train"
    image(train / "images" / "lost.jpg")
    mask(train / "masks" / "orphan.png")
    mask(train / "masks" / "0_mask.png")
    image(train / "images" / "1.png")
    source = opened(data)
    assert [(p.file, p.what, p.fatal) for p in source.problems] == [
        ("train/masks/orphan.png", "there is no image for this mask", False)
    ]
    assert "without a mask, or with several: 4 images, like train/images/0.jpg" in source.notes
    said = {
        "train/images/lost.jpg": "has no mask: looked for train/masks/lost.png and the like",
        "train/images/0.jpg": "has 2 masks, train/masks/0.png and train/masks/0_mask.png: keep one",
        "train/images/1.jpg": "has the same name as train/images/1.png: whose is the mask?",
        "train/images/1.png": "has the same name as train/images/1.jpg: whose is the mask?",
    }
    assert source.unpaired == said
    for sample in source.splits["train"]:
        with pytest.raises(DataError, match=f"^{data}/{sample.id}: {re.escape(said[sample.id])}"):
            source.truth(sample)


def test_a_name_that_ends_like_a_mask_may_be_an_image(tmp_path):
    both = [("images/a.jpg", "masks/a.png"), ("images/a_mask.jpg", "masks/a_mask.png")]
    pairs(tmp_path, *both)
    assert ids(opened(tmp_path, val_fraction=0)) == {"train": both}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (("images/a.jpg", "masks/a.png", "labels/a.png"), "labels and masks both mean the masks"),
        (("images/a.jpg", "masks/a.png", "train/images/a.jpg", "train/masks/a.png"), "keep one"),
        (("images/a.jpg", "masks/b.png"), r"no image has a mask of its own: images/a\.jpg has no"),
    ],
)
def test_folders_that_are_not_clear(tmp_path, files, message):
    for file in files:
        (image if "images" in file else mask)(tmp_path / file)
    with pytest.raises(DataError, match=message) as error:
        opened(f"masks:{tmp_path}")
    assert str(error.value).startswith(str(tmp_path))


def test_names_that_are_not_utf8(tmp_path):
    pairs(tmp_path, ("images/größe.jpg", "masks/größe.png"), ("images/x.jpg", "masks/x.png"))
    for folder, end in (("images", b".jpg"), ("masks", b".png")):
        old = os.path.join(tmp_path, folder, "x" + end.decode())
        os.rename(old, os.path.join(tmp_path, folder, os.fsdecode(b"\xe9" + end)))
    source = opened(tmp_path, val_fraction=0)
    assert ("images/\\xe9.jpg", "masks/\\xe9.png") in ids(source)["train"]
    for sample in source.splits["train"]:
        assert source.truth(sample).shape == source.image(sample).shape[1:]


# ---- the task


def test_the_task_must_fit_the_data(data, tmp_path):
    assert opened(data, truth="mask").truth_kind == "mask"
    with pytest.raises(DataError, match=r"masks.* ground truth is mask, not class"):
        opened(data, truth="class")
    for name in ("digits", "torchvision:MNIST"):
        with pytest.raises(DataError, match="ground truth is class, not mask"):
            open_source(name, truth="mask")
    with pytest.raises(ConfigError, match=r"'masc'.*did you mean 'mask'"):
        open_source("shapes", truth="masc")
    assert (
        open_source("shapes").truth_kind
        == open_source("digits", truth="class").truth_kind
        == "class"
    )
    assert {truth for format in FORMATS.values() for truth in format.truths} == set(TRUTHS)


def test_the_same_data_under_other_names(data):
    assert set(ON_DISK) >= {"masks", "coco"}
    assert same_source(f"masks:{data}", str(data))


# ---- values


VALUES = np.array([[0, 1, 2], [3, 200, 255]], np.uint8)


def save_indexed(path):
    indexed = Image.fromarray(VALUES, "P")
    # colours that have nothing to do with the indices, some of them equal
    indexed.putpalette(bytes(RANDOM.integers(0, 4, 768, dtype=np.uint8)))
    indexed.save(path, transparency=0)


def png(bits, kind, rows):
    head = struct.pack(">IIBBBBB", 3, 2, bits, kind, 0, 0, 0)
    extra = [(b"PLTE", bytes(range(48)))] if kind == 3 else []
    data = (b"IDAT", zlib.compress(bytes(rows)))
    return picture_files.png_of((b"IHDR", head), *extra, data, (b"IEND", b""))


WRITERS = {
    "gray.png": lambda path: Image.fromarray(VALUES).save(path),
    "indexed.png": save_indexed,
    "indexed.gif": lambda path: Image.fromarray(VALUES, "P").save(path, optimize=False),
    "indexed.bmp": save_indexed,
    "deep.png": lambda path: Image.fromarray(VALUES.astype(np.uint16) * 257).save(path),
    "deep.tif": lambda path: Image.fromarray(VALUES.astype(np.uint16) * 257).save(path),
    "gray.tif": lambda path: tifffile.imwrite(path, VALUES),
    "wide.tif": lambda path: tifffile.imwrite(path, VALUES.astype(np.uint32)),
    "real.tif": lambda path: tifffile.imwrite(path, VALUES.astype(np.float32)),
    "alpha.png": lambda path: Image.fromarray(VALUES).convert("LA").save(path),
    "2bits.png": lambda path: path.write_bytes(png(2, 0, [0, 0b00011000, 0, 0b11100100])),
    "4bits.png": lambda path: path.write_bytes(png(4, 0, [0, 0x01, 0x20, 0, 0x3F, 0xE0])),
    "4bits-indexed.png": lambda path: path.write_bytes(png(4, 3, [0, 0x01, 0x20, 0, 0x3F, 0xE0])),
    "1bit.png": lambda path: Image.fromarray(VALUES > 1).save(path),
}
FEW_BITS = {
    "2bits.png": [[0, 1, 2], [3, 2, 1]],
    "4bits.png": [[0, 1, 2], [3, 15, 14]],
    "4bits-indexed.png": [[0, 1, 2], [3, 15, 14]],
    "1bit.png": [[0, 0, 1], [1, 1, 1]],
}


@pytest.mark.parametrize("name", WRITERS)
def test_the_stored_number_is_the_value(tmp_path, name):
    WRITERS[name](tmp_path / name)
    factor = 257 if name.startswith("deep") else 1
    values = read_mask(str(tmp_path / name)).values
    np.testing.assert_array_equal(values, FEW_BITS.get(name, VALUES.astype(int) * factor))
    assert values.dtype in (np.uint8, np.uint16)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.dictionaries(st.integers(0, 65535), st.none() | st.text("abcdef", min_size=1, max_size=9)),
    st.randoms(use_true_random=False),
)
def test_whatever_ids_the_masks_have_a_class_keeps_its_name(tmp_path, by_id, random):
    by_id = {id: None if name is None else f"{name}{id}" for id, name in by_id.items()}
    by_id[7] = "seven"
    values = np.array([random.choice(list(by_id)) for _ in range(20)], np.uint16).reshape(4, 5)
    image(tmp_path / "images" / "1.png", (4, 5))
    mask(tmp_path / "masks" / "1.png", values)
    source = open_source(tmp_path, names=by_id, val_fraction=0)
    classes = source.truth(source.splits["train"][0])
    assert classes.dtype == torch.int16
    names = [None if c == IGNORED else source.labels.names[c] for c in classes.flatten().tolist()]
    assert names == [by_id[id] for id in values.flatten().tolist()]
    assert list(source.labels.external) == sorted(id for id, name in by_id.items() if name)


def test_truth_of_a_mask(data):
    values = mask(data / "val" / "masks" / "0.png")
    source = opened(data)
    assert source.labels == LabelMap(("sky", "road"), (0, 3), (255,))
    expected = np.select([values == 0, values == 3], [0, 1], IGNORED)
    for one in (source, pickle.loads(pickle.dumps(source))):
        truth = one.truth(one.splits["val"][0])
        np.testing.assert_array_equal(truth.numpy(), expected)
    truth[0, 0] = 5  # may be written to: augmentation does
    assert not (source.truth(source.splits["val"][0]) == 5).any()


def test_bad_masks_are_named(data):
    expected = bad_masks(data / "val" / "masks")
    for name in expected:
        image(data / "val" / "images" / name)
    source = opened(data)
    assert len(source.splits["val"]) == len(expected) + 1
    for sample in source.splits["val"]:
        name = os.path.basename(sample.id)
        source.image(sample)
        if name == "0.jpg":
            source.truth(sample)
            continue
        with pytest.raises(DataError) as error:
            source.truth(sample)
        said = str(error.value)
        assert said.startswith(f"{data}/val/masks/{name}: ")
        assert re.search(expected[name], said), said
        assert "\n" not in said


def test_a_mask_that_vanishes(data):
    source = opened(data)
    (data / "val" / "masks" / "0.png").unlink()
    with pytest.raises(DataError, match=rf"^{data}/val/masks/0\.png: there is no such file"):
        source.truth(source.splits["val"][0])


# ---- EXIF


def turned(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return {"exif": exif}


@pytest.mark.parametrize("end", ["jpg", "png", "tif"])
def test_an_image_that_is_turned_has_an_upright_mask(tmp_path, end):
    image(tmp_path / "images" / f"1.{end}", (6, 8), **turned(6))  # stored 6x8, seen 8x6
    mask(tmp_path / "masks" / "1.png", np.zeros((8, 6), np.uint8))
    source = opened(tmp_path, val_fraction=0)
    sample = source.splits["train"][0]
    assert source.image(sample).shape[1:] == source.truth(sample).shape == (8, 6)
    mask(tmp_path / "masks" / "1.png", np.zeros((6, 8), np.uint8))
    said = r"1\.png: is 6x8 .*is 8x6 .*orientation 6"
    with pytest.raises(DataError, match=said):
        source.truth(sample)


@pytest.mark.parametrize(("orientation", "size"), [(3, (6, 8)), (2, (6, 8)), (6, (7, 7))])
def test_a_turn_that_sizes_do_not_tell_is_refused(tmp_path, orientation, size):
    image(tmp_path / "images" / "1.jpg", size, **turned(orientation))
    values = mask(tmp_path / "masks" / "1.png", np.zeros(size, np.uint8))
    source = opened(tmp_path, val_fraction=0)
    sample = source.splits["train"][0]
    with pytest.raises(DataError, match=r"masks/1\.png: .*its image .*1\.jpg .*orientation"):
        source.truth(sample)
    values[0, 0] = 3  # a mask that says how it lies is turned as the image is
    mask(tmp_path / "masks" / "1.png", values, **turned(orientation))
    marked = {3: (-1, -1), 2: (0, -1), 6: (0, -1)}[orientation]
    assert source.truth(sample)[marked] == 1
    assert int(source.truth(sample).sum()) == 1


# ---- names


def written(path, content):
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_names_say_which_classes_there_are(tmp_path):
    by_id = written(tmp_path / "a.json", {"11": None, "10": "ten", "2": "two", "255": None})
    assert mask_labels(by_id) == LabelMap(("two", "ten"), (2, 10), (11, 255))
    in_lines = written(tmp_path / "a.txt", "sky\nroad\n\nNähmaschine\n")
    assert mask_labels(in_lines) == LabelMap(("sky", "road", "Nähmaschine"), (0, 1, 2))
    assert mask_labels(["sky", "road"]) == LabelMap(("sky", "road"), (0, 1))
    assert mask_labels(written(tmp_path / "b.json", ["sky", None, "road"])) == LabelMap(
        ("sky", "road"), (0, 2), (1,)
    )


COLOURS = LabelMap(("sky", "a building", "void"), ("#808080", "#800000", "#000000"))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("c.json", {"#808080": "sky", "#800000": "a building", "#000000": "void"}),
        ("label_colors.txt", "128 128 128\tsky\n128 0 0\t\ta building\n0 0 0 void\n"),
        ("class_dict.csv", "name, r, g, b\nsky,128,128,128\na building, 128, 0, 0\nvoid,0,0,0\n"),
        ("other.csv", "R;G;B;Name\n128;128;128;sky\n128;0;0;a building\n0;0;0;void\n"),
    ],
)
def test_names_of_colours(tmp_path, name, content):
    assert mask_labels(written(tmp_path / name, content)) == COLOURS


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", {"0": "sky", "#000000": "road"}, "ids and colours"),
        ("a.json", {"sky": "0"}, r"'sky' is neither the value of a pixel, from 0 to 65535, nor a"),
        ("a.json", {"70000": "a"}, "'70000' is neither the value"),
        ("a.json", {"01": "a"}, "'01' is neither the value"),
        ("a.json", {"#fff": "a"}, "'#fff' is neither"),
        ("a.json", {"0": 5}, "expected an object from ids to names"),
        ("a.json", "3", "expected an object from ids to names"),
        ("a.json", '{"0": "a", "0": "b"}', "'0' twice"),
        ("a.json", {"#00000A": "a", "#00000a": "b"}, "same id: #00000a"),
        ("a.json", {"0": "a", "1": "a"}, "two classes have the same name: a"),
        ("a.json", {"0": None}, "there are no classes"),
        ("a.json", "{", "cannot be understood"),
        ("a.txt", "1 2 3 sky\nroad\n", "'road': expected red, green and blue"),
        ("a.txt", "1 2 300 sky\n", "'1 2 300 sky': expected red, green and blue, 0 to 255"),
        ("a.csv", "sky,1,2,3\n", "expected the columns name, r, g and b in the first line; it has"),
        ("a.csv", "name,r,g,b\nsky,1,2\n", "expected red, green and blue"),
        ("a.csv", "", "it has nothing"),
    ],
)
def test_names_that_cannot_be_used(tmp_path, name, content, message):
    path = written(tmp_path / name, content)
    with pytest.raises(DataError, match=message) as error:
        mask_labels(path)
    assert str(error.value).startswith(str(path))


def test_a_class_of_images_cannot_be_ignored(tmp_path):
    path = written(tmp_path / "n.json", {"0": "cat", "1": None})
    with pytest.raises(DataError, match="no name for class 1: only values of masks can be ignored"):
        with_names(LabelMap.of_ids([0, 1]), path)


def test_some_names_can_be_changed():
    labels = LabelMap(("background", "cat", "dog"), ("background", 1, 2))
    assert with_names(labels, {"background": None, "2": "hound"}, partial=True) == LabelMap(
        ("cat", "hound"), (1, 2), ("background",)
    )
    assert with_names(labels, None, partial=True) == labels
    with pytest.raises(DataError, match="the data has no class 3: 3 classes: background, 1, 2"):
        with_names(labels, {"3": "cow"}, partial=True)
    with pytest.raises(DataError, match="a list of 1 name is for classes 0 to 0"):
        with_names(labels, ["a"], partial=True)


def coloured(data):
    """The same data with masks in colour."""
    for path in data.glob("*/masks/*.png"):
        values = np.zeros((6, 8, 3), np.uint8)
        values[:2], values[2:4] = (128, 128, 128), (128, 0, 0)
        mask(path, values)
    return data


def test_masks_in_colour(data):
    coloured(data)
    names = {"#808080": "sky", "#800000": "building", "#000000": None}
    source = open_source(data, names=names)
    assert source.labels.external == ("#808080", "#800000")
    truth = source.truth(source.splits["val"][0])
    assert truth[:, 0].tolist() == [0, 0, 1, 1, IGNORED, IGNORED]
    with Image.open(data / "val" / "masks" / "0.png") as opaque:
        opaque.convert("RGBA").save(data / "val" / "masks" / "0.png")
    assert torch.equal(source.truth(source.splits["val"][0]), truth)
    del names["#000000"]
    source = open_source(data, names=names)
    said = r'neither a class nor ignored: #000000 \(16 pixels\): .*\{"#000000": null\}'
    with pytest.raises(DataError, match=said):
        source.truth(source.splits["val"][0])
    mask(data / "val" / "masks" / "0.png")
    with pytest.raises(DataError, match="has a number for each pixel, but the names are given for"):
        source.truth(source.splits["val"][0])
    # and without names nothing can be said of colours
    with pytest.raises(DataError, match=r"0\.png: is in colour.*\{\"#808080\": \"sky\", …\}"):
        open_source(data)


@pytest.mark.parametrize("name", ["classes.json", "names.json", "labels.json"])
def test_names_beside_the_data_are_used(data, name):
    written(data / name, NAMES)
    source = open_source(data)
    assert source.labels == mask_labels(NAMES)
    assert f"names of the classes: {name}" in source.notes
    other = {"0": "other", "3": "road", "255": None}
    assert open_source(data, names=other).labels.names == ("other", "road"), "what is given wins"


def test_tables_of_colours_beside_the_data_are_used(data):
    coloured(data)
    written(data / "label_colors.txt", "128 128 128 sky\n128 0 0 building\n0 0 0 Void\n")
    written(data / "class_dict.csv", "name,r,g,b\n")
    source = open_source(data)
    assert source.labels.names == ("sky", "building", "Void"), "void is a class unless it is null"
    assert "names of the classes: label_colors.txt; class_dict.csv not used" in source.notes


def test_without_names_every_value_is_a_class(data):
    for i, path in enumerate(sorted(data.glob("*/masks/*.png"))):
        mask(path, np.full((6, 8), (7, 0, 12)[i], np.uint8))
    source = open_source(data)
    assert source.labels == LabelMap(("0", "7", "12"), (0, 7, 12))
    (note,) = [note for note in source.notes if "--names FILE" in note]
    assert '{"0": "…", "7": "…", "12": "…"}' in note
    (data / "val" / "masks" / "0.png").write_bytes(b"")
    assert open_source(data).labels.external == (0, 7), "what cannot be read is told when it is"
    for path in data.glob("*/masks/*.png"):
        path.write_bytes(b"")
    with pytest.raises(DataError, match="the file is empty"):
        open_source(data)


@pytest.mark.parametrize("value", [255, 65535])
def test_a_value_for_no_label_must_be_declared(data, value):
    path = data / "val" / "masks" / "0.png"
    for each in data.glob("*/masks/*.png"):
        mask(each, np.zeros((6, 8), np.uint8))
    mask(path, np.full((6, 8), value, np.uint16))
    with pytest.raises(DataError) as error:
        open_source(data)
    said = str(error.value)
    assert said.startswith(f"{path}: has the value {value}, which is a class in some data")
    assert f'{{"0": "…", "{value}": "…"}}, with null' in said
    ignored = open_source(data, names={"0": "a", "1": "b", str(value): None})
    assert (ignored.truth(ignored.splits["val"][0]) == IGNORED).all()
    named = open_source(data, names={0: "a", value: "b"})
    assert (named.truth(named.splits["val"][0]) == 1).all()
