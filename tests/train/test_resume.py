"""A run that is killed and resumed ends with the same bits as one that was never killed."""

import json
import random
import shutil
import signal
import time

import pytest
import torch
from train.processes import end, start
from train.tiny import command, final, train, trained

from vitreous.errors import WriteError
from vitreous.run_folder import newest_checkpoint
from vitreous.train import checkpoint
from vitreous.train.checkpoint import Progress
from vitreous.weights.io.files import read_tensors


def assert_same_run(one, other):
    first, second = final(one), final(other)
    assert first.keys() == second.keys()
    different = [name for name in first if not torch.equal(first[name], second[name])]
    assert not different
    weights = [read_tensors(run / "model.safetensors").tensors for run in (one, other)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert (one / "metrics.jsonl").read_text() == (other / "metrics.jsonl").read_text()


@pytest.fixture(scope="module")
def whole():
    """A run that was never killed."""
    return trained()


@pytest.mark.parametrize(
    ("task", "workers", "kills"),
    [
        *(("classify", 0, 8), ("classify", 2, 4), ("segment", 2, 2), ("detect", 2, 2)),
        ("instance", 2, 1),
        *(("mae", 0, 2), ("lejepa", 2, 1), ("distil", 0, 1)),
    ],
)
def test_killed_at_random_moments(tmp_path, task, workers, kills):
    """SIGKILL again and again: at any time, and in the middle of whatever is being written."""
    out, chance = tmp_path / "killed", random.Random(workers)
    deaths = []
    for attempt in range(kills):
        writes = chance.randint(1, 12) if attempt % 2 else 0
        resume = ["--resume"] if (out / "config.json").exists() else []
        words = command(out, f"--workers={workers}", *resume, task=task)
        process = start(words, tmp_path / "printed", writes)
        if not writes:
            wait_for_checkpoint(out, process)
            time.sleep(chance.random() * 0.1)
            process.kill()
        deaths.append(end(process))
    assert deaths == [-signal.SIGKILL] * kills, "the run has ended before it was killed so often"
    train(out, f"--workers={workers}", "--resume", task=task)
    assert_same_run(trained(task), out)


def wait_for_checkpoint(out, process):
    """Until there is one more than now, complete or not."""

    def count():
        return len(list((out / "checkpoints").glob("*step-*")))

    before = count()
    while process.is_alive() and count() == before:
        time.sleep(0.002)


def test_sigterm_saves_says_how_to_go_on_and_resumes(whole, tmp_path):
    out, printed = tmp_path / "stopped", tmp_path / "printed"
    process = start(command(out), printed)
    while not (out / "checkpoints").exists() and process.is_alive():
        time.sleep(0.01)
    process.terminate()
    assert end(process) == 128 + signal.SIGTERM, printed.read_text()
    assert f"--resume --out {out}" in printed.read_text()
    train(out, "--resume")
    assert_same_run(whole, out)


def test_a_finished_run_is_extended_only_by_asking(whole, tmp_path):
    out = tmp_path / "longer"
    shutil.copytree(whole, out)
    assert "finished" in train(out, "--resume").stderr
    assert_same_run(whole, out)
    train(out, "--resume", "--epochs=6")
    assert final(out).keys()
    steps = [json.loads(line)["step"] for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert steps == sorted(set(steps))
    assert (
        newest_checkpoint(out / "checkpoints").name > newest_checkpoint(whole / "checkpoints").name
    )


def test_a_run_is_not_overwritten(whole):
    done = train(whole, check=False)
    assert done.returncode == 2
    assert "already has a run" in done.stderr


@pytest.fixture
def saved(tmp_path):
    folder = tmp_path / "checkpoints"
    for step in (1, 2):
        tensors = {"a": torch.full((100,), float(step)), "b": torch.arange(step)}
        checkpoint.save(folder, tensors, Progress(step=step))
    return folder


def test_newest_valid_checkpoint_wins(saved):
    newest = saved / "step-00000002"
    assert newest_checkpoint(saved) == newest
    data = bytearray((newest / "state.safetensors").read_bytes())
    data[-1] ^= 1
    (newest / "state.safetensors").write_bytes(data)
    assert newest_checkpoint(saved).name == "step-00000001"
    (saved / "step-00000001" / "manifest.json").unlink()
    assert newest_checkpoint(saved) is None


@pytest.mark.parametrize("place", ["write_tensors", "write_text"])
def test_a_full_disk_leaves_the_checkpoint_before(saved, monkeypatch, place):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, place, full)
    with pytest.raises(WriteError, match="No space left"):
        checkpoint.save(saved, {"a": torch.zeros(3)}, Progress(step=3))
    assert newest_checkpoint(saved).name == "step-00000002"
    assert [path.name for path in saved.iterdir() if path.name.startswith(".")] == []
    tensors, progress = checkpoint.load(newest_checkpoint(saved))
    assert progress.step == 2
    assert torch.equal(tensors["a"], torch.full((100,), 2.0))


def test_only_the_last_and_the_best_are_kept(tmp_path):
    for step in range(1, 6):
        checkpoint.save(tmp_path, {"a": torch.zeros(1)}, Progress(step=step))
    (tmp_path / ".step-00000009.tmp").mkdir()
    checkpoint.prune(tmp_path, keep=2, best_step=1)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["step-00000001", "step-00000004", "step-00000005"]
