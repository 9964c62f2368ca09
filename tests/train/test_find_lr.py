"""The advised learning rate trains about as well as the best of a sweep."""

import math

import pytest
import torch

from vitreous.cli.main import main
from vitreous.tasks.classify.task import Classify
from vitreous.train import rehearsal
from vitreous.train.recipe import Recipe
from vitreous.train.rehearsal import find_lr
from vitreous.train.run import train
from vitreous.train.trainer import TrainingError

SWEEP = [10 ** (-5 + 4 * i / 6) for i in range(7)]  # from 1e-5 to 1e-1
ENCODER = ("patch=8", "dim=32", "depth=1", "heads=2")
RECIPES = {
    "digits": {
        "model": "vit",
        "fields": ("patch=4", "dim=32", "depth=2", "heads=2"),
        "image_size": (8, 8),
        "batch": 32,
        "epochs": 2,
    },
    "shapes": {
        "data": "shapes:100",
        "task": "segment",
        "model": "segmenter",
        "fields": ("encoder=vit", "decoder=linear", *(f"encoder.{each}" for each in ENCODER)),
        "image_size": (64, 64),
        "batch": 8,
        "epochs": 5,
    },
}


@pytest.mark.parametrize("data", RECIPES)
def test_advice_is_near_the_best_of_a_sweep(data, tmp_path):
    """Among the best two of eight, or less than a tenth of the largest fall of the loss behind."""
    recipe = {**RECIPES[data], "crop": "none", "ema": 0.0, "workers": 0}
    advised, tried = find_lr(Recipe(**recipe), lambda text: None)
    assert advised in dict(tried)

    def loss(lr):
        run = train(Recipe(**recipe, lr=lr), tmp_path / f"{lr}")
        return run.metrics()[-1]["train_loss"]

    losses, own = [loss(lr) for lr in SWEEP], loss(advised)
    better = sum(other < own for other in losses)
    behind = (own - min(losses)) / (losses[0] - min(losses))
    assert better <= 1 or behind < 0.1, (advised, own, losses)


def short_runs(monkeypatch, loss):
    """Makes the loss at the end of a short run a function of the learning rate."""
    monkeypatch.setattr(rehearsal, "_short_run", lambda *given: loss(given[-1]))


def test_of_a_plateau_the_lowest_learning_rate_is_advised(monkeypatch):
    short_runs(monkeypatch, lambda lr: 2.0 if lr < 5e-4 else 1.0 if lr < 0.05 else 0.99)
    assert find_lr(Recipe(), lambda text: None)[0] == pytest.approx(1e-3)


def test_a_learning_rate_at_which_the_loss_overflows_is_not_advised(monkeypatch):
    short_runs(monkeypatch, lambda lr: math.inf if lr > 2e-5 else 1.0 - 1e4 * lr)
    assert find_lr(Recipe(), lambda text: None)[0] == pytest.approx(1e-5)


def test_a_loss_that_is_never_finite_is_an_error(monkeypatch):
    nan = float("nan")
    monkeypatch.setattr(Classify, "_cross_entropy", lambda self, logits, t: logits.sum() * nan)
    with pytest.raises(TrainingError, match="not finite"):
        find_lr(Recipe(**RECIPES["digits"]), lambda text: None)


def test_the_command_prints_what_was_tried_and_the_advice(monkeypatch, capsys):
    short_runs(monkeypatch, lambda lr: abs(math.log10(lr) + 3))
    assert main(["train", "--lr-find"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 8
    assert "1.0e-03" in printed[-1]


@pytest.mark.parametrize(("batch", "head_alone"), [(32, 8), (256, 5)])
def test_every_learning_rate_trains_what_the_run_does_at_first(monkeypatch, batch, head_alone):
    """With `unfreeze_after` the head alone, at each rate as long as in the run itself."""
    trained = []

    def zero_grad(self, **options):
        trained.append(sum(p.requires_grad for g in self.param_groups for p in g["params"]))

    monkeypatch.setattr(torch.optim.AdamW, "zero_grad", zero_grad)
    recipe = RECIPES["digits"] | {"batch": batch, "unfreeze_after": 1}
    find_lr(Recipe(**recipe, optimizer="adamw"), lambda text: None, steps=8)
    runs = [trained[first : first + 8] for first in range(0, len(trained), 8)]
    expected = [2] * head_alone + [max(trained)] * (8 - head_alone)
    assert len(runs) == 7
    assert all(run == expected for run in runs)
    assert (max(trained) > 2) == (head_alone < 8)
