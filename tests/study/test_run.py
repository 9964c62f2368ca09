"""A study is run: found again, resumed, measured; and what cannot be trained does not stop it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from study.small_study import SMALL, PoolHere, study_run

from vitreous.study import run as running


@pytest.fixture(autouse=True)
def _here(monkeypatch):
    monkeypatch.setattr(running, "Pool", PoolHere)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The small study, and what it said."""
    folder, log = tmp_path_factory.mktemp("study"), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "Pool", PoolHere)
        made = study_run(SMALL, folder, log=log)
        made.run()
    return made, log


def test_every_variant_is_trained_with_every_seed_and_measured_on_test_images(done):
    made, log = done
    numbers = made.numbers()
    assert [point.variant for point in numbers.points] == ["plain", "wide"]
    for point in numbers.points:
        assert set(point.of("accuracy")) == {0, 1}
        assert len(point.draws["accuracy"][0]) == 1000
    assert numbers.points[0].mean("parameters") < numbers.points[1].mean("parameters")
    assert "4 runs to train and measure" in " ".join(log)
    values = made.baselines()
    assert values["k-NN on pixels"] > 0.8


def test_runs_are_ordinary_run_folders(done):
    import vitreous

    made, _ = done
    point = made.numbers().points[0]
    run = made.folder / "runs" / point.runs[1]
    found = vitreous.evaluate(run, log=lambda text: None)
    assert found["accuracy"] == pytest.approx(point.of("accuracy")[1], abs=1e-9)
    assert found["split"] == "test"


def test_all_seeds_are_measured_on_the_same_images_and_learn_from_others(done):
    made, _ = done
    names = made.numbers().points[0].runs
    recipes = [(made.folder / "runs" / names[s] / "recipe.toml").read_text() for s in (0, 1)]
    assert all("split_seed = 0" in each for each in recipes)
    assert "seed = 1" in recipes[1]


def test_the_page_has_all_that_was_found_and_nothing_from_outside(done):
    from vitreous.pages.study import study_page
    from vitreous.study.result import StudyResult

    made, _ = done
    study = replace(made.study, question="<script>Which?</script>")
    known = (made.numbers(), {"wide": "<b>too wide</b>"}, made.baselines())
    result = StudyResult(study, "standard", *known, "digits", 60.0, "a machine")
    page = study_page(result, made.folder)
    assert "<script>Which" not in page
    assert "&lt;b&gt;too wide" in page
    for point in result.numbers.points:
        assert all(f"runs/{name}" in page for name in point.runs.values())
        assert result.text(point) in page
    assert "k-NN on pixels" in page
    assert not re.findall(r'(?:src|href)="(?:https?:)?//', page)
    assert result.to_dict()["verdict"] == result.conclusion
    assert "plain" in result._repr_html_()


def test_where_nothing_was_learned_nothing_is_concluded(done):
    from vitreous.study.result import StudyResult

    made, _ = done
    known = (made.numbers(), {}, {"constant": 0.99})
    result = StudyResult(made.study, "standard", *known, "digits", 60.0, "a machine")
    assert not result.has_learned
    assert result.conclusion == "undecided"


def test_a_second_time_nothing_is_trained_and_the_numbers_are_the_same(done):
    made, _ = done
    log: list[str] = []
    again = study_run(SMALL, made.folder, log=log)
    again.run()
    assert log == ["all 4 runs are there already"]
    assert again.numbers().points == made.numbers().points


def test_the_same_seeds_give_the_same_numbers_elsewhere(done, tmp_path):
    made, _ = done
    again = study_run(SMALL, tmp_path, seeds=1)
    again.run()
    first, second = (each.numbers().points[0] for each in (made, again))
    assert second.of("accuracy")[0] == first.of("accuracy")[0]
    assert second.draws["accuracy"][0] == first.draws["accuracy"][0]


def test_a_changed_variant_is_trained_and_the_others_are_found(done):
    made, _ = done
    log: list[str] = []
    study_run(SMALL.replace("dim = 24", "dim = 32"), made.folder, log=log).run()
    assert "2 of 4 runs are there already" in " ".join(log)


def test_a_variant_that_cannot_be_built_is_named_and_the_others_go_on(tmp_path):
    text = SMALL.replace("set = { dim = 24 }", "set = { heads = 3 }")
    log: list[str] = []
    made = study_run(text, tmp_path, log=log, seeds=1)
    made.run()
    assert any("wide cannot be trained" in each and "heads" in each for each in log)
    plain, wide = made.numbers().points
    assert plain.of("accuracy")
    assert not wide.of("accuracy")
    assert "heads" in made.failures()["wide"]


def test_a_run_that_diverges_is_named_and_the_others_go_on(tmp_path):
    text = SMALL.replace("set = { dim = 24 }", "recipe = { lr = 1e30, clip = 0.0, epochs = 3 }")
    made = study_run(text, tmp_path, seeds=1)
    made.run()
    plain, wide = made.numbers().points
    assert plain.of("accuracy")
    assert not wide.of("accuracy")
    (why,) = made.failures().values()
    assert "finite" in why


def test_the_search_takes_the_learning_rate_that_is_best_on_validation_images(tmp_path):
    text = SMALL.replace("lr = 3e-3\n", "").replace(
        '[[variant]]\nname = "wide"', '[search]\nlr = [1e-6, 1e-2]\n\n[[variant]]\nname = "wide"'
    )
    made = study_run(text, tmp_path, seeds=1)
    made.run()
    for point in made.numbers().points:
        assert set(point.tried) == {1e-6, 1e-2}
        assert point.lr == max(point.tried, key=point.tried.get)
    assert len(list((tmp_path / "runs").iterdir())) == 4  # the best of the search is the final one


def test_a_teacher_is_trained_before_and_may_be_measured_itself(tmp_path):
    before = """
[[before]]
name = "teacher"
recipe = { epochs = 2 }

[[variant]]
name = "itself"
run = "@teacher"

[[variant]]
name = "taught"
recipe = { teacher = "@teacher" }
"""
    text = SMALL.partition("[[variant]]")[0] + before
    made = study_run(text, tmp_path, seeds=1)
    made.run()
    itself, taught = made.numbers().points
    assert itself.of("accuracy")
    assert taught.of("accuracy")
    recipe = (tmp_path / "runs" / taught.runs[0] / "recipe.toml").read_text()
    assert itself.runs[0] in recipe
    assert not made.failures()


def test_an_axis_of_evaluation_needs_no_other_runs(tmp_path):
    text = (
        SMALL.replace('[[expect]]\nbetter = "wide"\nthan = "plain"\n', "")
        + "\n[over]\nimage_size = [8, 12]\n"
    )
    made = study_run(text, tmp_path, seeds=1)
    made.run()
    points = made.numbers().points
    assert [point.value for point in points] == [8, 12, 8, 12]
    assert points[0].runs == points[1].runs
    assert points[0].of("loss") != points[1].of("loss")


def test_equal_flops_give_the_cheaper_arm_more_epochs(tmp_path):
    text = SMALL.replace("epochs = 1", "epochs = 4").replace("dim = 24", "dim = 64")
    text += '\n[equal]\nwhat = "flops"\n'
    made = study_run(text, tmp_path, seeds=1)
    made.run()
    plain, wide = made.plan.arms
    assert plain.epochs == 4
    assert wide.epochs < 4


def test_fractions_see_as_many_images_where_the_study_says_so(tmp_path):
    text = (
        SMALL.replace("fraction = 0.1\n", "")
        + "\n[over]\nfraction = [0.05, 0.1]\n\n[equal]\nalong = true\n"
    )
    made = study_run(text, tmp_path, seeds=1)
    assert [arm.epochs for arm in made.plan.arms] == [20, 10, 20, 10]


def test_killed_in_the_middle_it_goes_on_without_repeating_what_is_done(tmp_path):
    """With real processes: SIGKILL to the one that leads, whose workers end with it."""
    file = tmp_path / "slow.toml"
    file.write_text(SMALL.replace("seeds = 2", "seeds = 1"))
    command = [
        sys.executable,
        "-m",
        "vitreous",
        "study",
        str(file),
        "--out",
        str(tmp_path / "out"),
        "--jobs",
        "1",
    ]
    measured = tmp_path / "out" / "measured"
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as first:
        until = time.monotonic() + 120
        while not (measured.is_dir() and any(measured.glob("*.json"))) and time.monotonic() < until:
            time.sleep(0.05)
        first.send_signal(signal.SIGKILL)
    done = {path.name: path.stat().st_mtime_ns for path in measured.glob("*.json")}
    assert len(done) == 1
    run = subprocess.run(
        [*command, "--json"], capture_output=True, text=True, check=True, env=os.environ
    )
    found = json.loads(run.stdout)
    assert "1 of 2 runs are there already" in run.stderr
    assert {name: (measured / name).stat().st_mtime_ns for name in done} == done
    assert all(len(each["numbers"]["accuracy"]["by_seed"]) == 1 for each in found["points"])
    assert (tmp_path / "out" / "index.html").is_file()
