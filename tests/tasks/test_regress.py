"""A task of one's own, with one number per image, no classes, and a metric that has no end and is
better when it is smaller: one package and one row, and every command works."""

import json
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from PIL import Image

import vitreous
from vitreous import tasks
from vitreous.api.evaluation import evaluate
from vitreous.data.source import Sample, Source
from vitreous.labels import NoLabels
from vitreous.run_folder import Run

SPLITS = {"train": 96, "val": 24, "test": 24}
SIDE = 16
VIT = {"patch": 4, "dim": 32, "depth": 1, "heads": 2}
OPTIONS = {
    "model": "vit",
    "fields": VIT,
    "image_size": SIDE,
    "batch": 16,
    "crop": "none",
    "progress": False,
}


@dataclass
class Weighed(Source):
    """Bright squares on dark ground, which weigh as much as they are large: 20 to 80 kg."""

    def image(self, sample):
        side = round((np.nan_to_num(sample.target) - 20) / 60 * (SIDE - 4)) + 2
        pixels = np.random.default_rng(int(sample.id.split("/")[1])).integers(0, 60, (SIDE, SIDE))
        pixels[: max(side, 0), : max(side, 0)] += 180
        return torch.from_numpy(pixels.astype(np.uint8))[None]


def weighed():
    random = np.random.default_rng(0)
    splits = {
        split: [Sample(f"{split}/{i}", random.uniform(20, 80)) for i in range(count)]
        for split, count in SPLITS.items()
    }
    return Weighed("squares", "generated", NoLabels(), splits, truth_kind="number")


@pytest.fixture(scope="module", autouse=True)
def row():
    """What a program that uses the task does first."""
    tasks.add_task("regress", truth="number", package="tasks.regress")
    yield
    del tasks.TASKS["regress"], tasks.PACKAGES["regress"]


@pytest.fixture(scope="module")
def run(tmp_path_factory, row):
    out = tmp_path_factory.mktemp("runs") / "run"
    return vitreous.train(weighed(), out=out, epochs=40, lr=3e-3, patience=12, **OPTIONS)


def test_it_learns_and_is_compared_with_the_mean(run):
    assert run.metric == "mae"
    assert run.split == "test"
    constant = run.metrics["baselines"]["the mean"]["mae"]
    assert constant == pytest.approx(15, abs=4)  # a quarter of the range of a uniform distribution
    assert run.metrics["mae"] < constant / 3
    low, high = run.metrics["intervals"]["mae"]
    assert low < run.metrics["mae"] < high
    (seen,) = [each.seen for each in run.verdicts if "against" in each.seen]
    assert seen.startswith(f"mean absolute error {run.metrics['mae']:.3g} kg (95 % interval ")
    assert seen.endswith(f", against {constant:.3g} kg for the mean")
    assert "good" in [each.severity for each in run.verdicts]


def test_the_smallest_error_is_kept(run):
    lines = [m for m in Run(run.path).metrics() if m["kind"] == "evaluation"]
    best = min(lines, key=lambda line: line["mae"])
    kept = vitreous.load(run.path).evaluate(weighed(), "val")
    assert kept["mae"] == pytest.approx(best["mae"], rel=1e-5)


def test_a_model_that_has_learned_nothing_is_told_so(tmp_path):
    bad = vitreous.train(weighed(), out=tmp_path / "bad", epochs=1, lr=1e-9, **OPTIONS)
    (worst, *_) = bad.verdicts
    assert worst.severity == "bad"
    assert worst.seen.endswith("the model has not learned more than the mean")


def test_evaluate(run):
    found = evaluate(run.path, weighed(), "val", log=lambda text: None)
    assert found["mae"] < found["baselines"]["the mean in these images"]["mae"] / 3
    assert found["verdicts"][0]["severity"] == "good"


def test_predict_and_explain(run, tmp_path):
    source, predictor = weighed(), vitreous.load(run.path)
    assert "classes" not in repr(predictor)
    sample = source.splits["test"][0]
    path = tmp_path / "square.png"
    Image.fromarray(source.image(sample)[0].numpy()).save(path)
    assert predictor(path).value == pytest.approx(sample.target, abs=15)
    found = predictor.explain(path)
    assert list(found.class_maps) == ["weight"]


def test_commands(run, tmp_path, printed):
    path = tmp_path / "square.png"
    Image.fromarray(weighed().image(Sample("test/0", 50.0))[0].numpy()).save(path)
    record = json.loads(printed("predict", run.path, path, "--json"))
    assert record["value"] == pytest.approx(50, abs=15)
    assert " kg" in printed("predict", run.path, path)
    printed("explain", run.path, path, "--out", tmp_path / "maps")
    printed("export", run.path, tmp_path / "model.onnx")
    exported = vitreous.load(tmp_path / "model.onnx")
    assert exported(path).value == pytest.approx(vitreous.load(run.path)(path).value, abs=1e-3)


def test_compare(run):
    """Less is better, in kilograms."""
    early = min((run.path / "checkpoints").glob("step-*"))
    quiet = {"speed": False, "log": lambda text: None}
    found = vitreous.compare(run, early, data=weighed(), **quiet)
    (contrast,) = found.contrasts
    first, second = (each.numbers["mae"] for each in found.runs)
    assert first == run.metrics["mae"]
    assert contrast.difference.mean == pytest.approx(second - first)
    assert contrast.gain[0] == pytest.approx(first - second)
    assert contrast.metric.difference_unit == "kg"
    assert all(each.truth.endswith(" kg") for each in found.disagreements)
    assert all(text.endswith(" kg") for each in found.disagreements for text in each.answers)
    assert " kg" in found._repr_html_()


def test_report(run):
    page = run.report.read_text()
    assert f"<b>{run.metrics['mae']:.3g} kg</b><span>mean absolute error</span>" in page
    for title in ("Learning curves", "Largest errors", "Inside: what decides"):
        assert f"<h2>{title}</h2>" in page
    assert f"the mean: {run.metrics['baselines']['the mean']['mae']:.3g} kg" in page
    assert "0 classes" not in page


def test_resume_and_fine_tuning(run, tmp_path):
    """The run is a run as any other: it is made longer, and another one starts from its weights."""
    options = {"epochs": 1, "lr": 1e-9, **OPTIONS}
    again = vitreous.train(weighed(), weights=str(run.path), out=tmp_path / "again", **options)
    assert again.metrics["samples"] == SPLITS["test"]
    longer = vitreous.train(
        weighed(), out=tmp_path / "again", resume=True, epochs=2, progress=False
    )
    assert longer.metrics["mae"] > 0


def test_overfit_of_a_metric_without_an_end_says_nothing_of_its_own(tmp_path):
    few = vitreous.train(weighed(), out=tmp_path / "few", overfit=4, epochs=1, **OPTIONS)
    assert not any("fitted" in each.seen for each in few.verdicts)


def test_data_check():
    source = weighed()
    source.splits["train"][3] = Sample("train/3", float("nan"))
    report = vitreous.check_data(source)
    (problem,) = report.fatal
    assert "train/3" in problem.file
    assert "nan is not a finite number" in problem.what
