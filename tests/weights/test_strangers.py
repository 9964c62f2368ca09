"""Strangers' checkpoints: at most 15 lines of rules, the model found from the tensors where it
shows, equal outputs, and exported again bit for bit."""

from pathlib import Path

import pytest
import torch
from compare import TOLERANCE, perturb, picture, relative_error
from strangers import HEADS, STRANGERS, TorchEncoder, lines

import vitreous
from vitreous.errors import CheckpointError
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
