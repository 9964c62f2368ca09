"""`vitreous compare`: what differs, which run is better, and whether that is more than chance."""

import json
import math
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from runs import NAMES, made, of_digits, vit_file, vit_run
from scipy import stats
from shared import once, printed, refused
from sklearn.metrics import cohen_kappa_score
from train.tiny import trained
from train.undrawn import undrawn

import vitreous
from vitreous.api.comparison import _held_out_by_all
from vitreous.data.formats import open_source
from vitreous.data.source import Sample, Source
from vitreous.errors import ConfigError, DataError
from vitreous.labels import LabelMap, NoLabels
from vitreous.run_folder import OpenedRun, Run
from vitreous.study.comparison import Contrast
from vitreous.study.outcomes import Outcomes, outcomes_of, paired_difference
from vitreous.study.statistics import Difference
from vitreous.tasks.metric import Metric
from vitreous.train.open_data import stored_recipe
from vitreous.train.recipe import write_recipe

QUIET = {"log": lambda text: None, "speed": False}


def changed(folder, run, weights=0.0, seed=0, **recipe):
    """A copy of a run with noise on its head, and another recipe."""
    copy = Run(shutil.copytree(run, folder))
    opened = OpenedRun(copy)
    model, state = opened.create_model(), opened.read_weights()
    random = torch.Generator().manual_seed(seed)
    for name in state:
        if name.startswith("head"):
            state[name] += weights * torch.randn(state[name].shape, generator=random)
    copy.write_weights(model, state)
    text = write_recipe(replace(stored_recipe(opened), seed=seed, **recipe))
    copy.write_text("recipe.toml", text)
    return folder


def fitted(folder):
    """The run of digits with a head that least squares has fitted: it knows many of them."""
    run = of_digits(folder)
    source, predictor = open_source("digits"), vitreous.load(folder)
    train = source.splits["train"][:600]
    vectors = torch.from_numpy(predictor.embed([source.image(each) for each in train])).double()
    vectors = torch.cat((vectors, torch.ones(len(vectors), 1)), dim=1)
    wanted = torch.nn.functional.one_hot(torch.tensor([each.target for each in train]), 10) - 0.1
    ridge = vectors.T @ vectors + 1e-2 * torch.eye(vectors.shape[1])
    solved = torch.linalg.solve(ridge, vectors.T @ wanted.double())
    state = OpenedRun(run).read_weights()
    weight, bias = (20 * part.float() for part in (solved[:-1].T, solved[-1]))
    state["head.out.weight"], state["head.out.bias"] = weight.contiguous(), bias
    run.write_weights(OpenedRun(run).create_model(), state)


@pytest.fixture(scope="module")
def good():
    return once("digits-fitted", fitted)


@pytest.fixture(scope="module")
def worse(good, tmp_path_factory):
    return changed(tmp_path_factory.mktemp("runs") / "worse", good, 8.0, lr=0.5)


@pytest.fixture(scope="module")
def found(worse, good):
    return vitreous.compare(worse, good, **QUIET)


def test_a_run_against_itself(good):
    same = vitreous.compare(good, good, **QUIET)
    assert same.names == ("digits-fitted", "digits-fitted (2)")
    assert same.differences == ()
    assert all(each.difference == Difference(0.0, 0.0, 0.0, 1.0) for each in same.contrasts)
    assert {each.verdict for each in same.contrasts} == {"same"}
    assert same.disagreements == ()
    assert (same.agreements[0].mean, same.agreements[0].kappa) == (1.0, 1.0)
    assert "equal on every draw" in str(same)


def test_a_known_difference_is_found(found, good, worse):
    (difference, *_) = found.deciding
    assert (found.baseline, difference.run) == ("worse", "digits-fitted")
    assert difference.verdict == "better"
    accuracies = [
        vitreous.evaluate(run, log=lambda text: None)["accuracy"] for run in (worse, good)
    ]
    assert difference.difference.mean == pytest.approx(accuracies[1] - accuracies[0])
    assert [run.numbers["accuracy"] for run in found.runs] == accuracies
    points = f"{100 * (accuracies[1] - accuracies[0]):.1f} points"
    assert f"accuracy: digits-fitted is better than worse by {points} (" in str(found)
    assert [(each.part, each.field, each.values) for each in found.differences] == [
        ("recipe", "lr", (0.5, 0.001))
    ]
    (turned,) = vitreous.compare(worse, good, baseline=good, **QUIET).deciding
    assert (turned.verdict, turned.baseline) == ("worse", "digits-fitted")
    assert turned.difference.mean == -difference.difference.mean
    assert f"worse is worse than digits-fitted by {points}" in str(turned)


def test_it_is_what_scipy_and_sklearn_compute(found, good, worse):
    source = open_source("digits")
    samples = source.splits["test"]
    truth = np.array([each.target for each in samples])
    images = [source.image(each) for each in samples]
    first, second = (
        np.array([each.id for each in vitreous.load(run)(images)]) for run in (worse, good)
    )
    right = [(each == truth).astype(float) for each in (first, second)]
    (agreement,), contrast = found.agreements, found.deciding[0]
    alone = int((right[1] > right[0]).sum()), int((right[1] < right[0]).sum())
    assert (agreement.only_run, agreement.only_baseline) == alone
    assert agreement.mcnemar == pytest.approx(stats.binomtest(alone[0], sum(alone)).pvalue)
    assert agreement.kappa == pytest.approx(cohen_kappa_score(first, second))
    assert agreement.differ == (first != second).sum()
    theirs = stats.bootstrap(
        (right[1] - right[0],), np.mean, n_resamples=2000, method="percentile", random_state=0
    ).confidence_interval
    limits = (contrast.difference.low, contrast.difference.high)
    assert limits == pytest.approx((theirs.low, theirs.high), abs=0.012)
    for each in found.disagreements:
        number = next(i for i, sample in enumerate(samples) if sample.id == each.image)
        assert each.truth == str(truth[number])
        assert [text.split()[0] for text in each.answers] == [
            str(first[number]),
            str(second[number]),
        ]
        assert list(each.scores) == [right[0][number], right[1][number]]
    conflicts = [each.conflict for each in found.disagreements]
    assert len(conflicts) == 24
    assert conflicts == sorted(conflicts, reverse=True)


def test_several_runs_are_corrected_and_one_number_is_paired_as_another(good, worse, tmp_path):
    near = changed(tmp_path / "near", good, 0.3, seed=1)
    both = vitreous.compare(good, near, worse, images=3, **QUIET)
    single = {
        name: vitreous.compare(good, run, **QUIET)
        for name, run in (("near", near), ("worse", worse))
    }
    for each in both.contrasts:
        (alone,) = [c for c in single[each.run].contrasts if c.metric == each.metric]
        assert each.difference == alone.difference
        assert each.p >= alone.p
    assert min(c.p for c in both.deciding) == pytest.approx(
        2 * min(c.p for c in (single["near"].deciding + single["worse"].deciding))
    )
    assert len(both.disagreements) == 3
    assert len(both.disagreements[0].answers) == 3


def test_an_exported_file_equals_its_run_and_both_are_timed():
    file = vit_file(".onnx")
    samples = [Sample(str(i), i % 5) for i in range(10)]
    source = Noise("noise", "generated", LabelMap(NAMES, tuple(range(10, 15))), {"test": samples})
    both = vitreous.compare(vit_run(), file, data=source, log=lambda text: None)
    assert both.deciding[0].verdict == "same"
    assert [run.engine for run in both.runs] == ["torch", "onnxruntime"]
    assert both.runs[0].parameters == both.runs[1].parameters
    assert both.runs[1].bytes == file.stat().st_size
    assert all(run.milliseconds > 0 for run in both.runs)
    assert both.differences == ()
    assert any("without a recipe" in note for note in both.notes)


class Noise(Source):
    def image(self, sample):
        random = torch.Generator().manual_seed(int(sample.id))
        return torch.randint(256, (3, 64, 64), generator=random, dtype=torch.uint8)


def test_smaller_is_better_in_kilograms():
    metric = Metric("mae", range=(0, math.inf), lower_is_better=True, unit="kg")
    less = Contrast("b", "a", metric, Difference(-1.5, -2.0, -1.0, 0.01), 0.01, "images", 50)
    assert less.gain == (1.5, 1.0, 2.0)
    assert str(less) == "mae: b is better than a by 1.5 kg (1 to 2), p = 0.010"
    more = replace(less, difference=Difference(1.5, 1.0, 2.0, 0.01))
    assert str(more) == "mae: b is worse than a by 1.5 kg (1 to 2), p = 0.010"
    chance = replace(less, difference=Difference(-0.5, -2.0, 1.0, 0.4), p=0.4)
    assert str(chance) == (
        "mae: no difference beyond chance between b and a: +0.5 kg (-1 to 2), p = 0.400"
    )
    several = replace(less, p=0.08)  # of many comparisons
    assert several.verdict == "none"
    one_seed = replace(less, difference=Difference(-0.5, -math.inf, math.inf), p=1.0)
    assert one_seed.verdict == "unknown"
    assert "nothing says how much of it is chance" in str(one_seed)
    assert one_seed.to_dict()["interval"] is None
    assert replace(less, difference=None, p=None).verdict == "unknown"


def test_seeds_are_a_paired_t_test(good, tmp_path):
    runs = {
        (lr, seed): changed(tmp_path / f"{lr}-{seed}", good, noise + 0.5 * seed, seed=seed, lr=lr)
        for lr, noise in ((0.1, 1.0), (0.2, 6.0))
        for seed in (0, 1, 2)
    }
    found = vitreous.compare(*runs.values(), by_seed=True, **QUIET)
    assert [group.name for group in found.groups] == ["lr 0.1", "lr 0.2"]
    assert [group.seeds for group in found.groups] == [(0, 1, 2)] * 2
    first, second = (group.values["accuracy"] for group in found.groups)
    for run, value in zip(found.runs, first + second, strict=True):
        assert run.numbers["accuracy"] == value
    expected = stats.ttest_rel(second, first)
    (contrast,) = found.deciding
    assert contrast.over == "seeds"
    assert contrast.difference.p == pytest.approx(expected.pvalue)
    limits = expected.confidence_interval(0.95)
    assert (contrast.difference.low, contrast.difference.high) == pytest.approx(
        (limits.low, limits.high)
    )
    assert found.groups[0].spread("accuracy") == pytest.approx(np.std(first, ddof=1))
    with undrawn():
        assert "± " in found.save(tmp_path / "page.html").read_text()
    with pytest.raises(ConfigError, match="differ in lr"):
        vitreous.compare(runs[0.1, 0], runs[0.2, 0], by_seed=True, **QUIET)
    with pytest.raises(ConfigError, match="the same seed, 1"):
        vitreous.compare(runs[0.1, 1], runs[0.1, 1], by_seed=True, **QUIET)


@pytest.mark.parametrize("task", ["tag", "segment", "instance"])
def test_every_task_with_its_page(task, tmp_path):
    """A run, and itself as it was after its first epoch."""
    run = trained(task)
    early = min((run / "checkpoints").glob("step-*"))
    found = vitreous.compare(run, early, images=2, **QUIET)
    assert len(found.runs) == 2
    assert found.deciding[0].difference is not None
    numbers = vitreous.evaluate(run, log=lambda text: None)
    for metric in found.metrics:
        assert found.runs[0].numbers[metric.key] == pytest.approx(numbers[metric.key])
    with undrawn():
        page = found.save(tmp_path / "page.html").read_text()
    assert "Which is better" in page
    assert page.count("<figcaption><b>") == len(found.disagreements)
    assert f"<b>{found.deciding[0].metric.name}:</b>" in page
    assert "<table>" in found._repr_html_()
    json.dumps(found.to_dict())


def test_what_was_pre_trained(tmp_path):
    run = trained("mae")
    found = vitreous.compare(run, min((run / "checkpoints").glob("step-*")), **QUIET)
    assert found.runs[0].numbers.keys() >= {"knn_accuracy", "loss"}
    assert found.contrasts == ()
    assert any("no test images" in note for note in found.notes)
    with undrawn():
        found.save(tmp_path / "page.html")


def test_curves_are_over_steps_images_and_time():
    run = trained("segment")
    found = vitreous.compare(run, run, **QUIET)
    for points in found.curves.values():
        assert [point["images"] for point in points] == [8 * point["step"] for point in points]
        assert all(point["cpu_seconds"] > 0 and "miou" in point for point in points)


def test_outcomes_are_those_of_evaluate(good):
    predictor, source = vitreous.load(good), open_source("digits")
    found = outcomes_of(predictor, source, "test")
    numbers = predictor.evaluate(source, "test")
    assert found.numbers["accuracy"] == numbers["accuracy"]
    assert found.intervals == numbers["intervals"]
    assert sum(found.each) / len(found.each) == pytest.approx(numbers["accuracy"])
    other = Outcomes(found.task)
    assert paired_difference(found, other, predictor.task.metric) is None  # of other images


def test_images_that_a_run_has_learned_from_are_left_out():
    def source(*held, name="some"):
        splits = {"test": [Sample(str(i), 0) for i in held]}
        return Pixels(name, "generated", NoLabels(), splits)

    first = source(1, 2, 3)
    assert _held_out_by_all(first, "test", [first, source(3, 2, 1)]) == (first, [])
    common, (note,) = _held_out_by_all(first, "test", [first, source(2, 3, 4)])
    assert [sample.id for sample in common.splits["test"]] == ["2", "3"]
    assert "only 2 of 3 images" in note
    with pytest.raises(DataError, match="split_seed"):
        _held_out_by_all(first, "test", [first, source(4, 5)])
    with pytest.raises(ConfigError, match="other images"):
        _held_out_by_all(first, "test", [first, source(1, 2, 3, name="others")])


class Pixels(Source):
    def image(self, sample):
        return torch.full((1, 2, 2), len(self.name))


def test_imported_models_take_part_with_data(good, tmp_path):
    """One that is not trained here has no recipe and no data of its own."""
    alien = shutil.copytree(good, tmp_path / "alien")
    (alien / "recipe.toml").unlink()
    config = replace(Run(alien).read_config(), data="", origin={"source": "elsewhere"})
    Run(alien).write_config(config)
    found = vitreous.compare(good, alien, **QUIET)
    assert found.deciding[0].verdict == "same"
    assert any("without a recipe" in note for note in found.notes)
    with pytest.raises(ConfigError, match="have no data of their own"):
        vitreous.compare(alien, alien, **QUIET)
    given = vitreous.compare(alien, alien, data="digits", split="val", **QUIET)
    assert given.split == "val"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "give two or more"),
        ({"others": ["good"], "baseline": "nobody"}, "expected one of the runs"),
        ({"others": ["detector"]}, "different tasks"),
        ({"others": ["good"], "images": 0}, "at least 1"),
        ({"others": ["good"], "split": "nowhere"}, "nowhere"),
        ({"others": ["good"], "tyle": 3}, "tile"),
        ({"others": ["nowhere"]}, "no such run folder"),
        ({"others": ["shapes"]}, "have no|does not know|classes"),
    ],
)
def test_bad_input(options, words, good, detector, tmp_path):
    known = {"good": good, "detector": detector, "nowhere": tmp_path / "none", "shapes": vit_run()}
    others = [known[name] for name in options.pop("others", [])]
    with pytest.raises((ConfigError, DataError), match=words):
        vitreous.compare(good, *others, **QUIET, **options)


@pytest.fixture(scope="module")
def detector(tmp_path_factory):
    small = {"dim": 16, "heads": 2, "encoder_depth": 1, "decoder_depth": 1, "mlp_dim": 16}
    inside = {"block": "basic", "stages": (1,), "width": 8, "norm": "group"}
    return made(
        tmp_path_factory.mktemp("runs") / "boxes",
        "detect",
        "detr",
        whole=True,
        queries=3,
        backbone="resnet",
        backbone_fields=inside,
        **small,
    )


def test_the_command(good, worse, tmp_path):
    text = printed("compare", worse, good, "--no-speed", "--out", tmp_path)
    assert "accuracy: digits-fitted is better than worse by" in text
    assert re.search(r"recipe +lr +0.5 +0.001", text)
    assert (tmp_path / "comparison.html").is_file()
    values = json.loads(printed("compare", worse, good, "--no-speed", "--json"))
    assert values["comparisons"][0]["verdict"] == "better"
    assert values["runs"][0]["accuracy"] < values["runs"][1]["accuracy"]
    assert "give two or more" in refused("compare", good)
    assert "which runs" in refused("compare")
