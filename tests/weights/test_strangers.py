"""Strangers' checkpoints: at most 15 lines of rules, the model found from the tensors where it
shows, equal outputs, and exported again bit for bit."""

from collections import defaultdict
from pathlib import Path

import pytest
import torch
from compare import TOLERANCE, perturb, picture, relative_error
from strangers import HEADS, STRANGERS, TorchEncoder, lines

import vitreous
from vitreous import api
from vitreous.errors import CheckpointError, ConfigError
from vitreous.weights.adopt import find
from vitreous.weights.identify import readings
from vitreous.weights.io.files import read_tensors


@torch.no_grad()
@pytest.mark.parametrize("make", STRANGERS.values(), ids=STRANGERS)
def test_a_stranger_goes_there_and_back(tmp_path, make):
    theirs = perturb(make())
    path, state = tmp_path / "rules.toml", dict(theirs.state_dict())
    assert lines(theirs.rules) <= 15
    path.write_text(theirs.rules)
    torch.save(state, tmp_path / "theirs.pth")

    checkpoint = read_tensors(tmp_path / "theirs.pth")
    (found,) = readings(checkpoint, format=path)
    ours = vitreous.create(found.model, **found.changes).eval()
    assert ours.config.heads == HEADS, "by the rules, or by the checkpoint's axes"
    vitreous.import_weights(ours, checkpoint, path)
    images = picture(2, theirs.channels, theirs.size, theirs.size)
    expected, got = theirs(images), ours(images)
    if bool((expected.exp().sum(-1) - 1).abs().max() < 1e-5):  # they end with a softmax
        got = got.log_softmax(-1)
    assert relative_error(got, expected) < TOLERANCE

    exported = vitreous.export_weights(ours, path)
    floats = {key for key, value in state.items() if value.is_floating_point()}
    assert exported.keys() & floats == floats
    for key in floats:
        if theirs.exact:
            assert torch.equal(exported[key], state[key]), key
        torch.testing.assert_close(exported[key], state[key])
    theirs.load_state_dict({**state, **exported}, strict=True)


def prefixed(prefix, state):
    return {f"{prefix}{key}": value for key, value in state.items()}


SAVED = {
    "data parallel": lambda s: {"state_dict": prefixed("module.", s), "epoch": 3},
    "any name": lambda s: {"net": s, "acc": 91.5, "args": {"lr": 0.1}},
    "beside the optimiser": lambda s: {"model_state_dict": s, "optimizer": {"state": {0: s}}},
    "Lightning, compiled": lambda s: {
        "state_dict": {**prefixed("model._orig_mod.", s), "loss.weight": torch.ones(5)}
    },
    "averaged": lambda s: {**prefixed("module.", s), "n_averaged": torch.tensor(7)},
    "half precision": lambda s: {key: value.half() for key, value in s.items()},
}


@pytest.mark.parametrize("wrap", SAVED.values(), ids=SAVED)
def test_however_it_was_saved(tmp_path, wrap):
    theirs = perturb(TorchEncoder())
    (tmp_path / "rules.toml").write_text(theirs.rules)
    torch.save(wrap(dict(theirs.state_dict())), tmp_path / "theirs.pth")
    found = find(tmp_path / "theirs.pth", format=tmp_path / "rules.toml")
    ours, _ = found.load(drop=["loss.*"] if "loss.weight" in found.checkpoint.tensors else [])
    images = picture(2, 3, 32, 32)
    with torch.no_grad():
        assert relative_error(ours(images), theirs(images)) < 2e-3


def test_several_models_are_asked_for(tmp_path):
    state = TorchEncoder().state_dict()
    torch.save({"student": state, "teacher": state, "epoch": 1}, tmp_path / "theirs.pth")
    with pytest.raises(CheckpointError, match=r"several models \(student, teacher\)"):
        read_tensors(tmp_path / "theirs.pth")


WRONG = {
    "a key without a rule": ('"norm.{p}" =', '"norm.weight" =', "no rule +body.norm.bias"),
    "a name that is none": ("linear{k}", "lin{k}", "no parameter +blocks.0.mlp.fcear1.weight"),
    "a field": ("heads = 3", "heads = 5", r"qkv.weight as \(60, 24\), not \(72, 24\)"),
    "a pattern": ("1 n d -> n d", "n d -> n d", "does not fit +position.table: pos: .*2 axes"),
    "nothing": ('"patch.{p}" =', '"pooled_norm.{p}" =', "missing +patch.weight"),
}


@pytest.mark.parametrize(("right", "wrong", "message"), WRONG.values(), ids=WRONG)
def test_rules_that_find_no_model_say_why(tmp_path, right, wrong, message):
    theirs, path = TorchEncoder(), tmp_path / "rules.toml"
    assert right in theirs.rules
    path.write_text(theirs.rules.replace(right, wrong).replace('"body.norm.{p}"', NORM[wrong]))
    torch.save(theirs.state_dict(), tmp_path / "theirs.pth")
    with pytest.raises(CheckpointError, match=message):
        find(tmp_path / "theirs.pth", format=path)


NORM = defaultdict(lambda: '"body.norm.{p}"', {'"norm.weight" =': '"body.norm.weight"'})


def test_a_size_that_no_tensor_shows_is_asked_for(tmp_path):
    theirs = perturb(STRANGERS["a slice per head"]())
    (tmp_path / "rules.toml").write_text(theirs.rules)
    torch.save(theirs.state_dict(), tmp_path / "theirs.pth")
    options = {"from_format": tmp_path / "rules.toml", "out": tmp_path / "run", "labels": "numbers"}
    options |= {"crop": 1.0, "interpolation": "bilinear", "mean": 0.1307}
    with pytest.raises(ConfigError, match=r"image_size=32(.|\n)*std=\(0.5,\)"):
        api.import_run(tmp_path / "theirs.pth", **options)
    done = api.import_run(
        tmp_path / "theirs.pth", **options, std=0.3081, changes={"image_size": 28}
    )
    image = (picture(2, 1, 28, 28)[0, 0] * 40 + 128).clamp(0, 255).byte()
    with torch.no_grad():
        expected = theirs((image[None, None] / 255 - 0.1307) / 0.3081).exp()[0]
    got = vitreous.load(done.path)(image.numpy())
    scores = [got.scores[str(label)] for label in range(5)]
    torch.testing.assert_close(torch.tensor(scores), expected, atol=1e-5, rtol=1e-4)


def test_axes_of_length_one_are_not_lost(tmp_path):
    """15: (1, 1, d) was imported by a rule for (d,), and exported as (d,)."""
    theirs, path = TorchEncoder(), Path(tmp_path / "rules.toml")
    path.write_text(theirs.rules.replace(', pattern = "1 1 d -> d"', ""))
    (found,) = readings_of(tmp_path, theirs)
    ours = vitreous.create(found.model, **found.changes)
    with pytest.raises(CheckpointError, match="give the rule the pattern '1 1 a -> a'"):
        vitreous.import_weights(ours, theirs.state_dict(), path)


def readings_of(folder, theirs):
    (folder / "good.toml").write_text(theirs.rules)
    torch.save(theirs.state_dict(), folder / "theirs.pth")
    return readings(read_tensors(folder / "theirs.pth"), format=folder / "good.toml")
