"""convert: any format to any other, verified, and the command that does it."""

import json
import pickle
import shutil

import numpy as np
import pytest
import torch
from compare import perturb, picture, relative_error
from runs import own_file, write_run

import vitreous
from vitreous.cli.main import main
from vitreous.config import flat
from vitreous.data.preprocess import Preprocess
from vitreous.errors import CheckpointError, ConfigError
from vitreous.labels import LabelMap
from vitreous.run_folder import MANIFEST, STATE, describe_file
from vitreous.weights.convert import convert
from vitreous.weights.io.files import read_tensors, write_tensors
from vitreous.weights.rules.formats import formats

FIELDS = {"image_size": 32, "patch": 8, "dim": 32, "depth": 2, "heads": 2, "mlp_dim": 64}
SWIN = {"image_size": 32, "dim": 16, "depths": (2, 2), "heads": (2, 4), "window": 4}
KIND = {
    "google": "npz",
    "torchvision": "pth",
    "deit": "pth",
    "official": "pth",
    "paddle": "pdparams",
}
ENDING = {"npz": ".npz", "pth": ".pth", "pdparams": ".pdparams", "safetensors": ".safetensors"}
PLAIN = [
    (name, family, fields)
    for name, sets in formats().items()
    for family, fields in (("vit", FIELDS), ("swin", SWIN))
    if any(family in rules.families for rules in sets)
    if name != "vit_pytorch"  # whose models have other parts
]


@pytest.fixture
def own(tmp_path):
    """A model and its file in our own format."""
    model = perturb(vitreous.create("vit", classes=7, **FIELDS))
    return model, own_file(tmp_path / "own.safetensors", model)


@torch.no_grad()
@pytest.mark.parametrize(("format", "family", "fields"), PLAIN, ids=lambda v: str(v)[:14])
def test_there_and_back_through_every_format(tmp_path, format, family, fields):
    model = perturb(vitreous.create(family, classes=7, **fields))
    path = own_file(tmp_path / "own.safetensors", model)
    there = tmp_path / f"there{ENDING[KIND.get(format, 'safetensors')]}"
    done = convert(path, there, to_format=format)
    assert done.difference == 0
    assert done.imported.format == "vitreous"
    changes = {**fields, "norm_eps": model.config.norm_eps}
    back = tmp_path / "back.safetensors"
    convert(there, back, from_format=format, model=family, changes=changes)
    again, ours = read_tensors(back).tensors, model.state_dict()
    assert again.keys() == ours.keys()
    assert all(torch.equal(again[name], ours[name]) for name in ours)


def test_classes_channels_and_size_come_from_the_tensors(tmp_path):
    model = perturb(vitreous.create("vit-ti/16", depth=1, classes=9, channels=2, image_size=96))
    source = tmp_path / "w.npz"
    write_tensors(source, vitreous.export_weights(model, "google"), "npz")
    done = convert(source, tmp_path / "w.safetensors", model="vit-ti/16", changes={"depth": 1})
    config = done.config
    assert (config.classes, config.channels, config.image_size) == (9, 2, (96, 96))
    assert done.imported.format == "google"


def test_what_is_asked_for_changes_and_is_said(own, tmp_path):
    _, path = own
    done = convert(
        path,
        tmp_path / "new.safetensors",
        changes={"image_size": (48, 32), "channels": 1, "classes": 3},
        resample="bicubic",
        adapt_channels=True,
        reinit=["head.*"],
    )
    assert done.imported.resampled == {"position.table": "4x4 to 6x4, bicubic"}
    assert done.imported.adapted == {"patch.weight": "3 to 1 channels"}
    assert done.imported.reinitialised == ["head.out.weight", "head.out.bias"]


def test_folder_that_transformers_loads(own, tmp_path):
    from transformers import AutoModelForImageClassification

    model, path = own
    done = convert(path, tmp_path / "folder", to_format="huggingface")
    assert done.notes == ("the preprocessing is not written: the source does not state it",)
    theirs = AutoModelForImageClassification.from_pretrained(tmp_path / "folder").eval()
    images = picture(2, 3, 32, 32)
    with torch.no_grad():
        assert relative_error(theirs(images).logits, model(images)) < 1e-5
    back = convert(tmp_path / "folder", tmp_path / "back.safetensors")
    assert back.config.norm_eps == model.config.norm_eps, "config.json says the epsilon"


def test_names_of_the_classes_go_with_it(own, tmp_path):
    """From a run of ours, and from transformers' folder to another one."""
    model, path = own
    names = [f"thing {number}" for number in range(model.config.classes)]
    run = tmp_path / "run"
    run.mkdir()
    shutil.copy(path, run / "model.safetensors")
    preprocess = {"image_size": [32, 32], "longest": None, "mean": [0.5], "std": [0.25]}
    values = {"labels": {"names": names}, "preprocess": preprocess}
    (run / "config.json").write_text(json.dumps(values))
    first = convert(run / "model.safetensors", tmp_path / "first", to_format="huggingface")
    (note,) = first.notes
    assert "the preprocessing is not written: it is image_size (32, 32), mean (0.5,)" in note
    (tmp_path / "first" / "preprocessor_config.json").write_text("{}")
    second = convert(tmp_path / "first", tmp_path / "second", to_format="huggingface")
    assert second.notes == ("the preprocessing is not written: the source does not state it",)
    config = json.loads((tmp_path / "second" / "config.json").read_text())
    assert list(config["id2label"].values()) == names
    assert config["label2id"][names[1]] == 1


def test_distilled_model_to_a_folder(tmp_path):
    from transformers import AutoModelForImageClassification, DeiTForImageClassificationWithTeacher

    fields = {**FIELDS, "tokens": "class+distillation", "pool": "both", "classes": 5}
    model = perturb(vitreous.create("vit", **fields))
    source = tmp_path / "timm.safetensors"
    write_tensors(source, vitreous.export_weights(model, "timm"), "safetensors")
    changes = {k: v for k, v in fields.items() if k != "classes"}
    convert(source, tmp_path / "deit", to_format="huggingface", model="vit", changes=changes)
    assert AutoModelForImageClassification
    theirs = DeiTForImageClassificationWithTeacher.from_pretrained(tmp_path / "deit").eval()
    images = picture(2, 3, 32, 32)
    with torch.no_grad():
        assert relative_error(theirs(images).logits, model(images)) < 1e-5


@torch.no_grad()
@pytest.mark.parametrize("format", ["huggingface", "huggingface-v4"])
@pytest.mark.parametrize("head", ["linear", "none"])
def test_swin_to_a_folder_and_back(tmp_path, head, format):
    from transformers import SwinForImageClassification, SwinModel

    fields = {**SWIN, "image_size": (64, 96), "channels": 2, "mlp_ratio": 3.0, "head": head}
    classes = {} if head == "none" else {"classes": 5}
    model = perturb(vitreous.create("swin", **fields, **classes))
    path = own_file(tmp_path / "own.safetensors", model)
    done = convert(path, tmp_path / "folder", to_format=format)
    assert done.notes == ("the preprocessing is not written: the source does not state it",)
    kind = SwinModel if head == "none" else SwinForImageClassification
    theirs, info = kind.from_pretrained(tmp_path / "folder", output_loading_info=True)
    assert [*info["missing_keys"], *info["unexpected_keys"]] == []
    images = picture(2, 2, 64, 96)
    got = theirs.eval()(images)
    got = got.pooler_output if head == "none" else got.logits
    assert relative_error(got, model(images)) < 1e-5
    back = convert(tmp_path / "folder", tmp_path / "back.safetensors")
    assert back.config == model.config
    again = read_tensors(tmp_path / "back.safetensors").tensors
    assert all(torch.equal(again[name], value) for name, value in model.state_dict().items())

    theirs.save_pretrained(tmp_path / "saved")
    saved = convert(tmp_path / "saved", tmp_path / "saved.safetensors")
    assert saved.config == model.config, "and so does what transformers itself writes"


def test_what_transformers_swin_cannot_be_is_refused(tmp_path):
    flat = vitreous.create("swin", **{**SWIN, "window": (2, 4)})
    path = own_file(tmp_path / "flat.safetensors", flat)
    with pytest.raises(CheckpointError, match=r"window = \(2, 4\).*square"):
        convert(path, tmp_path / "folder", to_format="huggingface")
    assert not (tmp_path / "folder").exists()
    other = vitreous.create("swin", norm_eps=1e-6, **SWIN)
    with pytest.raises(CheckpointError, match=r"do not support norm_eps = 1e-06"):
        vitreous.export_weights(other, "huggingface")
    convert(
        own_file(tmp_path / "own.safetensors", vitreous.create("swin", **SWIN)),
        tmp_path / "folder",
        to_format="huggingface",
    )
    file = tmp_path / "folder" / "config.json"
    config = json.loads(file.read_text())
    for name, value in (("hidden_act", "relu"), ("layer_norm_eps", 1e-12)):
        file.write_text(json.dumps({**config, name: value}))
        with pytest.raises(CheckpointError, match=f"{name} = .* is not supported"):
            convert(tmp_path / "folder", tmp_path / "back.safetensors")


def test_classes_and_channels_of_a_swin_come_from_the_tensors(tmp_path):
    model = perturb(vitreous.create("swin", classes=9, channels=2, **SWIN))
    source = tmp_path / "w.pth"
    write_tensors(source, vitreous.export_weights(model, "official"), "pth", wrap="model")
    done = convert(source, tmp_path / "w.safetensors", model="swin", changes=SWIN)
    assert (done.config.classes, done.config.channels) == (9, 2)
    assert done.imported.format == "official"


def test_windows_change_when_asked(tmp_path):
    model = perturb(vitreous.create("swin", classes=7, **SWIN))
    path = own_file(tmp_path / "own.safetensors", model)
    larger = {"window": 6, "image_size": 48}
    with pytest.raises(CheckpointError, match="windows change from 4x4 to 6x6"):
        convert(path, tmp_path / "new.safetensors", changes=larger)
    done = convert(path, tmp_path / "new.safetensors", changes=larger, resample="bicubic")
    assert set(done.imported.resampled.values()) == {"4x4 to 6x6, bicubic"}


def test_deit_and_swin_files_are_wrapped_as_the_official_scripts_want(own, tmp_path):
    swin = own_file(tmp_path / "swin.safetensors", vitreous.create("swin", **SWIN))
    for path, format in ((own[1], "deit"), (swin, "official")):
        convert(path, tmp_path / f"{format}.pth", to_format=format)
        assert set(torch.load(tmp_path / f"{format}.pth", weights_only=True)) == {"model"}


def test_a_file_that_does_not_read_back_the_same_is_refused(own, tmp_path, monkeypatch):
    """The verification can fail: here the writer loses a bit of one tensor."""
    from vitreous.weights import convert as module

    def careless(path, tensors, *rest, **more):
        tensors["norm.weight"] = tensors["norm.weight"] * 1.01
        write_tensors(path, tensors, *rest, **more)

    monkeypatch.setattr(module, "write_tensors", careless)
    target = tmp_path / "bad.safetensors"
    with pytest.raises(CheckpointError, match="gives other outputs"):
        convert(own[1], target, to_format="timm")
    assert not target.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["{own}", "x.txt"], "x.txt: unknown suffix"),
        (["{own}", "x.npz"], "x.npz: our own format"),
        (["{own}", "x.safetensors", "--to", "tim"], "did you mean 'timm'"),
        (["{own}", "x.safetensors", "--from", "gogle"], "did you mean 'google'"),
        (["{own}", "none/x.safetensors"], "the folder none does not exist"),
        (["nowhere.npz", "x.safetensors"], "nowhere.npz: no such file"),
        (["{own}", "x.safetensors", "--model", "vit-b/61"], "did you mean 'vit-b/16'"),
        (["{own}", "x.safetensors", "--resample", "cubic"], "bicubic, bilinear"),
        (["{own}", "x.safetensors", "--set", "haeds=4"], "did you mean 'heads'"),
        (["{own}", "x.safetensors", "--image-size", "64"], "pass --resample bicubic"),
        (["{own}", "x.safetensors", "--channels", "5"], "pass --adapt-channels"),
        (["{own}", "x.safetensors", "--from", "none.toml"], "none.toml: no such file"),
    ],
)
def test_bad_input_is_one_message_and_exit_2(own, tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    code = main(["convert", *(a.format(own=own[1]) for a in arguments)])
    captured = capsys.readouterr()
    assert code == 2
    assert words in captured.err
    assert "Traceback" not in captured.err
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_source_that_does_not_say_its_model(own, tmp_path):
    """It shows it, unless it is of a kind that nobody here knows."""
    convert(own[1], tmp_path / "t.safetensors", to_format="timm")
    done = convert(tmp_path / "t.safetensors", tmp_path / "u.safetensors")
    assert (done.config.dim, done.config.depth, done.config.classes) == (32, 2, 7)
    write_tensors(tmp_path / "x.safetensors", {"a.weight": torch.ones(3, 4)}, "safetensors")
    with pytest.raises(ConfigError, match="--model"):
        convert(tmp_path / "x.safetensors", tmp_path / "y.safetensors")


def test_command_prints_json(own, tmp_path, capsys):
    assert main(["convert", str(own[1]), str(tmp_path / "t.npz"), "--to", "google", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["difference"] == 0
    assert result["config"]["dim"] == 32
    assert result["imported"]["loaded"]


@pytest.mark.parametrize(
    "hidden",
    [{"heads": 4}, {"pool": "mean"}, {"activation": "gelu-tanh"}, {"attention.scale": 0.3}],
)
def test_what_no_tensor_shows_is_compared(own, tmp_path, hidden):
    """Our own files state their config: a model that computes otherwise is refused."""
    model, path = own
    other = vitreous.create("vit", classes=7, **{**FIELDS, **hidden})
    name = next(iter(hidden))
    with pytest.raises(CheckpointError, match=f"{name}: the checkpoint's config has"):
        vitreous.import_weights(other, path)
    vitreous.import_weights(other, path, keep=[name])
    done = convert(path, tmp_path / "same.safetensors", model="vit", changes=FIELDS)
    assert flat(done.config)[name] == flat(model.config)[name]


def test_config_of_a_transformers_folder_is_compared(own, tmp_path):
    model, path = own
    convert(path, tmp_path / "folder", to_format="huggingface")
    config = json.loads((tmp_path / "folder" / "config.json").read_text())
    for change, name in (
        ({"hidden_act": "gelu_new"}, "activation"),
        ({"num_attention_heads": 4}, "heads"),
    ):
        (tmp_path / "folder" / "config.json").write_text(json.dumps({**config, **change}))
        with pytest.raises(CheckpointError, match=f"{name}: the checkpoint's config has"):
            vitreous.import_weights(
                vitreous.create("vit", classes=7, **FIELDS), tmp_path / "folder"
            )
    assert model is not None


def test_a_class_layer_of_zeros_is_no_fault(tmp_path):
    """As in the paper's ImageNet-21k files, whose class layer was zeroed before release."""
    model = vitreous.create("vit", classes=7, init="jax", **FIELDS)
    write_tensors(tmp_path / "z.npz", vitreous.export_weights(model, "google"), "npz")
    done = convert(tmp_path / "z.npz", tmp_path / "z.safetensors", model="vit", changes=FIELDS)
    assert done.difference == 0


def test_values_that_are_not_finite_are_named_and_nothing_is_lost(own, tmp_path):
    model, path = own
    with torch.no_grad():
        model.norm.weight[0] = float("nan")
    bad, target = tmp_path / "bad.safetensors", tmp_path / "precious.safetensors"
    write_tensors(bad, vitreous.export_weights(model, "timm"), "safetensors")
    target.write_bytes(b"precious")
    with pytest.raises(CheckpointError, match=r"bad.safetensors: norm.weight has values"):
        convert(bad, target, from_format="timm", model="vit", changes=FIELDS)
    assert target.read_bytes() == b"precious"
    assert path.exists()


def test_a_headless_file_of_ours_converts_again(own, tmp_path):
    _, path = own
    changes = {"head": "none"}
    source = read_tensors(path).tensors
    body = {k: v for k, v in source.items() if not k.startswith("head.")}
    write_tensors(tmp_path / "body.safetensors", body, "safetensors")
    first = tmp_path / "first.safetensors"
    convert(tmp_path / "body.safetensors", first, model="vit", changes={**FIELDS, **changes})
    done = convert(first, tmp_path / "second.safetensors")
    assert done.config.head.kind == "none"
    convert(first, tmp_path / "bare", to_format="huggingface")


def test_options_may_be_repeated_and_stand_anywhere(own, tmp_path):
    target = tmp_path / "t.safetensors"
    twice = ["--reinit", "head.out.weight", "--reinit", "head.out.bias"]
    assert main(["convert", *twice, str(own[1]), str(target)]) == 0
    before, after = read_tensors(own[1]).tensors, read_tensors(target).tensors
    assert not torch.equal(before["head.out.weight"], after["head.out.weight"])
    assert not torch.equal(before["head.out.bias"], after["head.out.bias"])
    assert torch.equal(before["norm.weight"], after["norm.weight"])


@pytest.fixture
def run(own, tmp_path):
    """A run folder as training leaves it, with a checkpoint."""
    model, _ = own
    labels = LabelMap.of_names([f"thing {number}" for number in range(7)])
    prepared = Preprocess(image_size=32, mean=(0.3,), std=(0.2,))
    run = write_run(tmp_path / "run", model, labels, prepared)
    step = run.checkpoints / "step-00000003"
    step.mkdir(parents=True)
    later = {f"model.{name}": value + 1 for name, value in model.state_dict().items()}
    write_tensors(step / STATE, later, "safetensors")
    (step / MANIFEST).write_text(json.dumps({STATE: describe_file(step / STATE)}))
    return run


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("force", [[], ["--force"]])
@pytest.mark.parametrize("source", ["run", "run@last", "run/model.safetensors"])
@pytest.mark.parametrize(
    ("target", "format"), [("run", "huggingface"), ("run/model.safetensors", "timm")]
)
def test_a_run_is_never_replaced_by_its_own_conversion(
    run, tmp_path, monkeypatch, capsys, source, target, format, force
):
    """Whatever is insisted on."""
    if force and source == "run@last" and target != "run":
        return  # whose best weights may be replaced on demand
    monkeypatch.chdir(tmp_path)
    before = contents(run.path)
    assert main(["convert", source, target, "--to", format, *force]) == 2
    assert "choose another DST" in capsys.readouterr().err
    assert contents(run.path) == before
    assert vitreous.load(run.path).labels[2] == "thing 2"


def test_what_others_wrote_is_replaced_on_demand_only(own, run, tmp_path, capsys):
    """A config.json, a weight file, another run; what convert wrote is replaced."""
    model, path = own
    foreign, theirs = tmp_path / "foreign", tmp_path / "theirs.pth"
    foreign.mkdir()
    (foreign / "config.json").write_text('{"precious": 1}')
    torch.save(model.state_dict(), theirs)
    for target, format in (
        (foreign, "huggingface"),
        (theirs, "timm"),
        (run.path, "huggingface"),
        (run.path / "model.safetensors", "timm"),
    ):
        before = contents(tmp_path)
        arguments = ["convert", str(path), str(target), "--to", format]
        assert main(arguments) == 2
        assert "--force" in capsys.readouterr().err
        assert contents(tmp_path) == before
        if target.is_dir():
            continue
        assert main([*arguments, "--force"]) == 0
        assert contents(tmp_path) != before
    assert main(["convert", str(path), str(foreign), "--to", "huggingface", "--force"]) == 0
    assert "model_type" in (foreign / "config.json").read_text()
    assert not list(tmp_path.rglob(".*")), "nothing is left over"


@pytest.mark.parametrize("name", ["a.safetensors", "folder"])
def test_what_convert_wrote_may_be_replaced(own, tmp_path, name):
    """It is recognised by its metadata."""
    for _ in range(2):
        convert(own[1], tmp_path / name, to_format="timm" if "." in name else "huggingface")


@pytest.mark.parametrize("name", ["a.npz", "a.pth", "a.pdparams"])
def test_files_without_metadata_are_replaced_only_if_asked(own, tmp_path, name):
    format = {"a.npz": "google", "a.pdparams": "paddle"}.get(name, "timm")
    convert(own[1], tmp_path / name, to_format=format)
    with pytest.raises(ConfigError, match=f"{name} exists: choose another DST, or pass force=True"):
        convert(own[1], tmp_path / name, to_format=format)
    convert(own[1], tmp_path / name, to_format=format, force=True)
    if name == "a.pth":
        assert torch.load(tmp_path / name, weights_only=True, mmap=True)["norm.weight"].shape
    if name == "a.npz":
        assert np.load(tmp_path / name)["Transformer/encoder_norm/scale"].shape
    if name == "a.pdparams":
        assert pickle.loads((tmp_path / name).read_bytes())


def test_a_folder_that_fails_its_verification_is_left_as_it_was(own, tmp_path, monkeypatch):
    """Config.json was replaced before the weights were verified."""
    from vitreous.weights import convert as module

    convert(own[1], tmp_path / "folder", to_format="huggingface")
    before = contents(tmp_path)

    def careless(path, tensors, *rest, **more):
        changed = {name: value * 1.01 for name, value in tensors.items()}
        write_tensors(path, changed, *rest, **more)

    monkeypatch.setattr(module, "write_tensors", careless)
    for target in ("folder", "new"):
        with pytest.raises(CheckpointError, match="gives other outputs"):
            convert(
                *(own[1], tmp_path / target), to_format="huggingface", changes={"norm_eps": 1e-3}
            )
        assert contents(tmp_path) == before
    assert not (tmp_path / "new").exists()


def test_last_weights_of_a_run_are_converted(run, own, tmp_path):
    """RUN@last and RUN/checkpoints/step-N."""
    model, _ = own
    for source in (f"{run.path}@last", str(run.checkpoints / "step-00000003")):
        assert main(["convert", source, str(tmp_path / "last"), "--to", "huggingface"]) == 0
        config = json.loads((tmp_path / "last" / "config.json").read_text())
        assert config["id2label"]["1"] == "thing 1"
        vitreous.convert(source, tmp_path / "last.safetensors")
        tensors = read_tensors(tmp_path / "last.safetensors").tensors
        assert torch.equal(tensors["norm.weight"], model.norm.weight + 1)
