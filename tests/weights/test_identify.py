"""Which model a file is for, what it holds, and strangers' layouts by a few rules."""

import json

import pytest
import torch
from compare import perturb

import vitreous
from vitreous import api
from vitreous.cli.main import main
from vitreous.weights.identify import readings
from vitreous.weights.io.files import write_tensors
from vitreous.weights.origin import open_weights

TINY = {"image_size": 32, "patch": 8, "dim": 64, "depth": 3, "heads": 2, "classes": 5}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("vit-ti/16", {"classes": 10, "image_size": 96}),
        ("deit-s/16-distilled", {}),
        ("swin-t", {"channels": 1}),
        ("cpvt-ti/16-gap", {"classes": 2}),
        ("resnet-18", {}),
        ("detr-r50", {"classes": 3}),
        ("segmenter-ti/16", {"classes": 4}),
    ],
)
def test_a_named_variant_is_called_by_its_name(name, changes):
    with torch.device("meta"):
        model = vitreous.create(name, **changes)
    file = open_weights(model.state_dict())
    found = readings(file, format="vitreous")
    assert found[0].model == name
    seen = vitreous.models.configure(found[0].model, **found[0].fields)[1]
    assert seen.classes == model.config.classes
    if name == "detr-r50":
        assert found[1].model == "detr-r50-dc5", "dilation does not show: both are listed"


def test_what_no_tensor_shows_is_assumed_and_said():
    with torch.device("meta"):
        model = vitreous.create("vit", **TINY, layer_scale=0.1, registers=2)
    file = open_weights(model.state_dict())
    (found,) = readings(file, format="vitreous")
    assert found.assumed["heads"] == (1, "heads are usually 64 wide")
    assert found.assumed["activation"][0] == "gelu"
    seen = vitreous.models.configure(found.model, **found.fields)[1]
    assert (seen.registers, seen.layer_scale is None) == (2, False)
    (found,) = readings(file, format="vitreous", fields={"heads": 2})
    assert "heads" not in found.assumed
    assert found.fields["heads"] == 2


def test_what_libraries_take_otherwise_is_said():
    with torch.device("meta"):
        model = vitreous.create("clip-b/32", part="image", head="projection", classes=512)
    exported = vitreous.export_weights(model, "open_clip")
    (found,) = readings(open_weights(exported))
    value, why = found.assumed["activation"]
    assert value == "quick-gelu"
    assert why == "as in clip-b/32-image, OpenAI's; the models of open_clip have 'gelu'"
    assert found.assumed["heads"] == (12, "as in clip-b/32-image")


@pytest.fixture
def checkpoint(tmp_path):
    model = perturb(vitreous.create("vit", **TINY))
    state = {f"module.{k}": v for k, v in vitreous.export_weights(model, "timm").items()}
    path = tmp_path / "checkpoint.pth"
    hostile = {"evil\x1b[2J\n": torch.ones(2)}
    torch.save({"epoch": 3, "arch": "a\x1b[2Jb", "state_dict": state, "model_ema": hostile}, path)
    return path


def test_a_file_is_listed(checkpoint, capsys):
    assert main(["weights", str(checkpoint), "--inside", "state_dict"]) == 0
    printed = capsys.readouterr().out
    for words in (
        "44 tensors, ",
        "entry     epoch: 3",
        "entry     model_ema: 1 tensor",
        "model     vit with image_size=(32, 32), patch=(8, 8), classes=5, dim=64, depth=3",
        "heads are usually 64 wide",
        "blocks.{0-2}.attn.qkv.weight",
        "blocks.{0-2}.norm{1,2}.bias",
    ):
        assert words in printed
    assert main(["weights", str(checkpoint)]) == 0  # the first entry, whose name is hostile
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert "evil\\x1b[2J\\n" in printed
    assert "unknown: no known format" in printed


def test_a_listing_as_json(checkpoint, capsys):
    assert main(["weights", str(checkpoint), "--inside", "state_dict", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["tensors"]["pos_embed"] == {"shape": [1, 17, 64], "dtype": "float32"}
    assert listed["readings"][0]["format"] == "timm"
    assert listed["entries"]["state_dict"] == "44 tensors"


def test_tensors_that_are_alike_are_one_row(tmp_path):
    names = ["a.0.b.1", "a.0.b.2", "a.1.b.1", "c.01", "c.1", "d"]
    path = tmp_path / "odd.safetensors"
    write_tensors(path, {name: torch.ones(2) for name in names}, "safetensors", {"who": "me"})
    listed = api.list_weights(path)
    rows = {group.name: group.tensors for group in listed.groups()}
    assert sum(rows.values()) == len(names)
    assert rows == {"a.{0,1}.b.1": 2, "a.0.b.2": 1, "c.01": 1, "c.1": 1, "d": 1}
    assert listed.metadata == {"who": "me"}
