"""Weights and exported files that were changed after they were written are noticed, by everybody
who reads them; and what was written by an earlier version, or changed on purpose, can be used."""

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image
from running.hostile import entries_of, torch_file
from runs import NAMES, VIT, made

import vitreous
from vitreous import checksums
from vitreous.cli.main import main
from vitreous.deploy import engine, quantise
from vitreous.errors import CheckpointError, ConfigError
from vitreous.import_run import open_run
from vitreous.loading import predictor_of
from vitreous.run_folder import WEIGHTS, Run

SMALL = {**VIT, "depth": 1}


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return made(tmp_path_factory.mktemp("runs") / "good", "classify", "vit", **SMALL)


@pytest.fixture(scope="module")
def file(good):
    return vitreous.export(good, good.parent / "model.pt2", log=lambda text: None).path


@pytest.fixture
def run(good, tmp_path):
    return Path(shutil.copytree(good, tmp_path / "run"))


@pytest.fixture
def photo(tmp_path):
    path = tmp_path / "a.png"
    Image.new("RGB", (64, 64), "olive").save(path)
    return path


def exchange(run):
    """Weights of the same shapes, as if somebody had copied those of another run here."""
    path = run / WEIGHTS
    data = bytearray(path.read_bytes())
    data[-4:] = torch.tensor([9.0]).numpy().tobytes()
    path.write_bytes(data)
    return run


def test_a_run_says_what_its_weights_are(run):
    stored = json.loads((run / "config.json").read_text())["checksums"]
    assert stored == {WEIGHTS: [hashlib.sha256((run / WEIGHTS).read_bytes()).hexdigest()]}


def test_exchanged_weights_are_an_error_that_says_what_to_do(run, photo, capsys):
    before = vitreous.load(run)(photo).to_dict()
    with pytest.raises(CheckpointError) as error:
        vitreous.load(exchange(run))
    said = str(error.value)
    assert said.startswith(
        f"{run / WEIGHTS} is not the file that this run has written: its SHA-256"
    )
    assert f'delete "checksums" from {run / "config.json"}' in said
    assert "--no-verify (verify in Python)" in said
    after = vitreous.load(run, verify=False)(photo).to_dict()
    assert after != before
    config = json.loads((run / "config.json").read_text())
    del config["checksums"]
    (run / "config.json").write_text(json.dumps(config))
    assert vitreous.load(run)(photo).to_dict() == after


COMMANDS = {
    "predict": ("predict", "RUN", "PHOTO"),
    "predict with another engine": ("predict", "RUN", "PHOTO", "--engine", "onnxruntime"),
    "evaluate": ("evaluate", "RUN", "DATA"),
    "embed": ("embed", "RUN", "PHOTO", "--out", "OUT.npz"),
    "explain": ("explain", "RUN", "PHOTO", "--out", "OUT"),
    "export": ("export", "RUN", "OUT.pt2"),
    "convert": ("convert", "RUN", "OUT.safetensors"),
    "benchmark": ("benchmark", "RUN", "--engines", "torch", "--rounds", "2", "--no-memory"),
    "serve": ("serve", "RUN", "--port", "0"),
    "train": ("train", "digits", "--weights", "RUN", "--out", "OUT", "--epochs", "1"),
}


SHORT = ("predict", "evaluate", "embed", "explain", "export", "convert", "benchmark")
"""Those that end by themselves, and fast."""


def words(name, run, photo, folder):
    """What is typed for a command."""
    if name == "evaluate":
        for colour in NAMES:
            (folder / "data" / colour).mkdir(parents=True)
            for number in range(2):
                picture = Image.new("RGB", (64, 64), colour)
                picture.save(folder / "data" / colour / f"{number}.png")
    meant = {"RUN": str(run), "PHOTO": str(photo), "DATA": str(folder / "data")}
    return [meant.get(word, word.replace("OUT", f"{folder}/out")) for word in COMMANDS[name]]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_notices(run, photo, tmp_path, monkeypatch, capfd, name):
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path / "cache"))
    exchange(run)
    assert main(words(name, run, photo, tmp_path)) == 2
    said = capfd.readouterr().err
    assert f"{run / WEIGHTS} is not the file that this run has written" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("name", SHORT)
def test_a_user_who_knows_can_use_them(run, photo, tmp_path, monkeypatch, capsys, name):
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path / "cache"))
    assert main([*words(name, exchange(run), photo, tmp_path), "--no-verify"]) == 0


def test_engines_export_them_without_verifying(run, tmp_path, monkeypatch):
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path / "cache"))
    exported = []
    monkeypatch.setattr(engine, "export", lambda *given, **options: exported.append(given) or Done)
    exchange(run)
    with pytest.raises(CheckpointError):
        engine.cached_file(open_run(run), engine.Way("openvino", "float32"), print)
    assert not exported
    engine.cached_file(open_run(run, verify=False), engine.Way("openvino", "float32"), print)
    assert exported


class Done:
    loss = None


def test_a_config_edited_by_hand_is_used(run, photo):
    config = json.loads((run / "config.json").read_text())
    config["labels"]["names"][0] = "crimson"
    (run / "config.json").write_text(json.dumps(config))
    assert "crimson" in vitreous.load(run).labels


def test_checksums_that_are_none(run):
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, "checksums": {WEIGHTS: "no list"}}))
    with pytest.raises(ConfigError, match="checksums"):
        vitreous.load(run)


@pytest.mark.parametrize("moment", ["before the rename", "after the rename"])
def test_a_run_that_is_killed_while_it_writes_weights_can_be_used(run, monkeypatch, moment):
    """The old weights are there, or the new ones."""
    folder = Run(run)
    model = vitreous.load(run).model
    state = {name: tensor + 1 for name, tensor in model.state_dict().items()}
    write, calls = Run._write_checksums, []

    def killed(self, *given):
        calls.append(given)
        if len(calls) == 2 and moment == "after the rename":
            raise KeyboardInterrupt
        write(self, *given)
        if moment == "before the rename":
            raise KeyboardInterrupt

    monkeypatch.setattr(Run, "_write_checksums", killed)
    with pytest.raises(KeyboardInterrupt):
        folder.write_weights(model, state)
    monkeypatch.undo()
    new = moment == "after the rename"
    found = vitreous.load(run).model.state_dict()
    assert all(torch.equal(found[name], state[name]) == new for name in found)
    assert len(folder.read_config().checksums[WEIGHTS]) == 2
    folder.write_weights(model, state)
    assert len(folder.read_config().checksums[WEIGHTS]) == 1
    vitreous.load(run)


def test_a_training_that_replaces_weights_meanwhile(run):
    """Between looking at config.json and at the weights."""
    folder, model = Run(run), vitreous.load(run).model
    state = {name: tensor + 1 for name, tensor in model.state_dict().items()}
    opened = open_run(run)
    folder.write_weights(model, state)
    found = predictor_of(opened).model.state_dict()
    assert torch.equal(found["norm.bias"], state["norm.bias"])


def test_a_run_without_checksums_gets_one_when_its_config_is_written(run):
    folder = Run(run)
    config = json.loads((run / "config.json").read_text())
    wanted = config.pop("checksums")
    (run / "config.json").write_text(json.dumps(config))
    vitreous.load(run)
    folder.write_config(folder.read_config())
    assert folder.read_config().checksums == wanted


def test_a_file_is_hashed_once(run, monkeypatch):
    old = os.stat(run / WEIGHTS).st_mtime_ns - 10**10
    os.utime(run / WEIGHTS, ns=(old, old))
    hashed, digest = [], hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", lambda *given: hashed.append(1) or digest(*given))
    for _ in range(3):
        vitreous.load(run)
    assert len(hashed) == 1
    exchange(run)
    with pytest.raises(CheckpointError):
        vitreous.load(run)


def test_a_change_within_one_tick_of_the_clock_is_noticed(run):
    """Same size, same time, same file."""
    os.utime(run / WEIGHTS)
    state = os.stat(run / WEIGHTS)
    first = checksums.file_sha256(run / WEIGHTS)
    exchange(run)
    os.utime(run / WEIGHTS, ns=(state.st_atime_ns, state.st_mtime_ns))
    recent = checksums.file_sha256(run / WEIGHTS)
    assert recent != first


def test_an_exported_file_that_was_changed(file, photo, tmp_path, capsys):
    """Also where the change is in the labels alone."""
    changed = tmp_path / "changed.pt2"
    changed.write_bytes(file.read_bytes().replace(b"grey", b"gray"))
    with pytest.raises(ConfigError, match=r"changed\.pt2 cannot be opened: Bad CRC"):
        vitreous.load(changed)
    note = entries_of(file)["extra/vitreous.json"].replace(b"grey", b"gray")
    changed = torch_file(file, changed, **{"extra__vitreous.json": note})
    assert main(["predict", str(changed), str(photo)]) == 2
    said = capsys.readouterr().err
    assert f"{changed}: not as written by 'vitreous export': the SHA-256 of the content" in said
    assert "copy or export it again, or use it as it is with --no-verify" in said
    assert main(["predict", str(changed), str(photo), "--no-verify"]) == 0
    assert open_run(changed).read_config().labels.names[3] == "gray"


def test_tensors_beside_an_onnx_file_are_part_of_it(good, tmp_path, monkeypatch):
    monkeypatch.setattr(quantise, "LARGEST_PROTO", 1000)
    path = tmp_path / "model.onnx"
    vitreous.export(good, path, precision="float16", log=lambda text: None)
    vitreous.load(path)
    beside = tmp_path / "model.onnx.data"
    content = bytearray(beside.read_bytes())
    content[len(content) // 2] ^= 1
    beside.write_bytes(content)
    with pytest.raises(ConfigError, match=r"model\.onnx\.data: not as written by"):
        vitreous.load(path)
