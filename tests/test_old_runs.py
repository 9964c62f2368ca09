"""Run folders that commit 8922915 wrote, one for each task of its time: they load, evaluate to the
same numbers and can be resumed."""

import json
import shutil
from pathlib import Path

import pytest

import vitreous
from vitreous.cli.main import main
from vitreous.run_folder import Run

RUNS = sorted(path.parent for path in Path(__file__).parent.glob("old_runs/*/config.json"))


def numbers(result):
    """All metrics by name, also those of each class."""
    found = {name: value for name, value in result.items() if isinstance(value, int | float)}
    for label, row in result["classes"].items():
        found |= {f"{label} {name}": value for name, value in row.items() if value is not None}
    return found


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.name)
def test_an_old_run_evaluates_as_it_did_and_resumes(path, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(path, run)
    expected = json.loads((path / "expected.json").read_text())
    result = vitreous.evaluate(run, split=expected["split"])
    # 0.02: another CPU may round one image or pixel to the other side
    then = numbers(expected)
    now = {name: value for name, value in numbers(result).items() if name in then}
    assert now == pytest.approx(then, abs=0.02)
    before = Run(run).metrics()
    assert main(["train", "--resume", "--out", str(run), "--epochs", "4"]) == 0
    steps = [line["step"] for line in Run(run).metrics() if line["kind"] == "evaluation"]
    last = before[-1]["step"]
    assert steps[: len(before)] == [line["step"] for line in before]
    assert steps[-1] == last * 4 // 3
    assert f"step {last} of {steps[-1]}" in capsys.readouterr().err
    assert (run / "report.html").is_file()


def test_there_is_one_for_each_task_of_that_time():
    assert {Run(path).read_config().task for path in RUNS} == {"classify", "segment", "detect"}
