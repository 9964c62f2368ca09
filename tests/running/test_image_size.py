"""A model that sees images of another size than it was trained with."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from runs import OLD_RUNS, VIT, made, of_digits, vit_file, vit_run
from shared import printed, refused

import vitreous
from vitreous.errors import ConfigError
from vitreous.import_run import open_run
from vitreous.loading import predictor_of
from vitreous.models import create

SIZE = (96, 80)
SWIN = {"dim": 16, "depths": (1, 2), "heads": (2, 2), "window": 4}


def pictures(count=2):
    random = np.random.default_rng(0)
    return [random.integers(0, 256, (90, 90, 3), np.uint8) for _ in range(count)]


def outputs(predictor):
    prepared = [predictor.prepared(each).values for each in pictures()]
    return predictor.engine(torch.stack(prepared)), torch.stack(prepared)


@pytest.mark.parametrize(
    ("name", "fields", "words"),
    [
        ("vit", VIT, "positions resampled 8x8 → 12x10, bicubic"),
        ("vit", VIT | {"position": "learned-2d"}, "positions resampled 8x8 → 12x10, bicubic"),
        ("vit", VIT | {"position": "relative"}, "positions resampled 8x8 → 12x10, bicubic"),
        ("vit", VIT | {"position": "sines-1d"}, "sines-1d positions computed for 12x10"),
        ("vit", VIT | {"position": "sines-2d"}, "sines-2d positions computed for 12x10"),
        ("vit", VIT | {"position": "rotary"}, "rotary positions computed for 12x10"),
        ("vit", VIT | {"position": "conditional"}, "conditional positions computed for 12x10"),
        ("vit", VIT | {"position": "none"}, "a grid of 12x10, without positions"),
        ("vit", VIT | {"position": "learned-1d+rotary"}, "positions resampled 8x8 → 12x10"),
        ("swin-t", SWIN, "positions inside windows stay, maps are padded to whole windows"),
        ("resnet-18", {}, "convolutions, without positions"),
    ],
)
def test_it_computes_what_the_model_itself_does_with_larger_images(tmp_path, name, fields, words):
    """The model of the run, told that sizes may change, is the reference."""
    run, said = made(tmp_path / "run", "classify", name, **fields), []
    predictor = vitreous.load(run, image_size=SIZE, log=said.append)
    found, images = outputs(predictor)
    assert images.shape[2:] == SIZE
    assert f"image size 64x64 → 96x80: {words}" in said[0]
    opened = open_run(run)
    plain = opened.create_model()
    plain.load_state_dict(opened.read_weights())
    if hasattr(plain.config, "dynamic_size"):
        plain.config = replace(plain.config, dynamic_size=True)
    with torch.no_grad():
        torch.testing.assert_close(found, plain.eval()(images), rtol=1e-4, atol=1e-4)


def test_a_grid_that_is_no_square_is_resampled_from_what_it_was(tmp_path):
    """4x6 patches become 6x4: as many, but other places."""
    run = made(tmp_path / "run", "classify", "vit", **VIT | {"image_size": (32, 48)})
    predictor = vitreous.load(run, image_size=(48, 32), log=lambda text: None)
    position = open_run(run).read_weights()["position.table"]
    assert not torch.equal(predictor.model.position.table, position)
    dynamic = create("vit", **VIT | {"image_size": (32, 48), "classes": 5, "dynamic_size": True})
    dynamic.load_state_dict(open_run(run).read_weights())
    found, images = outputs(predictor)
    with torch.no_grad():
        torch.testing.assert_close(found, dynamic.eval()(images), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("task", ["segment", "detect"])
def test_other_tasks(task):
    """The limit of the longer side grows with the shorter one."""
    own = vitreous.load(OLD_RUNS / task)
    size = tuple(2 * side for side in own.preprocess.image_size)
    predictor = vitreous.load(OLD_RUNS / task, image_size=size, log=lambda text: None)
    assert predictor.preprocess.image_size == size == predictor.model.own_size()
    if own.preprocess.longest is not None:
        assert predictor.preprocess.longest == 2 * own.preprocess.longest
    assert predictor(pictures(1))[0].to_dict()


def test_an_engine_runs_a_graph_of_that_size(tmp_path, monkeypatch):
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path))
    options = {"image_size": 96, "log": lambda text: None}
    ours, theirs = (vitreous.load(vit_run(), engine=e, **options) for e in ("torch", "onnxruntime"))
    assert theirs.engine.image_size == (96, 96)
    np.testing.assert_allclose(outputs(ours)[0], outputs(theirs)[0], atol=1e-4)


def test_evaluate_measures_at_that_size(tmp_path):
    run = of_digits(tmp_path / "run").path
    result = json.loads(printed("evaluate", run, "--json", "--image-size", 12))
    assert result["image_size"] == [12, 12]
    assert result["accuracy"] == vitreous.evaluate(run, image_size=(12, 12))["accuracy"]
    own = vitreous.evaluate(run)
    assert "image_size" not in own
    assert own["loss"] != result["loss"]
    assert vitreous.evaluate(run, image_size=8)["loss"] == own["loss"]


def test_what_cannot_be_said_is_refused(tmp_path):
    run = of_digits(tmp_path / "run").path
    assert "image 10x10 does not divide into 4x4 patches" in refused(
        *("evaluate", run, "--image-size", 10)
    )
    assert "takes one number, or height and width; got 3" in refused(
        *("evaluate", run, "--image-size", 8, 8, 8)
    )
    assert "expected a positive integer" in refused("evaluate", run, "--image-size", 0)
    with pytest.raises(ConfigError, match="was exported for 64x64 and takes no other size"):
        vitreous.load(vit_file(".onnx"), image_size=96)


def test_a_head_that_reads_all_patches_at_once_is_for_one_size(tmp_path):
    run = made(tmp_path / "run", "classify", "vit", **VIT | {"pool": "flatten"})
    with pytest.raises(ConfigError, match=r"head\.out\.weight is of use for no other size"):
        predictor_of(open_run(run), replace(vitreous.inference.USUAL, image_size=96))
