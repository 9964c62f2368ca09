"""A run folder belongs to one job. What is in it can be reached and is clean."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from shared import refused
from train.tiny import class_folder, trained

import vitreous
from vitreous.cli.main import main
from vitreous.engines.world import World
from vitreous.errors import CheckpointError, ConfigError
from vitreous.run_folder import Run, newest_checkpoint
from vitreous.train.claim import claimed
from vitreous.weights.io.files import read_tensors

ALONE = World(0, 1, torch.device("cpu"))


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def names(folder="runs"):
    return sorted(path.name for path in (vitreous.run_folder.Path(folder)).iterdir())


def test_jobs_that_start_together_get_folders_of_their_own(tmp_path):
    def job(number):
        with claimed(None, "digits", ALONE) as claim:
            (claim.run.path / "mine").write_text(str(number))
            claim.begun = True
            return claim.run.path, number

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(job, range(8)))
    assert len({path for path, _ in found}) == 8
    assert all((path / "mine").read_text() == str(number) for path, number in found)
    assert names() == ["digits", *(f"digits-{number}" for number in range(2, 9))]


def test_a_folder_that_is_trained_in_is_refused(tmp_path):
    out = tmp_path / "run"
    refused = pytest.raises(ConfigError, match=r"run.*another process")
    with claimed(out, "digits", ALONE), refused, claimed(out, "digits", ALONE):
        pass
    assert not out.exists()  # nothing was begun
    with claimed(out, "digits", ALONE):
        pass


def test_a_job_that_is_started_again_finds_its_folder(monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")

    def crash():
        with claimed(None, "digits", ALONE) as claim:
            claim.begun = True
            (claim.run.path / "config.json").write_text("{}")
            raise RuntimeError(claim.run.path)

    with pytest.raises(RuntimeError) as first:
        crash()
    with claimed(None, "digits", ALONE) as other:  # another job has begun meanwhile
        assert other.run.path.name == "digits-2"
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    with pytest.raises(RuntimeError) as second:
        crash()
    assert str(first.value) == str(second.value)


def test_an_error_before_training_leaves_nothing(tmp_path):
    assert main(["train", str(class_folder()), "--set=depth=0", "--model=vit"]) == 2
    assert main(["train", str(class_folder()), "--model=vot", "--out", "runs/mine"]) == 2
    assert not list(tmp_path.glob("runs/*"))


@pytest.fixture
def run(tmp_path):
    return shutil.copytree(
        trained("classify", "--epochs=2", "--set-recipe=keep=1"), tmp_path / "run"
    )


def test_the_last_weights_and_those_of_a_checkpoint_can_be_used(run, capsys):
    last = newest_checkpoint(run / "checkpoints")
    state = read_tensors(last / "state.safetensors").tensors
    for name in (f"{run}@last", last, f"{last}/"):
        model = vitreous.load(name).model
        for key, value in model.state_dict().items():
            assert torch.equal(value, state[f"average.{key}"])
    capsys.readouterr()
    image = next(class_folder().rglob("*.png"))
    for words in (["evaluate"], ["predict", str(image)], ["explain", str(image), "--out=x"]):
        assert main([words[0], f"{run}@last", *words[1:]]) == 0
    assert main(["train", str(class_folder()), f"--weights={run}@last", "--epochs=1"]) == 0
    assert "step-99999999" in refused("evaluate", run / "checkpoints" / "step-99999999")
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(CheckpointError, match="@last"):
        vitreous.load(f"{run}@last")
    with pytest.raises(ConfigError, match="nowhere"):
        vitreous.load("nowhere@last")


def test_what_a_killed_run_was_writing_is_removed(run):
    for name in (".vitreous-0123.tmp", ".config.json.tmp", "checkpoints/.step-00000009.tmp/x"):
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).write_text("half")
    assert main(["train", "--resume", "--out", str(run), "--epochs=3"]) == 0
    assert not list(run.rglob("*.tmp*"))


def test_evaluations_before_the_first_checkpoint_are_not_doubled(run):
    shutil.rmtree(run / "checkpoints")
    assert main(["train", "--resume", "--out", str(run)]) == 0
    steps = [line["step"] for line in Run(run).metrics() if line["kind"] == "evaluation"]
    assert steps == sorted(set(steps))


def test_a_finished_run_gets_lost_weights_back(run):
    before = read_tensors(run / "model.safetensors").tensors
    (run / "model.safetensors").unlink()
    assert f"--resume --out {run}" in refused("evaluate", run)
    assert main(["train", "--resume", "--out", str(run)]) == 0
    after = read_tensors(run / "model.safetensors").tensors
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize(
    "progress", ["[]", "null", '{"step": "x"}', '{"unknown": 1}', "{", "[" * 100_000]
)
def test_forged_progress_is_refused(run, progress):
    from vitreous.run_folder import MANIFEST, describe_file

    last = newest_checkpoint(run / "checkpoints")
    (last / "progress.json").write_text(progress)
    files = {name: describe_file(last / name) for name in ("state.safetensors", "progress.json")}
    (last / MANIFEST).write_text(json.dumps(files))
    assert main(["train", "--resume", "--out", str(run), "--epochs=3"]) == 2


def test_a_forged_config_takes_no_memory(run):
    """The checkpoint bounds the size of the model when a run is resumed, too."""
    file = run / "config.json"
    values = json.loads(file.read_text())
    values["config"]["dim"] = 2**24
    file.write_text(json.dumps(values))
    (run / "model.safetensors").unlink()
    assert "has only" in refused("train", "--resume", "--out", run, "--epochs=3")


def test_metrics_that_cannot_be_read_are_left_out(run):
    (run / "metrics.jsonl").write_bytes(b"\xff\xfe{}\n[1]\n" + b"[" * 99_999)
    assert main(["train", "--resume", "--out", str(run), "--epochs=3"]) == 0
    assert [line["epoch"] for line in Run(run).metrics() if line["kind"] == "evaluation"] == [3]
