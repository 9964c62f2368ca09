"""One path from image to answer: Python, `evaluate` and `predict` say the same."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

import vitreous
from vitreous.cli.main import main
from vitreous.data.preprocess import Preprocess
from vitreous.data.sources import open_source
from vitreous.errors import CheckpointError, ConfigError, DataError
from vitreous.explain.report import write_report
from vitreous.labels import LabelMap
from vitreous.run_folder import Run, RunConfig, versions


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run folder with random weights: what matters here is that all ways agree."""
    folder = Run(tmp_path_factory.mktemp("runs") / "run")
    folder.path.mkdir()
    torch.manual_seed(0)
    fields = {"image_size": 8, "patch": 4, "dim": 16, "depth": 1, "heads": 2, "channels": 1}
    model = vitreous.create("vit", **fields, classes=10)
    labels = LabelMap.of_ids(range(10))
    folder.write_config(
        RunConfig(
            "vit",
            "vit",
            vitreous.config.to_dict(model.config),
            "classify",
            labels,
            Preprocess(image_size=8, channels=1, mean=(0.3,), std=(0.37,)),
            "digits",
            "",
            versions(),
        )
    )
    folder.write_weights(model, model.state_dict())
    folder.log(
        step=1, kind="evaluation", epoch=1.0, train_loss=2.3, loss=2.3, accuracy=0.1, lr=1e-3
    )
    return folder


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    source = open_source("digits")
    for number, sample in enumerate(source.splits["test"][:5]):
        Image.fromarray(source.image(sample)[0].numpy()).save(folder / f"{number}.png")
    return folder


def test_paths_arrays_images_and_tensors_are_the_same(run, pictures):
    predictor = vitreous.load(run.path)
    path = pictures / "0.png"
    image = Image.open(path)
    array = np.array(image)
    things = [str(path), path, image, array, torch.from_numpy(array)[None]]
    results = predictor(things)
    assert len({result.label for result in results}) == 1
    for result in results:
        assert result.scores == pytest.approx(results[0].scores, rel=1e-6)
    assert predictor(path).image.endswith("0.png")
    assert predictor.labels == tuple("0123456789")


def test_batches_do_not_matter(run, pictures):
    predictor = vitreous.load(run.path)
    paths = sorted(pictures.iterdir())
    alone = [predictor(path) for path in paths]
    for batch in (1, 2, 5):
        for one, other in zip(alone, predictor(paths, batch=batch), strict=True):
            assert one.image == other.image
            assert one.scores == pytest.approx(other.scores, rel=1e-5)


def test_predict_command(run, pictures, capsys, monkeypatch):
    expected = [r.label for r in vitreous.load(run.path)(sorted(pictures.iterdir()))]
    ways = ([str(pictures)], [str(pictures / "*.png")], sorted(map(str, pictures.iterdir())))
    for way in ways:
        assert main(["predict", str(run.path), *way, "--json", "--top", "2"]) == 0
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [line["label"] for line in lines] == expected
        assert all(len(line["top"]) == 2 for line in lines)
    assert main(["predict", str(run.path), str(pictures)]) == 0
    assert "0.png" in capsys.readouterr().out


def test_evaluate_command_and_python_agree(run, capsys):
    assert main(["evaluate", str(run.path), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    result = vitreous.load(run.path).evaluate(open_source("digits"), "test")
    assert said["split"] == "test"
    assert said["accuracy"] == result["accuracy"]
    assert main(["evaluate", str(run.path), "digits", "--split", "val"]) == 0
    assert "balanced_accuracy" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["predict", "nowhere", "x.png"], "nowhere: there is no such run folder"),
        (["predict", "{pictures}", "x.png"], "is no run folder"),
        (["predict", "{run}", "none.png"], "none.png"),
        (["predict", "{run}", "{pictures}/*.jpg"], "no file matches"),
        (["evaluate", "{run}", "--split", "other"], "has no split 'other'"),
        (["evaluate", "{run}", "shapes"], "classes that the model does not know"),
    ],
)
def test_bad_input(run, pictures, arguments, words, capsys):
    filled = [a.format(run=run.path, pictures=pictures) for a in arguments]
    assert main(filled) == 2
    assert words in capsys.readouterr().err


def test_damaged_run_folders(run, tmp_path):
    folder = Run(tmp_path / "copy")
    folder.path.mkdir()
    config = json.loads((run.path / "config.json").read_text())
    (folder.path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=r"no model\.safetensors yet"):
        vitreous.load(folder.path)
    for broken in ({**config, "labels": {}}, {**config, "colour": 1}, {**config, "family": "x"}):
        (folder.path / "config.json").write_text(json.dumps(broken))
        with pytest.raises((ConfigError, DataError), match=r"config\.json|classes"):
            vitreous.load(folder.path)


def test_report_is_one_page_with_what_it_promises(run):
    page, split, result = write_report(run, open_source("digits"))
    text = page.read_text()
    assert split == "test"
    assert f"{100 * result['accuracy']:.2f} %" in text
    assert text.count("<svg") == 4
    assert text.count('src="data:image/png;base64,') == min(24, result["samples"])
    assert "http" not in text.replace("http-equiv", ""), "nothing is fetched from elsewhere"
    for name in map(str, range(10)):
        assert f"<td>{name}</td>" in text
