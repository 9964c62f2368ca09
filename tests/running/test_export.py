"""Exported files: the same predictions as their run folder, everything inside, nothing trusted."""

import json

import numpy as np
import onnx
import pytest
import torch
from PIL import Image
from runs import NAMES, VIT, made, vit_file
from shared import printed, refused

import vitreous
from vitreous.cli.main import main
from vitreous.data.formats import open_source
from vitreous.deploy import export as exporting
from vitreous.engines.graph import KEY, read_file
from vitreous.errors import ConfigError

DETECTOR = {"dim": 32, "heads": 4, "mlp_dim": 32, "decoder_depth": 1, "queries": 6}
RESNET = {
    "backbone": "resnet",
    "backbone_fields": {"block": "basic", "stages": (1, 1), "width": 8, "norm": "frozen"},
}
RF = {**DETECTOR, "cross_heads": 4, "groups": 2, "projector_depth": 1, "backbone": "vit"}


@pytest.fixture(scope="module")
def file():
    return vit_file(".onnx")


@pytest.fixture(scope="module")
def photo(tmp_path_factory):
    path = tmp_path_factory.mktemp("photos") / "a.png"
    source = open_source("shapes:40")
    pixels = source.image(source.splits["train"][0]).permute(1, 2, 0).numpy()
    Image.fromarray(pixels).resize((90, 70)).save(path)
    return path


def export(run, path, **options):
    return vitreous.export(run, path, log=lambda text: None, **options)


@pytest.mark.parametrize("suffix", [".onnx", ".xml", ".pt2"])
@pytest.mark.parametrize("input", ["float32", "uint8"])
def test_every_format_predicts_the_same(run, photo, tmp_path, suffix, input):
    done = export(run, tmp_path / f"model{suffix}", input=input)
    assert done.difference < 2e-5
    assert done.agreement == 1
    ours, theirs = vitreous.load(run), vitreous.load(done.path)
    wanted, found = ours([photo] * 3), theirs([photo] * 3)
    for one, other in zip(wanted, found, strict=True):
        assert (one.label, one.id) == (other.label, other.id)
        assert one.score == pytest.approx(other.score, abs=1e-5)
    np.testing.assert_allclose(theirs.embed(photo), ours.embed(photo), rtol=1e-4, atol=1e-5)
    assert theirs.labels == NAMES


MODELS = {
    "tag": ("tag", "vit", VIT),
    "swin": ("classify", "swin", {"dim": 24, "depths": (1, 1), "heads": (1, 2), "window": 4}),
    "swin, padded windows": (
        *("classify", "swin"),
        {"image_size": (52, 60), "dim": 24, "depths": (2, 2), "heads": (1, 2), "window": 4},
    ),
    "masks of pixels": (
        *("segment", "segmenter", {"encoder": "vit", "encoder_fields": VIT, "whole": True}),
    ),
    "any size": ("detect", "detr", {**DETECTOR, "encoder_depth": 1, **RESNET}),
    "boxes": ("detect", "rf-detr", {**RF, "backbone_fields": VIT, "resize": "square"}),
    "masks": (
        *("instance", "rf-detr", {**RF, "backbone_fields": VIT, "resize": "square", "masks": True}),
    ),
}


@pytest.mark.parametrize("what", MODELS)
def test_every_task(what, photo, tmp_path):
    task, name, fields = MODELS[what]
    whole = {"whole": True} if task in ("detect", "instance", "segment") else {}
    run = made(tmp_path / "run", task, name, **{**fields, **whole})
    done = export(run, tmp_path / "model.onnx")
    assert done.difference < 5e-5
    wanted, found = vitreous.load(run)(photo), vitreous.load(done.path)(photo)
    assert wanted.agreement(found) > 0.99
    assert wanted.to_dict().keys() == found.to_dict().keys()
    if what == "any size":
        assert read_file(done.path).note.any_size


def test_what_was_pretrained_is_exported_as_its_encoder(photo, tmp_path):
    fields = {"encoder": "vit", "encoder_fields": VIT, "decoder_dim": 32, "decoder_heads": 2}
    run = made(tmp_path / "run", "mae", "mae-pretrain", classes=None, **fields)
    done = export(run, tmp_path / "model.onnx")
    vectors = vitreous.load(run).embed(photo)
    found = vitreous.load(done.path)
    np.testing.assert_allclose(found.embed(photo), vectors, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found(photo).values, vectors[0], rtol=1e-4, atol=1e-5)


def test_commands_take_it_like_a_run_folder(run, file, photo, tmp_path, capsys):
    said = []
    for which in (run, file):
        assert main(["predict", str(which), str(photo), "--json"]) == 0
        said.append(json.loads(capsys.readouterr().out))
    assert said[0]["label"] == said[1]["label"]
    assert said[0]["score"] == pytest.approx(said[1]["score"], abs=1e-5)
    assert main(["embed", str(file), str(photo), f"--out={tmp_path}/v.npz"]) == 0
    capsys.readouterr()
    assert "whose inside cannot be seen: take the run folder" in refused("explain", file, photo)


def test_the_command_says_what_it_has_verified(run, tmp_path, capsys):
    path = tmp_path / "deep" / "model.pt2"
    said = printed("export", run, path)
    assert "verified with torch on" in said
    assert "predictions agree to 100.00%" in said
    assert "exists: choose another name, or replace it with --force" in refused("export", run, path)
    assert main(["export", str(run), str(path), "--force", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["agreement"] == 1


def test_what_differs_is_not_written(run, tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "difference", lambda *given: 3e-3)
    with pytest.raises(exporting.ExportError, match="was not written: torch differs from torch"):
        export(run, tmp_path / "model.pt2")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", ["", ".tflite", ".ONNX"])
def test_other_suffixes(run, tmp_path, suffix):
    with pytest.raises(ConfigError, match=r"the suffix says what to write: \.onnx"):
        export(run, tmp_path / f"model{suffix}")


# ---- files from elsewhere


def changed(file, path, **changes):
    """A copy whose note says something else, without a checksum; None leaves it out."""
    model = onnx.load(file)
    note = json.loads(next(each.value for each in model.metadata_props if each.key == KEY))
    del model.metadata_props[:]
    if changes != {"note": None}:
        entry = model.metadata_props.add()
        entry.key, entry.value = KEY, json.dumps({**note, "sha256": "", **changes})
    onnx.save(model, path)
    return path


def config_of(file, **changes):
    return json.dumps({**json.loads(read_file(file).note.run), **changes})


def test_a_file_of_others(file, tmp_path):
    with pytest.raises(ConfigError, match="was not written by 'vitreous export'"):
        vitreous.load(changed(file, tmp_path / "a.onnx", note=None))
    (tmp_path / "b.onnx").write_bytes(b"no graph")
    with pytest.raises(ConfigError, match=r"b\.onnx cannot be opened"):
        vitreous.load(tmp_path / "b.onnx")
    with pytest.raises(ConfigError, match="there is no such file"):
        vitreous.load(tmp_path / "c.onnx")


def test_a_note_is_compared_with_the_graph(file, tmp_path):
    labels = {"names": list(NAMES[:4]), "external": [1, 2, 3, 4], "ignored": []}
    few = config_of(file, labels=labels)
    with pytest.raises(ConfigError, match="4 labels for a model with 5 classes"):
        vitreous.load(changed(file, tmp_path / "a.onnx", run=few))
    inside = json.loads(read_file(file).note.run)
    both = config_of(file, labels=labels, config={**inside["config"], "classes": 4})
    with pytest.raises(ConfigError, match="4 labels for outputs"):
        vitreous.load(changed(file, tmp_path / "b.onnx", run=both))
    large = {**inside["preprocess"], "image_size": [4096, 4096]}
    with pytest.raises(ConfigError, match="its note is for images"):
        vitreous.load(changed(file, tmp_path / "c.onnx", run=config_of(file, preprocess=large)))
    for number, wrong in enumerate(({"input": "text"}, {"format": 9}, {"run": 3}, {"more": 1})):
        with pytest.raises(ConfigError, match="its note cannot be used"):
            vitreous.load(changed(file, tmp_path / f"{number}.onnx", **wrong))


def test_tensors_outside_of_the_folder_are_not_read(file, tmp_path):
    file = changed(file, tmp_path / "whole.onnx", sha256="")
    onnx.save_model(
        onnx.load(file),
        tmp_path / "a.onnx",
        save_as_external_data=True,
        location="a.bin",
        size_threshold=4096,
    )
    assert vitreous.load(tmp_path / "a.onnx").labels == NAMES
    other = onnx.load(tmp_path / "a.onnx", load_external_data=False)
    for tensor in other.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = "../../etc/passwd"
    (tmp_path / "b.onnx").write_bytes(other.SerializeToString())
    with pytest.raises(ConfigError, match="outside of its folder"):
        vitreous.load(tmp_path / "b.onnx")
    outside = next(each for each in other.graph.initializer if each.external_data)
    inside = onnx.helper.make_node("Constant", [], ["hidden"], value=outside)
    for entry in inside.attribute[0].t.external_data:
        entry.value = "/etc/passwd" if entry.key == "location" else entry.value
    hidden = onnx.load(file)
    hidden.graph.node.insert(0, inside)
    (tmp_path / "c.onnx").write_bytes(hidden.SerializeToString())
    with pytest.raises(ConfigError, match="'/etc/passwd', outside of its folder"):
        vitreous.load(tmp_path / "c.onnx")


def test_a_model_of_any_size_with_another_backbone_is_refused(tmp_path):
    fields = {**DETECTOR, "encoder_depth": 1, "backbone": "vit", "backbone_fields": VIT}
    run = made(tmp_path / "run", "detect", "detr", whole=True, **fields)
    with pytest.raises(ConfigError, match="train it with --resize square"):
        export(run, tmp_path / "model.onnx")


def test_a_gpu_is_refused(file, monkeypatch):
    monkeypatch.setattr("vitreous.loading.find_device", lambda name: torch.device("cuda"))
    with pytest.raises(ConfigError, match="exported files run on the CPU"):
        vitreous.load(file, "cuda")


def test_what_is_missing_or_damaged_is_named(run, tmp_path):
    """OpenVINO tells of lines in its own code first, and only then of the file."""
    with pytest.raises(ConfigError, match="is a folder: give the name of a file in it"):
        export(run, tmp_path, force=True)
    path = export(run, tmp_path / "model.xml").path
    weights = path.with_suffix(".bin")
    content = weights.read_bytes()
    weights.unlink()
    with pytest.raises(ConfigError, match=r"its weights, model\.bin, are not beside it"):
        vitreous.load(path)
    weights.write_bytes(content[:1000])
    with pytest.raises(ConfigError, match="cannot be opened: Incorrect weights in bin file: it is"):
        vitreous.load(path, verify=False)
    weights.write_bytes(content)
    path.write_text(path.read_text()[:5000])
    with pytest.raises(ConfigError, match="it is damaged, or of another kind: copy or export it"):
        vitreous.load(path)


def test_vectors_by_another_engine_are_those_of_the_same_model(run, photo, tmp_path, monkeypatch):
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path / "cache"))
    abouts = [
        vitreous.embed(run, [photo], engine=engine, out=tmp_path / "v.npz").about
        for engine in ("torch", "onnxruntime")
    ]
    assert abouts[0] == abouts[1]
