"""Deletion and insertion, on a model of which it is known what it looks at."""

import json

import pytest
import torch
from PIL import Image
from runs import VIT, made, of_digits
from shared import printed, refused

import vitreous
from vitreous.data.formats import open_source
from vitreous.errors import ConfigError
from vitreous.explain.map_scores import KINDS, map_scores
from vitreous.explain.split import split_distances, split_images

N = 4


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    run = of_digits(tmp_path_factory.mktemp("digits") / "run").path
    source = open_source("digits")
    predictor = vitreous.load(run)
    return predictor, source, split_images(predictor, source, "test", 5)


def corner(model, given, logits):
    """In place of the logits: that of class 0 is large where the first patch is not grey."""
    found = torch.full_like(logits, -4.0)
    found[:, 0] = 4.0 * (given[0][:, :, :4, :4].abs().amax(dim=(1, 2, 3)) > 0)
    return found


def test_what_the_model_looks_at_is_best_deleted_first(digits):
    predictor, _, images = digits
    hook = predictor.model.register_forward_hook(corner)
    try:
        images = [image + 3 for image in images]  # nothing is grey by itself
        found = map_scores(predictor, images, ("occlusion", "centre first", "random"))
    finally:
        hook.remove()
    present, absent = (torch.tensor([4.0 * on, *[-4.0] * 9]).softmax(0)[0].item() for on in (1, 0))
    step = 1 / N
    at_once = absent * (1 - step) + (present + absent) / 2 * step
    assert found["occlusion"].deletion.tolist() == pytest.approx([at_once] * 5, abs=1e-6)
    back = present * (1 - step) + (present + absent) / 2 * step
    assert found["occlusion"].insertion.tolist() == pytest.approx([back] * 5, abs=1e-6)
    assert found["random"].deletion.mean() > at_once
    said = found["random"].summary()
    low, high = said["deletion_interval"]
    assert low <= said["deletion"] <= high
    assert said["deletion"] == pytest.approx(found["random"].deletion.mean().item())


def test_every_kind_is_the_same_in_any_batch(digits):
    predictor, _, images = digits
    found = map_scores(predictor, images)
    assert tuple(found) == KINDS
    again = map_scores(predictor, images[1:3], batch=3)
    for kind, each in found.items():
        assert ((each.deletion >= 0) & (each.insertion <= 1)).all()
        torch.testing.assert_close(again[kind].deletion, each.deletion[1:3], rtol=1e-4, atol=1e-6)
    other = map_scores(predictor, images, ("random",), seed=1)["random"]
    assert not torch.equal(other.deletion, found["random"].deletion)


def test_windows_have_maps_too(tmp_path):
    swin = {"dim": 16, "depths": (1, 1), "heads": (2, 2), "window": 4}
    predictor = vitreous.load(made(tmp_path / "run", "classify", "swin-t", **swin))
    found = map_scores(predictor, [torch.randn(3, 64, 64)], KINDS, steps=3)
    assert set(found) == set(KINDS)


def test_what_cannot_be_scored(tmp_path, digits):
    predictor, _, images = digits
    with pytest.raises(ConfigError, match="kinds of maps are attention, rollout"):
        map_scores(predictor, images, ("gradient",))
    with pytest.raises(ConfigError, match="at least one that can be used"):
        map_scores(predictor, [])
    resnet = vitreous.load(made(tmp_path / "run", "classify", "resnet-18"))
    with pytest.raises(ConfigError, match="has no attention to look at"):
        map_scores(resnet, [torch.zeros(3, 64, 64)])
    fields = {"encoder": "vit", "encoder_fields": VIT, "heads": 2}
    segmenter = vitreous.load(made(tmp_path / "segment", "segment", "segmenter", **fields))
    with pytest.raises(ConfigError, match="classify whole images; this one is to segment"):
        map_scores(segmenter, [torch.zeros(3, 64, 64)])


def test_distances_over_a_split(digits):
    predictor, source, _ = digits
    found = split_distances(predictor, source, "test", most=6)
    assert [tuple(each.shape) for each in found.result()] == [(2,)]
    assert 0 < found.result()[0].max() <= found.widest
    assert len(split_images(predictor, source, "test", 10_000)) == len(source.splits["test"])


def test_the_command_prints_and_gives_them(tmp_path):
    run = of_digits(tmp_path / "run").path
    for number in range(3):
        pixels = torch.randint(0, 255, (8, 8), generator=torch.Generator().manual_seed(number))
        Image.fromarray(pixels.byte().numpy()).save(tmp_path / f"{number}.png")
    (tmp_path / "bad.png").write_text("no image")
    images = [tmp_path / f"{number}.png" for number in range(3)]
    found = json.loads(printed("explain", run, *images, "--trust", "--json"))
    assert list(found) == [*KINDS]
    low, high = found["class map"]["insertion_interval"]
    assert low <= found["class map"]["insertion"] <= high
    text = printed("explain", run, *images, "--trust")
    assert f"{found['rollout']['deletion']:.3f}" in text
    assert not (run / "explain").exists()
    assert "bad.png" in refused("explain", run, tmp_path / "bad.png", "--trust")
