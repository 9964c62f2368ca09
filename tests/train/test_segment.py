"""Segmentation through the same training: what it starts from, what it refuses, what it leaves."""

import json

import numpy as np
import pytest
import timm
import torch
from compare import assert_same_classes
from PIL import Image
from train import tiny
from train.tiny import mask_folder, train, vitreous_command

import vitreous
from vitreous.errors import ConfigError
from vitreous.tasks.segment.task import Segment
from vitreous.train.recipe import Recipe
from vitreous.train.run import train as fit


def prepared(tmp_path, **options):
    recipe = Recipe(data=str(mask_folder()), epochs=1, batch=8, **options)
    return tiny.prepared(recipe, tmp_path / "run")


@pytest.fixture(scope="module")
def timm_file(tmp_path_factory):
    """A ViT of timm with every parameter moved, and options that begin with it, on disk."""
    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, num_classes=7, depth=2).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    path = tmp_path_factory.mktemp("timm") / "vit.pth"
    torch.save(model.state_dict(), path)
    weights = {"weights": str(path), "weights_format": "timm"}
    return model, {"model": "segmenter-ti/16", "fields": ("encoder.depth=2",), **weights}


def test_from_a_classifier_of_another_library(timm_file, tmp_path):
    theirs, options = timm_file
    trainer, config, said = prepared(tmp_path, **options, image_size=(32, 32))
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        wanted = theirs.forward_features(images)[:, 1:]
        got = trainer.model.eval().tokens(images)[0][:, 1:]
    assert (got - wanted).norm() / wanted.norm() < 1e-5
    assert "head" in said
    # timm computes with another epsilon than the paper's code: it is part of the run
    assert config.config["encoder_fields"]["norm_eps"] == 1e-6
    again = config.create()
    again.load_state_dict(trainer.model.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(again.eval()(images), trainer.model(images))


def test_positions_are_resampled(timm_file, tmp_path):
    trainer, _, said = prepared(tmp_path, **timm_file[1], image_size=(48, 64))
    assert "resampled" in said
    assert trainer.model.encoder.position.grid == (3, 4)


def test_from_a_classification_run(tmp_path):
    """No model named: the run's own becomes the encoder, with its shape and its weights."""
    first = tmp_path / "digits"
    train(first, "--epochs=1")
    trainer, config, said = prepared(tmp_path, weights=str(first), image_size=(16, 16))
    model = trainer.model
    assert config.task == "segment"
    assert Segment.takes(model.name)
    assert model.config.encoder == "vit"
    assert model.encoder.config.dim == 16
    state = vitreous.load(first).model.state_dict()
    for name, value in model.encoder.state_dict().items():
        if not name.startswith(("position.", "patch.weight")):
            assert torch.equal(value, state[name]), name
    assert "resampled" in said


def test_other_classes_keep_the_decoder(tmp_path):
    """From one segmentation to another: only what belongs to the classes starts afresh."""
    first = tmp_path / "first"
    train(first, "--epochs=1", task="segment")
    names = tmp_path / "names.json"
    names.write_text(json.dumps({"0": "earth", "3": "crate", "255": None}))
    trainer, _, _ = prepared(tmp_path, weights=str(first), names=str(names))
    state = vitreous.load(first).model.state_dict()
    same = {k for k, v in trainer.model.state_dict().items() if torch.equal(v, state[k])}
    fresh = set(state) - same
    assert "decoder.classes" in fresh
    assert all(name.startswith("decoder.") for name in fresh)
    assert "decoder.blocks.0.mlp.fc1.weight" in same


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "vit-ti/16"}, "cannot segment"),
        ({"model": "segmenter-ti/16", "mixup": 0.2}, "mixup = 0.2 is for the task classify"),
        ({"model": "segmenter-ti/16", "randaugment": 5}, "randaugment = 5 is for the task"),
        ({"model": "segmenter-ti/16", "sampler": "balanced"}, "for the task classify"),
    ],
)
def test_what_does_not_fit_together(tmp_path, options, message):
    with pytest.raises(ConfigError, match=message):
        prepared(tmp_path, image_size=(16, 16), **options)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "segmenter-ti/16"}, "cannot classify"),
        ({"dice": 1.0}, "dice = 1.0 is for the task segment"),
        ({"crop": "window"}, "crop = .window. is not for classify"),
    ],
)
def test_segmentation_options_for_a_classifier(tmp_path, options, message):
    with pytest.raises(ConfigError, match=message):
        fit(Recipe(data="digits", epochs=1, **options), tmp_path / "run")


def test_small_images_that_are_no_whole_patches(tmp_path):
    """All alike, but not of the model's size: nothing is chosen that could not be trained."""
    data = tmp_path / "data" / "train"
    for kind in ("images", "masks"):
        (data / kind).mkdir(parents=True)
        for number in range(12):
            pixels = np.full((20, 30), number % 2 * (200 if kind == "images" else 1), np.uint8)
            Image.fromarray(pixels).save(data / kind / f"{number}.png")
    fit(Recipe(data=str(data.parent), epochs=1), tmp_path / "run")
    predictor = vitreous.load(tmp_path / "run")
    assert predictor(data / "images" / "0.png").mask.shape == (20, 30)


def test_auto_weights_favour_rare_classes(tmp_path):
    options = {"model": "segmenter-ti/16", "image_size": (16, 16), "class_weights": "auto"}
    trainer, _, _ = prepared(tmp_path, **options)
    ground, box = trainer.task.class_weights.tolist()
    assert box > 1 > ground


def test_the_whole_life(tmp_path):
    """Train, evaluate, predict from the folder alone, by the commands."""
    out = tmp_path / "run"
    done = train(out, "--epochs=6", "--lr=0.005", task="segment", drawn=True)
    assert "miou" in done.stdout
    assert (out / "report.html").stat().st_size > 10_000
    evaluated = vitreous_command("evaluate", out, "--json")
    result = json.loads(evaluated.stdout)
    assert result["classes"].keys() == {"ground", "box"}
    assert result["miou"] > 0.6
    images = sorted((mask_folder() / "test" / "images").glob("*.png"))
    lines = vitreous_command("predict", out, *images, "--json").stdout.splitlines()
    assert [json.loads(line)["image"] for line in lines] == [str(image) for image in images]
    predictor = vitreous.load(out)
    together, alone = predictor(images), [predictor(image) for image in images]
    for one, other in zip(together, alone, strict=True):
        assert_same_classes(one.mask, other.mask)
