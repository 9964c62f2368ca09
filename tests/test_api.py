"""The commands as Python functions."""

import subprocess
import sys

import numpy as np
import pytest

import vitreous
from vitreous.errors import ConfigError

TINY = {
    "model": "vit",
    "fields": {"patch": 4, "dim": 16, "depth": 1, "heads": 2, "mlp_dim": 16},
    "image_size": 8,
    "batch": 50,
    "overfit": 2,
    "progress": False,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return vitreous.train("digits", epochs=1, out=tmp_path_factory.mktemp("api") / "run", **TINY)


def test_importing_costs_nothing_and_every_public_name_is_there():
    code = (
        "import sys, vitreous\n"
        "assert not {'torch', 'numpy', 'tyro', 'vitreous.api'} & sys.modules.keys()\n"
        "import vitreous.train.run, vitreous.explain.explanation\n"  # modules with verbs' names
        "assert all(callable(getattr(vitreous, name)) for name in vitreous.__all__)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_train_writes_a_run_with_its_report_and_says_how_good_it_is(run):
    assert run.report.is_file()
    assert str(run.path) in repr(run)
    assert f"{run.metric} {run.metrics[run.metric]:.4f}" in repr(run)
    recipe = (run.path / "recipe.toml").read_text()
    assert '"dim=16"' in recipe
    assert "image_size = [8]" in recipe


def test_a_run_is_taken_by_the_other_verbs(run, tmp_path):
    metrics = vitreous.evaluate(run)
    assert metrics["split"] == "train"
    assert metrics[run.metric] == run.metrics[run.metric]
    image = np.zeros((8, 8), np.uint8)
    one, many = vitreous.predict(run, image), vitreous.predict(run, [image, image])
    assert [each.label for each in many] == [one.label] * 2
    assert vitreous.load(run)(image).label == one.label
    written = vitreous.explain(run, image, tmp_path)
    assert all(path.is_file() for path in written)
    assert {"look.html", "positions.png"} <= {path.name for path in written}


def test_a_run_is_resumed_and_made_longer(run):
    longer = vitreous.train(out=run, resume=True, epochs=2, progress=False)
    assert longer.path == run.path
    assert "epochs = 2" in (run.path / "recipe.toml").read_text()


def test_options_override_a_recipe_and_fields_are_added_to_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text('lr = 0.5\nfields = ["patch=4"]\nmodel = "vit"\n')
    small = ("dim=16", "depth=1", "heads=2", "mlp_dim=16")
    said = []
    found, picture = vitreous.dry_run(
        "digits", recipe="mine.toml", fields=small, image_size=8, epochs=3, log=said.append
    )
    assert found.steps > 3
    assert picture.is_file()
    assert not any(line.startswith("lr:") for line in said)  # the recipe has chosen it


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"learning_rate": 1.0}, ["learning_rate", "'lr'"]),
        ({"crop": "windo"}, ["crop", "'window'"]),
        ({"epochs": "three"}, ["epochs", "'three'"]),
        ({"resume": True}, ["--out"]),
        ({"recipe": "fine-tun"}, ["'fine-tune'"]),
    ],
)
def test_bad_options_are_errors_that_help(options, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as error:
        vitreous.train("digits", **options)
    assert all(word in str(error.value) for word in words), error.value
    assert not list(tmp_path.iterdir())


def test_data_is_checked():
    report = vitreous.check_data("digits")
    assert report.name == "digits"
    assert not report.fatal
    with pytest.raises(ConfigError, match="queries"):
        vitreous.check_data("digits", queries=5)
