"""What training chooses where nothing is given."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import vitreous
from vitreous.data.formats.python_data import from_python
from vitreous.models import create
from vitreous.tasks import TASKS, task_class
from vitreous.tasks.defaults import Glance, classifier_for
from vitreous.train.build_model import Start
from vitreous.train.plan import fine_tuning_size


def glance(height, width=None, on_cpu=True, channels=3):
    return Glance(height, width or height, channels, True, on_cpu)


@pytest.mark.parametrize(
    ("height", "width", "expected"),
    [
        (8, 8, "vit-c-mini/2"),
        (28, 28, "vit-c-mini/8"),
        (33, 20, "vit-c-mini/8"),
        (80, 61, "vit-c-mini/8"),
        (300, 400, "vit-c-mini/16"),
    ],
)
def test_the_classifier_from_scratch_takes_images_of_that_size(height, width, expected):
    chosen = classifier_for(glance(height, width, channels=1))
    assert chosen.name == expected
    model = create(chosen.name, image_size=chosen.image_size, channels=1, classes=3).eval()
    out = model(torch.zeros(2, 1, *chosen.image_size))
    assert out.shape == (2, 3)
    assert model.attentions()  # so that it can be explained


def start(**fields):
    return Start("vit-ti/16", fields, None, None, {})


@pytest.mark.parametrize(
    ("side", "fields", "expected"),
    [
        (32, {}, (128, 128)),
        (28, {}, (112, 112)),
        (32, {"patch": 14, "image_size": 518}, (140, 140)),
        (70, {}, None),  # 280 is beyond the weights' own
        (32, {"image_size": 64}, None),
        (200, {}, None),
    ],
)
def test_small_images_are_fine_tuned_at_four_times_their_size(side, fields, expected):
    assert fine_tuning_size(start(**fields), glance(side)) == expected
    assert fine_tuning_size(start(**fields), glance(side, on_cpu=False)) is None


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("on_cpu", [True, False])
@pytest.mark.parametrize("side", [28, 300])
def test_fine_tuning_takes_less_than_learning_from_scratch(name, on_cpu, side):
    task = task_class(name)
    scratch = task.defaults.effort(glance(side, on_cpu=on_cpu), fine_tunes=False)
    tuned = task.defaults.effort(glance(side, on_cpu=on_cpu), fine_tunes=True)
    assert tuned[2] < scratch[2]
    assert all(0 < least <= most for least, most, _ in (scratch, tuned))


@pytest.mark.parametrize(
    ("classes", "count", "epochs"),
    [
        (11, 367, 19),  # CamVid
        (11, 80, 60),  # a part of it: the most
        (2, 367, 9),  # few classes are learned sooner
        (150, 367, 22),  # on a CPU not more than ten minutes
        (11, 20_000, 3),  # the fewest
    ],
)
def test_the_length_of_fine_tuning_for_masks_follows_the_data(classes, count, epochs):
    look = glance(360, 480)._replace(classes=classes)
    least, most, images = task_class("segment").defaults.effort(look, fine_tunes=True)
    assert max(least, min(most, round(images / count))) == epochs


@pytest.mark.parametrize(
    ("name", "side", "expected"),
    [
        ("classify", 32, (2, 30, 12_000)),  # CIFAR-10
        ("classify", 300, (2, 30, 12_000)),
        ("detect", 640, (5, 100, 7_500)),  # BCCD
        ("instance", 640, (5, 100, 7_500)),
    ],
)
def test_the_length_of_other_fine_tuning(name, side, expected):
    look = glance(side)._replace(classes=10)
    assert task_class(name).defaults.effort(look, fine_tunes=True) == expected
    assert task_class(name).defaults.choose_class_weights(fine_tunes=True) == "none"


def test_few_boxes_and_masks_are_fine_tuned_in_small_batches():
    segment, detect, classify = map(task_class, ("segment", "detect", "classify"))
    assert [segment.defaults.choose_batch(n, fine_tunes=True) for n in (80, 367, 5000)] == [
        4,
        4,
        16,
    ]
    assert segment.defaults.choose_batch(367, fine_tunes=False) == 16
    assert [detect.defaults.choose_batch(n, fine_tunes=True) for n in (205, 5000)] == [4, 16]
    assert classify.defaults.choose_batch(4500, fine_tunes=True) == 32


@pytest.mark.parametrize(
    ("height", "width", "side"), [(360, 480, 224), (64, 48, 224), (30, 20, 128)]
)
def test_masks_are_fine_tuned_in_windows_that_a_cpu_can_compute(height, width, side):
    task = task_class("segment")
    source = None  # is not looked at
    chosen = task.defaults.choose_around(source, glance(height, width), None)
    assert chosen == {"image_size": (side, side)}
    assert task.defaults.choose_around(source, glance(height, width, on_cpu=False), None) == {}


def test_fine_tuning_masks_from_a_classifier(tmp_path):
    """What a run gets where nothing is given, and what is given wins."""
    fields = {"patch": 8, "dim": 16, "depth": 1, "heads": 2, "mlp_dim": 16}
    model = vitreous.create("vit", image_size=96, classes=2, **fields)
    weights = tmp_path / "w.safetensors"
    save_file(vitreous.export_weights(model, "timm"), weights)
    options = {"weights": str(weights), "fields": {"encoder.heads": 2}, "task": "segment"}

    def logged(**more):
        lines = []
        out = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
        found, _ = vitreous.api.dry_run("shapes:20", out=out, log=lines.append, **options, **more)
        return found, "\n".join(lines)

    found, text = logged()
    assert found.preprocess.image_size == (224, 224)
    assert "class weights: auto" in text
    found, text = logged(image_size=64, class_weights="none")
    assert found.preprocess.image_size == (64, 64)
    assert "class weights" not in text


def test_fine_tuning_small_images_uses_that_size(tmp_path):
    """Through the whole of `train`, and what is given wins."""
    fields = {"patch": 8, "dim": 16, "depth": 1, "heads": 2, "mlp_dim": 16}
    model = vitreous.create("vit", image_size=96, channels=1, classes=2, **fields)
    weights = tmp_path / "w.safetensors"
    save_file(vitreous.export_weights(model, "timm"), weights)
    options = {"weights": str(weights), "fields": {"heads": 2}, "log": lambda text: None}
    found, _ = vitreous.api.dry_run("digits", out=tmp_path / "a", **options)
    assert found.preprocess.image_size == (32, 32)
    found, _ = vitreous.api.dry_run("digits", out=tmp_path / "b", image_size=48, **options)
    assert found.preprocess.image_size == (48, 48)


@pytest.mark.parametrize(("objects", "side"), [(60, 224), (30, 320)])
def test_small_objects_get_larger_images(objects, side):
    """A twentieth of the objects decides: 30 of 400 pixels would be 17 of 224."""
    image = np.zeros((400, 400, 3), np.uint8)
    box = {"boxes": [[10, 10, 10 + objects, 10 + objects]], "labels": ["a"]}
    large = {"boxes": [[0, 0, 300, 300]], "labels": ["a"]}
    source = from_python([(image, box), *[(image, large)] * 9], truth="boxes", val_fraction=0)
    chosen = task_class("detect").defaults.choose_around(source, glance(400), None)
    assert chosen["image_size"] == (side, side)
