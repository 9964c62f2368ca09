"""Run folders of earlier versions, in a folder for each commit that wrote them: they load, evaluate
to the same numbers and can be resumed."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from torch import Tensor
from train.undrawn import undrawn

import vitreous
from vitreous.cli.main import main
from vitreous.run_folder import Run

RUNS = sorted(path.parent for path in Path(__file__).parent.glob("old_runs/*/*/config.json"))


def numbers(result):
    """All metrics by name, also those of each class."""
    found = {name: value for name, value in result.items() if isinstance(value, int | float)}
    for label, row in result.get("classes", {}).items():
        found |= {f"{label} {name}": value for name, value in row.items() if value is not None}
    return found


def tensors(output):
    """Those of floating point in a model's output, however it nests them."""
    if isinstance(output, Tensor):
        return [output.float()] if output.is_floating_point() else []
    parts = output if isinstance(output, tuple | list) else ()
    return [each for part in parts for each in tensors(part)]


def outputs(run):
    """Mean and standard deviation of each output of the model for a made-up batch."""
    model = vitreous.load(run).model
    shape = (2, model.config.channels, *model.own_size())
    count = torch.Size(shape).numel()
    images = torch.linspace(-1, 1, count).sin().mul(3).reshape(shape)
    with torch.inference_mode():
        return [[float(each.mean()), float(each.std())] for each in tensors(model(images))]


@pytest.mark.parametrize("path", RUNS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_an_old_run_evaluates_as_it_did_and_resumes(path, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(path, run)
    expected = json.loads((path / "expected.json").read_text())
    result = vitreous.evaluate(run, split=expected["split"])
    # 0.02: another CPU may round one image or pixel to the other side
    then = numbers(expected)
    now = {name: value for name, value in numbers(result).items() if name in then}
    assert now == pytest.approx(then, abs=0.02)
    if "outputs" in expected:
        for mean_and_std, known in zip(outputs(run), expected["outputs"], strict=True):
            assert mean_and_std == pytest.approx(known, rel=1e-4, abs=1e-5)
    before = [line for line in Run(run).metrics() if line["kind"] == "evaluation"]
    command = "train" if result.get("classes") else "pretrain"
    with undrawn():
        assert main([command, "--resume", "--out", str(run), "--epochs", "4"]) == 0
    steps = [line["step"] for line in Run(run).metrics() if line["kind"] == "evaluation"]
    last = before[-1]["step"]
    assert steps[: len(before)] == [line["step"] for line in before]
    assert steps[-1] == last * 4 // 3
    assert f"step {last} of {steps[-1]}" in capsys.readouterr().err
    assert (run / "report.html").is_file()


def test_there_is_one_for_each_task():
    found = {Run(path).read_config().task for path in RUNS}
    assert found == {"classify", "segment", "detect", "tag", "instance", "mae", "lejepa"}
