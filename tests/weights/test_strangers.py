"""Strangers' checkpoints: at most 15 lines of rules, the model found from the tensors where it
shows, equal outputs, and exported again bit for bit."""

import argparse
import importlib
import sys
from collections import defaultdict
from pathlib import Path

import pytest
import torch
from compare import TOLERANCE, perturb, picture, relative_error
from more_strangers import MORE_STRANGERS, LongTable, SharedHeads
from strangers import HEADS, STRANGERS, TorchEncoder, lines

import vitreous
from vitreous import api
from vitreous.errors import CheckpointError, ConfigError, VitreousError
from vitreous.weights.adopt import find
from vitreous.weights.identify import readings
from vitreous.weights.importing import load
from vitreous.weights.io.files import read_tensors
from vitreous.weights.origin import open_weights


@torch.no_grad()
@pytest.mark.parametrize(
    "make", (STRANGERS | MORE_STRANGERS).values(), ids=STRANGERS | MORE_STRANGERS
)
def test_a_stranger_goes_there_and_back(tmp_path, make):
    theirs = perturb(make())
    path, state = tmp_path / "rules.toml", dict(theirs.state_dict())
    assert lines(theirs.rules) <= 15
    path.write_text(theirs.rules)
    torch.save(state, tmp_path / "theirs.pth")

    checkpoint = open_weights(tmp_path / "theirs.pth")
    (found,) = readings(checkpoint, format=path)
    ours = vitreous.create(found.model, **found.fields).eval()
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
    ours, _ = load(found, drop=["loss.*"] if "loss.weight" in found.file.tensors else [])
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
    ours = vitreous.create(found.model, **found.fields)
    with pytest.raises(CheckpointError, match="give the rule the pattern '1 1 a -> a'"):
        vitreous.import_weights(ours, theirs.state_dict(), path)


def readings_of(folder, theirs):
    (folder / "good.toml").write_text(theirs.rules)
    torch.save(theirs.state_dict(), folder / "theirs.pth")
    return readings(open_weights(folder / "theirs.pth"), format=folder / "good.toml")


def test_a_model_that_was_pickled_as_a_whole_is_read_as_data(tmp_path, monkeypatch):
    """Nothing of its classes is imported: here one is gone by then."""
    (tmp_path / "gone.py").write_text("import strangers\nclass Gone(strangers.TorchEncoder): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("gone")
    theirs, rules = perturb(module.Gone(norm_first=False)), tmp_path / "rules.toml"
    rules.write_text(theirs.rules.replace("heads = 3, ", ""))
    for zipped in (True, False):
        monkeypatch.setitem(sys.modules, "gone", module)
        content = {"net": theirs, "epoch": 3}
        torch.save(content, tmp_path / "w", _use_new_zipfile_serialization=zipped)
        monkeypatch.delitem(sys.modules, "gone")
        read = read_tensors(tmp_path / "w").tensors
        assert list(read) == list(theirs.state_dict())
        assert all(torch.equal(read[key], value) for key, value in theirs.state_dict().items())
    assert "gone" not in sys.modules
    listing = api.list_weights(tmp_path / "w", format=rules)
    assert "gone.Gone" in listing.entries["net"]
    assert "num_heads=3" in listing.entries["net"]
    assert listing.readings[0].assumed["heads"] == (3, "the file says num_heads=3")


def test_what_training_scripts_keep_beside_the_weights(tmp_path):
    theirs, rules = TorchEncoder(), tmp_path / "rules.toml"
    rules.write_text(theirs.rules.replace("heads = 3, ", ""))
    arguments = argparse.Namespace(nhead=3, lr=0.1, out=Path("runs"), device=torch.device("cpu"))
    content = {"model": theirs.state_dict(), "args": arguments, "seen": defaultdict(int, a=1)}
    torch.save({"checkpoint": content}, tmp_path / "deeper.pth")
    torch.save(content, tmp_path / "w.pth")
    for name in ("w.pth", "deeper.pth"):
        assert read_tensors(tmp_path / name).tensors.keys() == theirs.state_dict().keys()
    assert "nhead=3" in read_tensors(tmp_path / "w.pth").entries["args"]
    found = find(tmp_path / "w.pth", format=rules)
    assert found.assumed["heads"] == (3, "the file says nhead=3")
    model, _ = load(found)
    assert model.config.heads == 3
    assert found.assumed["attention.scale"][0] == pytest.approx(
        model.config.head_width**-0.5, abs=1e-6
    )
    assert "nn.LayerNorm" not in found.assumed["norm_eps"][1], "the rules state it"


def test_what_heads_share_is_not_exported_once_they_differ(tmp_path):
    theirs, path = perturb(SharedHeads()), tmp_path / "rules.toml"
    path.write_text(theirs.rules)
    torch.save(theirs.state_dict(), tmp_path / "w.pth")
    ours, _ = load(find(tmp_path / "w.pth", format=path))
    with torch.no_grad():
        ours.blocks[0].attention.qkv.weight[0, 0] += 1
    with pytest.raises(CheckpointError, match="the same for all heads, and these differ"):
        vitreous.export_weights(ours, path)


def test_a_long_table_is_not_taken_for_a_large_image(tmp_path):
    theirs, path = LongTable(), tmp_path / "rules.toml"
    torch.save(theirs.state_dict(), tmp_path / "w.pth")
    options = {"from_format": path, "out": tmp_path / "run", "labels": "numbers", "crop": 1.0}
    options |= {"interpolation": "bilinear", "mean": 0.5, "std": 0.5}
    path.write_text(theirs.rules.replace(', rows = "first"', ""))
    with pytest.raises(CheckpointError, match="give the rule rows = 'first'"):
        api.import_run(tmp_path / "w.pth", **options)
    theirs.register_buffer("pe", theirs.pe[:40])
    torch.save(theirs.state_dict(), tmp_path / "w.pth")
    unstated = theirs.rules.replace(", image_size = 32", "")
    path.write_text(unstated.replace(', rows = "first"', ""))
    with pytest.raises(ConfigError, match="image_size: its rows of positions are no square"):
        api.import_run(tmp_path / "w.pth", **options)
    path.write_text(unstated)
    with pytest.raises(CheckpointError, match="784 tokens: state the size of their images"):
        api.import_run(tmp_path / "w.pth", **options)
    with pytest.raises(CheckpointError, match="40 rows, and the model has 64 tokens"):
        api.import_run(tmp_path / "w.pth", **options, changes={"image_size": 64})


OWN_RULES = {
    "an axis": ("1 n d -> n d", "1 d n -> n d", r"position.table as .*, not \(24, 17\)"),
    "an axis of one": (', pattern = "1 n d -> n d"', "", "the pattern '1 a b -> a b'"),
    "words": ("[rules]", "words = 3\n[rules]", "words: expected a table for each placeholder"),
    "a word": ("[rules]", "words = {z = {weight = 'w'}}\n[rules]", r"none of our names .* \{z\}"),
    "numbers": ("numbers = {", "note = 'x'\nnumbers = 3 # {", "numbers = 3: expected a table"),
    "a placeholder": ('"answer.{p}"', '"answer.{q}"', r"toml, rule 'head.out.{p}': {q} is neither"),
    "an axis too many": ("1 1 d -> d", "1 1 d -> (d z)", "the same axes on both sides"),
}


@pytest.mark.parametrize(("right", "wrong", "message"), OWN_RULES.values(), ids=OWN_RULES)
def test_wrong_rules_are_explained(tmp_path, right, wrong, message):
    theirs, path = TorchEncoder(), tmp_path / "rules.toml"
    assert right in theirs.rules
    path.write_text(theirs.rules.replace(right, wrong))
    torch.save(theirs.state_dict(), tmp_path / "theirs.pth")
    with pytest.raises(VitreousError, match=message):
        find(tmp_path / "theirs.pth", format=path)


def test_a_rule_that_finds_nothing_is_noted(tmp_path):
    theirs, path = TorchEncoder(), tmp_path / "rules.toml"
    path.write_text(theirs.rules + '"pooled_norm.{p}" = "nowhere.{p}"\n')
    torch.save(theirs.state_dict(), tmp_path / "w.pth")
    _, report = load(find(tmp_path / "w.pth", format=path))
    assert report.notes == ["no key fits the rule for pooled_norm.{p}"]
