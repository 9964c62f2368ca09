"""What holds for every task: it learns, and its run folder evaluates, predicts and is reported."""

import json
import re

import numpy as np
import pytest
from train.tiny import trained

import vitreous
from vitreous.pages.words import WORDS
from vitreous.run_folder import Run
from vitreous.tasks import PRETRAINING, TASKS


@pytest.fixture(scope="module", params=[*TASKS, *PRETRAINING])
def run(request):
    return Run(trained(request.param))


@pytest.fixture(scope="module")
def images():
    """Of different sizes, a bright part on dark ground."""
    random = np.random.default_rng(0)
    found = [
        random.integers(0, 90, (*size, 3), np.uint8) for size in ((16, 16), (20, 31), (24, 12))
    ]
    for image in found:
        image[4:10, 5:11] += 120
    return found


def test_the_loss_falls(run):
    first, *_, last = (line for line in run.metrics() if line["kind"] == "evaluation")
    assert last["train_loss"] < first["train_loss"]


def test_evaluation_is_the_same_again_and_has_the_metric_that_decides(run):
    first, again = (vitreous.evaluate(run.path) for _ in range(2))
    assert first == again
    assert vitreous.load(run.path).task.metric.key in first
    assert first["samples"] > 0
    json.dumps(first, allow_nan=False)


def test_predictions_do_not_depend_on_the_batch_and_are_json(run, images):
    predictor = vitreous.load(run.path)
    for together, image in zip(predictor(images), images, strict=True):
        alone = predictor(image)
        if hasattr(alone, "agreement"):
            assert alone.agreement(together) > 0.99
        else:  # a reconstruction
            assert alone.loss == pytest.approx(together.loss, rel=1e-4)
        assert json.dumps(together.to_dict(), allow_nan=False)


def test_vectors_are_finite_and_of_one_length(run, images):
    vectors = vitreous.load(run.path).embed(images)
    assert len(vectors) == len(images)
    assert np.isfinite(vectors).all()


def test_its_report_is_a_page(run):
    text = (run.path / "report.html").read_text()
    assert "<h1>" in text
    titles = set(re.findall("<h2>(.*?)</h2>", text))
    assert "Learning curves" in titles
    assert titles <= {english for english, _ in WORDS["report"].values()}, "in every language"
