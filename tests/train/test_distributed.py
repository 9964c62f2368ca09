"""Two processes do what one does: same samples, same losses; also when one of them is killed."""

import json
import os
import signal
import time

import pytest
import torch
from train.processes import end, in_ranks, start_elastic, start_ranks
from train.tiny import class_folder, command, final, teacher, train, trained

from vitreous.data.loader import train_batches
from vitreous.engines.world import World
from vitreous.errors import ConfigError
from vitreous.run_folder import Run
from vitreous.tasks import TASKS
from vitreous.train.distributed import joined
from vitreous.train.recipe import Recipe, default_recipe, find_recipe, read_recipe
from vitreous.train.run import prepare

DEFAULTS = {
    "classify": {"data": "classes"},
    "segment": {"data": "shapes:16", "task": "segment"},
    "detect": {"data": "shapes:16", "task": "detect"},
    "instance": {"data": "shapes:16", "task": "instance"},
    "mae": {"data": "classes", "method": "mae"},
    "lejepa": {"data": "classes", "method": "lejepa"},
    "distil": {"data": "classes", "method": "distil"},
}
"""Data for each task, whose model is chosen by default."""


def write_losses(options, folder):
    """Of the first two steps, as `losses-SIZE.json`."""
    base = default_recipe(None, None, options.get("method"))
    stored = {} if base is None else read_recipe(find_recipe(base))
    recipe = Recipe(**stored | options | {"batch": 8, "epochs": 1, "precision": "float32"})
    with joined("cpu") as world:
        trainer, _ = prepare(recipe, Run(folder / "none"), world)
        trainer.order.stop = 2
        batches = train_batches(trainer.train_set, trainer.order, 0)
        losses = [trainer.step(number, batch) for number, batch in enumerate(batches)]
        if world.is_first:
            (folder / f"losses-{world.size}.json").write_text(json.dumps(losses))


@pytest.mark.parametrize("task", DEFAULTS)
def test_default_models_learn_the_same_on_two_processes(tmp_path, task):
    """With batch norm, dropout, drop path, random masks and points, as one trains by default."""
    options = dict(DEFAULTS[task])
    if options["data"] == "classes":
        options["data"] = str(class_folder())
    if task == "distil":
        options["teacher"] = str(teacher())
    write_losses(options, tmp_path)
    in_ranks(write_losses, options, tmp_path)
    one, two = (json.loads((tmp_path / f"losses-{n}.json").read_text()) for n in (1, 2))
    assert len(one) == 2
    assert two == pytest.approx(one, rel=1e-5)


def run_two(out, *more, task="classify"):
    printed = out.with_suffix(".txt")
    processes = start_ranks(command(out, *more, task=task), printed)
    codes = [end(process) for process in processes]
    assert codes == [0, 0], printed.with_suffix(".0").read_text()[-3000:]


@pytest.fixture(scope="module")
def one():
    return trained()


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "two"
    run_two(out)
    return out


def test_losses_agree_with_one_process(one, two):
    for alone, together in zip(Run(one).metrics(), Run(two).metrics(), strict=True):
        assert together["train_loss"] == pytest.approx(alone["train_loss"], rel=1e-5)
        assert together["loss"] == pytest.approx(alone["loss"], rel=1e-4)
        assert together["samples"] == alone["samples"]


@pytest.mark.parametrize(
    "how",
    [
        ["--set-recipe=unfreeze_after=1", "--set-recipe=checkpoint=true"],
        ["--freeze=!head.*", "--crop=none", "--set-recipe=mixup=0"],
    ],
)
def test_what_is_trained_later_or_on_stored_features(tmp_path, how):
    """DDP wraps another set of parameters then, or the head alone; blocks may be computed again."""
    train(tmp_path / "one", "--epochs=2", *how)
    run_two(tmp_path / "two", "--epochs=2", *how)
    for alone, together in zip(*(Run(tmp_path / n).metrics() for n in ("one", "two")), strict=True):
        assert together["train_loss"] == pytest.approx(alone["train_loss"], rel=1e-5)
        assert together["loss"] == pytest.approx(alone["loss"], rel=1e-4)
    one, two = final(tmp_path / "one"), final(tmp_path / "two")
    for name in one:
        torch.testing.assert_close(two[name], one[name], rtol=1e-3, atol=1e-4)


PIXELS = ("samples", "knn_pixels", "linear_pixels")
RUNS = {  # what both count alike, how near the losses stay, and the metric
    "segment": (("pixels",), 2e-3, "miou"),
    # later, rounding may decide which of two like queries is matched with an object
    "detect": (("objects",), 2e-3, "ap"),
    "instance": (("samples", "objects"), 2e-3, None),
    **dict.fromkeys(("mae", "lejepa", "distil"), (PIXELS, 0.0001, None)),
}


@pytest.mark.parametrize("task", RUNS)
def test_other_tasks_on_two_processes(tmp_path, task):
    """Pixels that are not ignored, and objects, are in different numbers on each; both draw the
    points and masks that one draws, and SIGReg is about the images of both. Features are computed
    in parts. Metrics of both are put together."""
    counted, near, metric = RUNS[task]
    more = [f"--epochs={2 if metric else 1}", "--set-recipe=log_every=1"]
    train(tmp_path / "one", *more, task=task)
    run_two(tmp_path / "two", *more, task=task)
    one, two = (Run(tmp_path / name).metrics() for name in ("one", "two"))
    first = 4 if task in TASKS else len(one)
    for alone, together in zip(one[:first], two[:first], strict=True):
        assert together.keys() == alone.keys()
        assert together["loss"] == pytest.approx(alone["loss"], rel=1e-5 if task in TASKS else 1e-4)
    alone, together = one[-1], two[-1]
    assert together.keys() == alone.keys()
    assert together["train_loss"] == pytest.approx(alone["train_loss"], rel=near)
    for name in counted:
        assert together[name] == alone[name]
    if metric is not None:
        assert together[metric] == pytest.approx(alone[metric], abs=1e-3)


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
    processes = start_ranks(command(out), tmp_path / "printed")
    wait_for_checkpoint(out, processes[0].is_alive)
    for process in processes:
        process.kill()
    assert [end(process) for process in processes] == [-signal.SIGKILL] * 2
    train(out, "--resume")
    for name, value in final(one).items():
        # a key's bias changes nothing: its gradient is rounding, of which AdamW makes whole steps
        near = 1e-3 if name.endswith("qkv.bias") else 1e-4
        torch.testing.assert_close(final(out)[name], value, rtol=1e-3, atol=near)


def test_ranks_that_die_are_started_again(two, tmp_path):
    """torchrun restarts all processes; they go on where the run was, to the same bits. First one
    that only computes dies, then the one that writes. Without --out, in the same folder."""
    out = tmp_path / "runs" / "classes"
    given = [word for word in command(out) if not word.startswith("--out")]
    printed = tmp_path / "printed"
    process = start_elastic(given, printed, tmp_path)
    for rank in (1, 0):
        wait_for_checkpoint(out, process.is_alive)
        os.kill(int((tmp_path / f"rank-{rank}").read_text()), signal.SIGKILL)
    assert end(process) == 0, printed.read_text()[-3000:]
    assert printed.read_text().count("resumed at step") == 2
    first, second = final(two), final(out)
    assert [name for name in first if not torch.equal(first[name], second[name])] == []
    assert Run(out).metrics() == Run(two).metrics()
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["classes"]
    assert not (out / ".claim").exists()


@pytest.mark.parametrize("how", ["--recompute", "--set-recipe=checkpoint=true"])
def test_sharded_model_trains_alike(tmp_path, how):
    """FSDP2 divides the model; losses are those of one process, by AdamW (Muon needs whole
    matrices)."""
    out, whole = tmp_path / "sharded", tmp_path / "whole"
    run_two(out, "--set-recipe=shard=true", "--ema=0", how)
    train(whole, "--optimizer=adamw", "--ema=0")
    for sharded, copied in zip(Run(out).metrics(), Run(whole).metrics(), strict=True):
        assert sharded["train_loss"] == pytest.approx(copied["train_loss"], rel=1e-4)


def test_a_batch_that_does_not_divide(tmp_path):
    """Known before the processes meet."""
    recipe = Recipe(data=str(class_folder()), batch=65, epochs=1, precision="float32")
    first_of_two = World(0, 2, torch.device("cpu"))
    with pytest.raises(ConfigError, match=r"65.*2 processes.*multiple of 2"):
        prepare(recipe, Run(tmp_path / "run"), first_of_two)
