"""Ctrl-C: what happens is said at once, nothing is lost, and the run can be resumed at once."""

import signal

import pytest
from train.tiny import class_folder, train, vitreous_command
from train.undrawn import undrawn

import vitreous.train.run
from vitreous.engines.world import ALONE
from vitreous.run_folder import Run, newest_checkpoint
from vitreous.train import checkpoint
from vitreous.train.claim import claimed
from vitreous.train.recipe import Recipe
from vitreous.train.stop import StoppedError

RECIPE = Recipe(
    data=str(class_folder()),
    model="vit",
    fields=("depth=1", "dim=16", "heads=2", "patch=4"),
    image_size=(8, 8),
    epochs=2,
    batch=80,
    precision="float32",
)


class Told:
    """What people are shown."""

    def __init__(self):
        self.lines, self.counts = [], []

    def tell(self, text):
        self.lines.append(text)

    def evaluated(self, done, total):
        self.counts.append((done, total))


@pytest.fixture(autouse=True)
def usual_ctrl_c():
    """Also where the suite was started in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler


def fit(out, show, **callbacks):
    return vitreous.train.run.train(RECIPE, out, show=show, **callbacks)


def check_free(path):
    """Nobody else is training there."""
    with claimed(path, "classes", ALONE):
        pass


def press(run, source):
    check_free(run.path)
    signal.raise_signal(signal.SIGINT)


def test_while_the_report_is_written(tmp_path):
    show = Told()
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path / "run", show, report=press)
    assert show.lines == [
        "stopping: the weights are safe, the report is not written: vitreous train --resume --out "
        f"{tmp_path / 'run'} writes it"
    ]
    assert Run(tmp_path / "run").has_weights
    with undrawn():
        printed = vitreous_command("train", "--resume", "--out", tmp_path / "run")
    assert "this run is finished" in printed.stderr
    assert (tmp_path / "run" / "report.html").exists()


def test_in_training_and_again_in_the_report_of_what_was_saved(tmp_path):
    show, out = Told(), tmp_path / "run"

    def watch(event):
        if event.step == 3:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(StoppedError, match=r"stopped at step 3 of 4 and saved.*--resume") as caught:
        fit(out, show, watch=watch, report=press)
    assert caught.value.code == 128 + signal.SIGINT
    assert "stopping when this step is done and saved" in show.lines[0]
    assert show.lines[0].endswith("loses what was learned after step 2")
    assert "the weights are safe" in show.lines[1]
    assert checkpoint.load(newest_checkpoint(out / "checkpoints"))[1].step == 3


def test_twice_in_training_leaves_at_once_and_keeps_the_last_checkpoint(tmp_path):
    show, out, said = Told(), tmp_path / "run", []

    def watch(event):
        if event.step == 3:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        fit(out, show, watch=watch, log=said.append)
    assert said[-1].endswith(f"vitreous train --resume --out {out} continues after step 2")
    assert checkpoint.load(newest_checkpoint(out / "checkpoints"))[1].step == 2
    check_free(out)


def test_evaluations_show_how_far_they_are(tmp_path):
    show = Told()
    fit(tmp_path / "run", show)
    assert show.counts == [(0, 20), (20, 20)] * 2


def test_what_follows_the_last_step_is_said(tmp_path):
    lines = train(tmp_path / "run", "--epochs=1").stderr.splitlines()
    last = next(number for number, line in enumerate(lines) if "0 s to go" in line)
    after = "\n".join(lines[last:])
    for what in (
        "evaluating the best weights on test, 20 images",
        "training images, to compare with test",
        "drawing",
    ):
        assert what in after
