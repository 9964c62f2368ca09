"""Data and augmentations that a program has."""

import itertools
import random
import re

import numpy as np
import pytest
import torch
from PIL import Image
from source_facts import sizes
from torch.utils.data import ConcatDataset, Dataset, Subset, random_split
from torchvision.datasets import ImageFolder

import vitreous
from vitreous.data.augment import OwnAugment
from vitreous.data.formats import open_source
from vitreous.data.formats.python_data import from_python
from vitreous.data.source import IGNORED
from vitreous.errors import ConfigError, DataError
from vitreous.run_folder import Run, newest_checkpoint

VIT = {"patch": 4, "dim": 16, "depth": 1, "heads": 2, "mlp_dim": 16}
TINY = {"model": "vit", "fields": VIT, "image_size": 8, "batch": 8, "progress": False}


def picture(number, size=(8, 8, 3)):
    return np.random.default_rng(number).integers(0, 256, size, dtype=np.uint8)


def pairs(count=24, targets=("cat", "dog")):
    return [(picture(i), targets[i % len(targets)]) for i in range(count)]


class Numbers(Dataset):
    """As torchvision's are."""

    classes = ("zero", "one", "two")

    def __len__(self):
        return 12

    def __getitem__(self, number):
        if not 0 <= number < 12:
            raise IndexError
        return torch.from_numpy(picture(number)).permute(2, 0, 1), number % 3


def test_parts_of_a_dataset_have_its_class_names(tmp_path):
    """torchvision's ImageFolder, whose targets are numbers."""
    for name in ("ant", "bee", "cow"):
        (tmp_path / name).mkdir()
        for number in range(4):
            Image.new("RGB", (8, 8), (number, 0, 0)).save(tmp_path / name / f"{number}.png")
    whole = ImageFolder(tmp_path)
    assert from_python(whole).labels.names == ("ant", "bee", "cow")
    train, val = random_split(whole, [9, 3], torch.Generator().manual_seed(0))
    for data in ({"train": train, "val": val}, Subset(Subset(whole, range(12)), range(12))):
        assert from_python(data).labels.names == ("ant", "bee", "cow")
    assert from_python(ConcatDataset([train, val])).labels.names == ("ant", "bee", "cow")
    some = from_python(Subset(whole, [0, 1, 2, 8, 9, 10]))  # without bees
    assert (some.labels.names, some.labels.external) == (("ant", "cow"), (0, 2))
    assert from_python(whole, names=["a", "b", "c"]).labels.names == ("a", "b", "c")


def test_images_of_all_kinds_with_classes(tmp_path):
    Image.fromarray(picture(0)).save(tmp_path / "a.png")
    forms = [
        str(tmp_path / "a.png"),
        tmp_path / "a.png",
        picture(0),
        Image.open(tmp_path / "a.png"),
        torch.from_numpy(picture(0)).permute(2, 0, 1),
    ]
    source = from_python([(form, "cat") for form in forms], val_fraction=0)
    assert source.truth_kind == "class"
    images = [source.image(sample) for sample in source.splits["train"]]
    assert len(images) == 5
    assert all(torch.equal(image, images[0]) for image in images)


def test_a_dataset_and_its_names():
    source = from_python(Numbers(), val_fraction=0.25)
    assert source.labels.names == Numbers.classes
    assert source.labels.external == (0, 1, 2)
    assert sizes(source) == {"train": 9, "val": 3}
    for sample in source.splits["val"]:
        assert sample.target == int(sample.id.partition("/")[2]) % 3
    assert from_python(Numbers(), names=["a", "b", "c"]).labels.names == ("a", "b", "c")
    numpy = [(picture(0), np.int64(7)), (picture(1), torch.tensor(3))]
    assert from_python(numpy, val_fraction=0).labels.external == (3, 7)


def test_labels_masks_and_boxes():
    tags = from_python(
        [(picture(0), {"a", "b"}), (picture(1), []), (picture(2), ("b",))], val_fraction=0
    )
    assert tags.truth_kind == "labels"
    assert [tags.truth(s).tolist() for s in tags.splits["train"]] == [[1, 1], [0, 0], [0, 1]]

    mask = np.full((8, 8), 4, np.int64)
    mask[0], mask[1] = 9, -1
    masks = from_python(
        [(picture(0), mask), (picture(1), torch.from_numpy(mask))], val_fraction=0, names={4: "sky"}
    )
    assert masks.truth_kind == "mask"
    assert masks.labels.names == ("sky", "9")
    for sample in masks.splits["train"]:
        truth = masks.truth(sample)
        assert truth.dtype == torch.int16
        assert truth[:3, 0].tolist() == [1, IGNORED, 0]

    target = {"boxes": [[1, 1, 5, 20], [0, 0, 2, 2]], "labels": ["cat", "dog"], "crowd": [0, 1]}
    boxes = from_python(
        [(picture(0), target), (picture(1), {"boxes": [], "labels": []})], val_fraction=0
    )
    assert boxes.truth_kind == "boxes"
    first, second = (boxes.truth(sample) for sample in boxes.splits["train"])
    assert first["boxes"].tolist() == [[1, 1, 5, 8], [0, 0, 2, 2]]  # cut off at the edge
    assert first["labels"].tolist() == [0, 1]
    assert first["crowd"].tolist() == [False, True]
    assert second["boxes"].shape == (0, 4)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ([], "data: has no images"),
        (iter(pairs()), "expected a sequence of (image, target)"),
        ([picture(0)], "data, image train/0: expected (image, target)"),
        ([(picture(0), "cat"), (picture(1), 3)], "some classes are text ('cat') and some numbers"),
        ([(picture(0), "cat"), (picture(1), {"cat"})], "some targets are class"),
        ([(picture(0), 1.5)], "a target is float: expected a class"),
        ({"training": pairs()}, "split 'training' is not known: use train, val, test"),
        ([(picture(0), np.zeros((8, 8)))], "a mask has values of type float64"),
    ],
)
def test_what_cannot_be_used(data, words):
    with pytest.raises(DataError, match=re.escape(words)):
        from_python(data)


def test_bad_targets_name_their_image():
    wrong = from_python([(picture(0), np.zeros((4, 8), int))], val_fraction=0)
    with pytest.raises(DataError, match=r"data, image train/0: the mask is \(4, 8\), but"):
        wrong.truth(wrong.splits["train"][0])
    wrong = from_python([(picture(0), {"boxes": [[5, 1, 2, 3]], "labels": [1]})], val_fraction=0)
    with pytest.raises(DataError, match="data, image train/0: box 0: its box ends before"):
        wrong.truth(wrong.splits["train"][0])
    wrong = from_python([("nowhere.png", "a")], val_fraction=0)
    with pytest.raises(DataError, match=r"train/0: nowhere\.png: there is no such file"):
        wrong.image(wrong.splits["train"][0])


def test_advice_about_a_bad_image_is_python(tmp_path):
    data = [*pairs(), ("nowhere.png", "cat")]
    with pytest.raises(DataError, match=r"check_data\(data\) lists .*; on_bad='skip' trains"):
        vitreous.train(data, epochs=1, out=tmp_path / "run", **TINY)
    run = vitreous.train(data, epochs=1, out=tmp_path / "run", on_bad="skip", **TINY)
    assert f"1 that cannot be used: train/{len(data) - 1}" in run.report.read_text()


def noisy(image):
    """Draws from all three generators."""
    shift = random.randrange(3) + int(np.random.randint(3)) + int(torch.randint(3, ()))
    return (image.int() + shift).clamp(0, 255).to(torch.uint8)


def test_train_evaluate_and_resume(tmp_path):
    """A killed run ends with the same bits if it is given the same data and augmentation; it
    goes on only with both."""
    data = pairs()
    whole = vitreous.train(data, epochs=2, out=tmp_path / "whole", augment=noisy, **TINY)
    recipe = (whole.path / "recipe.toml").read_text()
    assert 'data = "python:data"' in recipe
    assert 'augment = "noisy"' in recipe
    again = {"epochs": 2, "out": tmp_path / "again", **TINY}
    calls = itertools.count()

    def dying(image):
        if next(calls) == len(data) + 3:  # in the second epoch
            raise ZeroDivisionError
        return noisy(image)

    dying.__qualname__ = dying.__name__ = "noisy"
    with pytest.raises(ZeroDivisionError):
        vitreous.train(data, augment=dying, **again)
    assert newest_checkpoint(tmp_path / "again" / "checkpoints") is not None
    again = vitreous.train(data, augment=noisy, resume=True, **again)
    plain = vitreous.train(data, epochs=2, out=tmp_path / "plain", **TINY)
    weights = [Run(each.path).read_weights() for each in (whole, again, plain)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert len({(each.path / "metrics.jsonl").read_text() for each in (whole, again)}) == 1
    assert not all(torch.equal(weights[0][name], weights[2][name]) for name in weights[0])
    assert vitreous.evaluate(whole, data)["samples"] == len(data)
    assert vitreous.evaluate(whole, [(picture(0), "dog")])["samples"] == 1
    with pytest.raises(ConfigError, match=r"came from Python: give it again, as vitreous\.train"):
        vitreous.evaluate(whole)
    more = {"out": whole, "resume": True, "epochs": 3, "progress": False}
    with pytest.raises(ConfigError, match="came from Python: give it again"):
        vitreous.train(augment=noisy, **more)
    with pytest.raises(ConfigError, match="an augmentation from Python, 'noisy': give it again"):
        vitreous.train(data, **more)
    longer = vitreous.train(data, augment=noisy, **more)
    assert longer.path == whole.path


def test_such_a_run_is_evaluated_on_files_of_its_own_task(tmp_path):
    """14.23: `shapes` is for several tasks, and has classes of the same names for each."""
    source = open_source("shapes:8", truth="labels")
    data = [(source.image(s), {"circle", "star"}) for s in source.splits["train"]]
    data[0] = (data[0][0], set(source.labels.names))
    options = {**TINY, "image_size": 64, "fields": {**VIT, "patch": 16}, "overfit": 8}
    run = vitreous.train(data, epochs=1, out=tmp_path / "run", **options)
    assert vitreous.evaluate(run, "shapes:8", "train")["samples"] == 8


def test_an_augmentation_moves_the_ground_truth(tmp_path):
    seen = []

    def flipped(image, mask):
        seen.append((image.dtype, tuple(image.shape), tuple(mask.shape)))
        return image.flip(-1), mask.flip(-1)

    own = OwnAugment(flipped)
    image, mask = torch.arange(64).reshape(1, 8, 8).to(torch.uint8), torch.eye(8)
    changed, moved = own(image, mask)
    assert torch.equal(changed, image.flip(-1))
    assert torch.equal(moved, mask.flip(-1))
    assert seen == [(torch.uint8, (1, 8, 8), (8, 8))]
    with pytest.raises(ConfigError, match=r"expected an image \(c, h, w\)"):
        OwnAugment(lambda image: image[0])(image, mask)
    with pytest.raises(ConfigError, match="convert it back"):
        OwnAugment(lambda image: image.float())(image, mask)
    with pytest.raises(ConfigError, match="expected a function of an image"):
        OwnAugment(3)


def test_an_augmentation_depends_on_the_seed_alone():
    """And leaves the program's generators as they were."""
    own, image = OwnAugment(noisy), torch.zeros(1, 8, 8, dtype=torch.uint8)
    found = set()
    for seed in (0, 1, 2, 0, 1, 2):
        random.seed(random.random())
        torch.manual_seed(seed)
        before = random.getstate(), np.random.get_state()[1].tolist()
        found.add((seed, int(own(image, 0)[0][0, 0, 0])))
        assert before == (random.getstate(), np.random.get_state()[1].tolist())
    assert len(found) == 3


def test_the_data_check_reads_it():
    report = vitreous.check_data(pairs())
    assert report.ids == {"cat": "cat", "dog": "dog"}
    assert not [problem for problem in report.problems if problem.fatal]
