"""Two processes do what one does: same samples, same losses; also when one of them is killed."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from train.tiny import arguments, train

from vitreous.train import checkpoint

CALM = ["--set=dropout=0.0", "--clip=0"]  # no randomness per process
CALM_OF = {"classify": [*CALM, "--set=drop_path=0.0"], "segment": CALM, "detect": CALM}


def torchrun(out, *more, restarts=0, task="classify"):
    return [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"),
        *(f"--max-restarts={restarts}", "-m", "vitreous", "train", *arguments(task)),
        *(*CALM_OF[task], f"--out={out}", *more),
    ]


def run(*command):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, env=environment, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def final(out):
    tensors, progress = checkpoint.load(checkpoint.newest(out / "checkpoints"))
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
    run(*torchrun(out))
    return out


def test_losses_agree_with_one_process(one, two):
    for alone, together in zip(evaluations(one), evaluations(two), strict=True):
        assert together["train_loss"] == pytest.approx(alone["train_loss"], rel=1e-5)
        assert together["loss"] == pytest.approx(alone["loss"], rel=1e-4)
        assert together["samples"] == alone["samples"]


@pytest.mark.parametrize(
    ("task", "metric", "counted"), [("segment", "miou", "pixels"), ("detect", "ap", "objects")]
)
def test_masks_and_boxes_on_two_processes(tmp_path, task, metric, counted):
    """Pixels that are not ignored, and objects, are in different numbers on each; the loss and the
    metrics are the same."""
    train(tmp_path / "one", *CALM_OF[task], task=task)
    run(*torchrun(tmp_path / "two", task=task))
    both = (evaluations(tmp_path / name) for name in ("one", "two"))
    for alone, together in zip(*both, strict=True):
        assert together["train_loss"] == pytest.approx(alone["train_loss"], rel=1e-5)
        assert together[metric] == pytest.approx(alone[metric], abs=1e-3)
        assert together[counted] == alone[counted]


def end_all_of(out):
    """Ranks have sessions of their own, and live on for a while without their torchrun."""
    while pids := [
        int(place.name)
        for place in Path("/proc").glob("[0-9]*")
        if str(out) in _command_line(place) and int(place.name) != os.getpid()
    ]:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def _command_line(place):
    try:
        return (place / "cmdline").read_text()
    except OSError:
        return ""


def test_a_checkpoint_of_two_goes_on_with_one(two, one, tmp_path):
    """Checkpoints load at any number of processes."""
    out = tmp_path / "mixed"
    process = subprocess.Popen(
        torchrun(out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    while not list((out / "checkpoints").glob("step-*")) and process.poll() is None:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    end_all_of(out)
    train(out, *CALM_OF["classify"], "--resume")
    for name, value in final(one).items():
        # a key's bias changes nothing: its gradient is rounding, of which AdamW makes whole steps
        near = 1e-3 if name.endswith("qkv.bias") else 1e-4
        torch.testing.assert_close(final(out)[name], value, rtol=1e-3, atol=near)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_dies_is_started_again(two, tmp_path, rank):
    """torchrun restarts all processes; they go on where the run was, to the same bits."""
    out = tmp_path / "restarted"
    process = subprocess.Popen(
        torchrun(out, restarts=3),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    while not list((out / "checkpoints").glob("step-*")) and process.poll() is None:
        time.sleep(0.02)
    os.kill(child_of(process.pid, rank), signal.SIGKILL)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 0, said[-3000:]
    assert "resumed at step" in said
    first, second = final(two), final(out)
    assert [name for name in first if not torch.equal(first[name], second[name])] == []
    assert evaluations(out) == evaluations(two)


def child_of(parent, rank):
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    wanted = f"RANK={rank}".encode()
    return next(
        int(pid)
        for pid in children
        if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    )


def test_sharded_model_trains_alike(two, tmp_path):
    """FSDP2 divides the model; losses are those of DDP."""
    out = tmp_path / "sharded"
    run(*torchrun(out, "--shard", "--ema=0"))
    other = tmp_path / "copied"
    run(*torchrun(other, "--ema=0"))
    for sharded, copied in zip(evaluations(out), evaluations(other), strict=True):
        assert sharded["train_loss"] == pytest.approx(copied["train_loss"], rel=1e-4)


def test_a_batch_that_does_not_divide(tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        torchrun(tmp_path / "odd", "--batch=65"),
        check=False,
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )
    assert "choose --batch as a multiple of 2" in done.stderr
