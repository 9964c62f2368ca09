"""How long a run is: ended early, made for a time; and what is found out before data is read."""

import shutil
import time

import pytest
from shared import refused
from train.tiny import class_folder, progress_of, train, trained
from train.undrawn import undrawn

from vitreous.cli.main import main
from vitreous.errors import ConfigError
from vitreous.run_folder import Run
from vitreous.train import open_data, run, validation
from vitreous.train.recipe import seconds


@pytest.fixture
def stopped(tmp_path):
    """A run of five epochs that was killed after three."""
    out = shutil.copytree(trained(), tmp_path / "run")
    for path in sorted((out / "checkpoints").iterdir())[2:]:
        shutil.rmtree(path)
    return out


def test_a_run_is_ended_early_on_purpose(stopped, capsys):
    step = progress_of(stopped)["step"]
    (stopped / "report.html").unlink()
    assert main(["train", "--resume", "--out", str(stopped), "--epochs=1"]) == 0
    assert f"ended at step {step}" in capsys.readouterr().err
    assert progress_of(stopped)["finished"]
    assert "ended early" in (stopped / "report.html").read_text()
    lrs = [line["lr"] for line in Run(stopped).metrics()]
    assert lrs == sorted(lrs, reverse=True)  # also that of the last step, after which it was killed
    assert main(["train", "--resume", "--out", str(stopped)]) == 0
    assert "finished" in capsys.readouterr().err


def test_a_run_is_made_for_a_time(tmp_path, capsys):
    """By the real clock; test_time.py turns one of its own."""
    words = ["--model=vit", "--set=patch=4", "--set=dim=16", "--set=depth=1", "--set=heads=2"]
    began, out, data = time.perf_counter(), tmp_path / "a", str(class_folder())
    with undrawn():
        assert main(["train", data, *words, "--image-size=8", "--time=8s", f"--out={out}"]) == 0
    spent = time.perf_counter() - began
    last = Run(out).metrics()[-1]
    assert last["lr"] < 1e-4  # its schedule has ended
    assert spent < 60
    assert 'time = "8s"' in (out / "recipe.toml").read_text()
    assert "epochs fit into 8s" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "expected"), [("90s", 90), ("30m", 1800), ("1.5 h", 5400)])
def test_times(text, expected):
    assert seconds(text) == expected
    with pytest.raises(ConfigError):
        seconds("0m")


@pytest.mark.parametrize("words", [["--model=vot-s/16"], ["--weights=nowhere.safetensors"]])
def test_models_and_weights_that_do_not_exist_are_refused_before_data_is_read(
    words, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "open_usable", lambda *_: pytest.fail("data was opened"))
    assert words[0].partition("=")[2] in refused("train", "digits", *words)


@pytest.mark.parametrize(
    ("model", "size"),
    [("resnet-18", 64), ("swin-t", 64), ("vit-ti/16", 64), ("vit-ti/8", 32), ("vit-ti/14", 56)],
)
def test_small_images_are_not_enlarged_to_the_models_size(model, size, tmp_path, monkeypatch):
    """Digits have 8 pixels, the models 224."""
    from vitreous.tasks.defaults import Glance
    from vitreous.train.plan import fitting_size

    assert fitting_size(model, (), Glance(32, 30, 3, True, True)) == (size, size)
    assert fitting_size(model, (), Glance(200, 200, 3, True, True)) is None
    assert fitting_size(model, ("image_size=96",), Glance(32, 32, 3, True, True)) is None


def test_bad_images_are_looked_for_once(tmp_path, monkeypatch):
    """Not by every process, and not again for the report."""
    calls = []
    whole = open_data.bad_samples

    def counted(*args, **options):
        calls.append(args)
        return whole(*args, **options)

    monkeypatch.setattr(open_data, "bad_samples", counted)
    train(tmp_path / "run", "--epochs=1", "--on-bad=skip")
    assert len(calls) == 1


def test_validation_is_read_by_workers_too(tmp_path, monkeypatch):
    used, whole = [], validation.eval_batches

    def seen(dataset, batch, workers, *rest, **options):
        used.append(workers)
        return whole(dataset, batch, workers, *rest, **options)

    monkeypatch.setattr(validation, "eval_batches", seen)
    train(tmp_path / "run", "--epochs=1", "--workers=2")
    assert used == [2]
