"""Two processes do what one does: same samples, same losses; also when one of them is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from train.processes import end, start_ranks
from train.tiny import class_folder, command, train

from vitreous.errors import ConfigError
from vitreous.run_folder import Run, newest_checkpoint
from vitreous.train import checkpoint
from vitreous.train.distributed import World
from vitreous.train.recipe import Recipe
from vitreous.train.run import prepare

CALM = ["--set=dropout=0.0", "--clip=0"]  # no randomness per process
CALM_OF = {
    "classify": [*CALM, "--set=drop_path=0.0"],
    **dict.fromkeys(("segment", "detect", "instance"), CALM),
}


def words(out, *more, task="classify"):
    return command(out, *CALM_OF[task], *more, task=task)


def run_two(out, *more, task="classify"):
    printed = out.with_suffix(".txt")
    processes = start_ranks(words(out, *more, task=task), printed)
    codes = [end(process) for process in processes]
    assert codes == [0, 0], printed.with_suffix(".0").read_text()[-3000:]


def final(out):
    tensors, progress = checkpoint.load(newest_checkpoint(out / "checkpoints"))
    assert progress.finished
    return tensors


def evaluations(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "one"
    train(out, *CALM_OF["classify"])
    return out


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "two"
    run_two(out)
    return out


def test_losses_agree_with_one_process(one, two):
    for alone, together in zip(evaluations(one), evaluations(two), strict=True):
        assert together["train_loss"] == pytest.approx(alone["train_loss"], rel=1e-5)
        assert together["loss"] == pytest.approx(alone["loss"], rel=1e-4)
        assert together["samples"] == alone["samples"]


@pytest.mark.parametrize(
    "how",
    [["--unfreeze-after=1", "--checkpoint"], ["--freeze=!head.*", "--crop=none", "--mixup=0"]],
)
def test_what_is_trained_later_or_on_stored_features(tmp_path, how):
    """DDP wraps another set of parameters then, or the head alone; blocks may be computed again."""
    train(tmp_path / "one", *CALM_OF["classify"], "--epochs=2", *how)
    run_two(tmp_path / "two", "--epochs=2", *how)
    for alone, together in zip(*(evaluations(tmp_path / n) for n in ("one", "two")), strict=True):
        assert together["train_loss"] == pytest.approx(alone["train_loss"], rel=1e-5)
        assert together["loss"] == pytest.approx(alone["loss"], rel=1e-4)
    one, two = final(tmp_path / "one"), final(tmp_path / "two")
    for name in one:
        torch.testing.assert_close(two[name], one[name], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("task", "metric", "counted"), [("segment", "miou", "pixels"), ("detect", "ap", "objects")]
)
def test_masks_and_boxes_on_two_processes(tmp_path, task, metric, counted):
    """Pixels that are not ignored, and objects, are in different numbers on each; the loss and the
    metrics are the same."""
    train(tmp_path / "one", *CALM_OF[task], "--epochs=2", "--log-every=1", task=task)
    run_two(tmp_path / "two", "--epochs=2", "--log-every=1", task=task)
    both = [Run(tmp_path / name).metrics()[:4] for name in ("one", "two")]
    for alone, together in zip(*both, strict=True):
        assert together["loss"] == pytest.approx(alone["loss"], rel=1e-5)
    both = (evaluations(tmp_path / name)[-1:] for name in ("one", "two"))
    for alone, together in zip(*both, strict=True):
        # later, rounding may decide which of two like queries is matched with an object
        assert together["train_loss"] == pytest.approx(alone["train_loss"], rel=2e-3)
        assert together[metric] == pytest.approx(alone[metric], abs=1e-3)
        assert together[counted] == alone[counted]


def test_instances_on_two_processes(tmp_path):
    """Each process draws its own points of masks: losses are alike, not the same. Metrics of both
    are put together."""
    train(tmp_path / "one", *CALM_OF["instance"], "--epochs=1", "--log-every=1", task="instance")
    run_two(tmp_path / "two", "--epochs=1", "--log-every=1", task="instance")
    both = [Run(tmp_path / name).metrics()[:1] for name in ("one", "two")]
    for alone, together in zip(*both, strict=True):
        assert together["loss"] == pytest.approx(alone["loss"], rel=0.05)
    alone, together = (evaluations(tmp_path / name)[-1] for name in ("one", "two"))
    assert together.keys() == alone.keys()
    assert together["train_loss"] == pytest.approx(alone["train_loss"], rel=0.05)
    for counted in ("samples", "objects"):
        assert together[counted] == alone[counted]


def test_pretraining_on_two_processes(tmp_path):
    """Each process draws its own masks: losses are alike, not the same. The features are computed
    in parts, and judged together."""
    more = ["--set=encoder.dropout=0.0", "--clip=0", "--epochs=1"]
    train(tmp_path / "one", *more, task="mae")
    printed = tmp_path / "two.txt"
    processes = start_ranks(command(tmp_path / "two", *more, task="mae"), printed)
    assert [end(process) for process in processes] == [0, 0], printed.with_suffix(".0").read_text()
    for alone, together in zip(*(evaluations(tmp_path / n) for n in ("one", "two")), strict=True):
        assert together.keys() == alone.keys()
        assert together["samples"] == alone["samples"]
        assert together["knn_pixels"] == alone["knn_pixels"]
        assert together["train_loss"] == pytest.approx(alone["train_loss"], rel=0.05)
        assert together["loss"] == pytest.approx(alone["loss"], rel=0.02)
        assert together["effective_rank"] == pytest.approx(alone["effective_rank"], rel=0.1)
    assert "linear_accuracy" in together


@pytest.mark.parametrize("method", ["lejepa", "distil"])
def test_methods_without_masks_do_the_same_on_two_processes(tmp_path, method):
    """SIGReg is about the images of all processes: its loss does not depend on their number."""
    more = ["--set=encoder.dropout=0.0", "--clip=0", "--epochs=1", "--log-every=1"]
    train(tmp_path / "one", *more, task=method)
    printed = tmp_path / "two.txt"
    processes = start_ranks(command(tmp_path / "two", *more, task=method), printed)
    assert [end(process) for process in processes] == [0, 0], printed.with_suffix(".0").read_text()
    for alone, together in zip(*(evaluations(tmp_path / n) for n in ("one", "two")), strict=True):
        assert together.keys() == alone.keys()
        assert together["loss"] == pytest.approx(alone["loss"], rel=1e-4)
    assert together["train_loss"] == pytest.approx(alone["train_loss"], rel=1e-4)


def wait_for_checkpoint(out, alive):
    """Until there is a newer one than now."""

    def newest():
        return max((out / "checkpoints").glob("step-*"), default=None)

    before = newest()
    while newest() == before and alive():
        time.sleep(0.02)


def test_a_checkpoint_of_two_goes_on_with_one(one, tmp_path):
    """Checkpoints load at any number of processes."""
    out = tmp_path / "mixed"
    processes = start_ranks(words(out), tmp_path / "printed")
    wait_for_checkpoint(out, processes[0].is_alive)
    for process in processes:
        process.kill()
    assert [end(process) for process in processes] == [-signal.SIGKILL] * 2
    train(out, *CALM_OF["classify"], "--resume")
    for name, value in final(one).items():
        # a key's bias changes nothing: its gradient is rounding, of which AdamW makes whole steps
        near = 1e-3 if name.endswith("qkv.bias") else 1e-4
        torch.testing.assert_close(final(out)[name], value, rtol=1e-3, atol=near)


def test_ranks_that_die_are_started_again(two, tmp_path):
    """torchrun restarts all processes; they go on where the run was, to the same bits. First one
    that only computes dies, then the one that writes. 14.3: without --out, in the same folder."""
    out = tmp_path / "runs" / "classes"
    given = [word for word in words(out) if not word.startswith("--out")]
    start_two = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    process = subprocess.Popen(
        [sys.executable, *start_two, "--max-restarts=3", "-m", "vitreous", *given],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    for rank in (1, 0):
        wait_for_checkpoint(out, lambda: process.poll() is None)
        os.kill(child_of(process.pid, rank), signal.SIGKILL)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 0, said[-3000:]
    assert said.count("resumed at step") == 2
    first, second = final(two), final(out)
    assert [name for name in first if not torch.equal(first[name], second[name])] == []
    assert evaluations(out) == evaluations(two)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["classes"]
    assert not (out / ".claim").exists()


def child_of(parent, rank):
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    wanted = f"RANK={rank}".encode()
    return next(
        int(pid)
        for pid in children
        if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    )


@pytest.mark.parametrize("how", ["--recompute", "--checkpoint"])
def test_sharded_model_trains_alike(tmp_path, how):
    """FSDP2 divides the model; losses are those of one process, by AdamW (Muon needs whole
    matrices)."""
    out, whole = tmp_path / "sharded", tmp_path / "whole"
    run_two(out, "--shard", "--ema=0", how)
    train(whole, *CALM_OF["classify"], "--optimizer=adamw", "--ema=0")
    for sharded, copied in zip(evaluations(out), evaluations(whole), strict=True):
        assert sharded["train_loss"] == pytest.approx(copied["train_loss"], rel=1e-4)


def test_a_batch_that_does_not_divide(tmp_path):
    """Known before the processes meet."""
    recipe = Recipe(data=str(class_folder()), batch=65, epochs=1, precision="float32")
    first_of_two = World(0, 2, torch.device("cpu"))
    with pytest.raises(ConfigError, match=r"65.*2 processes.*multiple of 2"):
        prepare(recipe, Run(tmp_path / "run"), first_of_two, lambda _: None, lambda _: None)
