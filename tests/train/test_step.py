"""One step of the loop: its random numbers, its precision."""

import math

import pytest
import torch
from train.tiny import prepared

from vitreous.data.decode.pixels import as_channels
from vitreous.data.loader import train_batches
from vitreous.train.recipe import Recipe
from vitreous.train.trainer import TrainingError

FIELDS = ("patch=4", "dim=16", "depth=1", "heads=2", "dropout=0.3", "drop_path=0.3")
SMALL = {"model": "vit", "fields": FIELDS, "image_size": (8,), "batch": 16, "lr": 1e-3, "epochs": 1}


@pytest.fixture
def trainer(tmp_path, request):
    recipe = Recipe(data="digits", **{**SMALL, **getattr(request, "param", {})})
    return prepared(recipe, tmp_path)[0]


def first_batch(trainer):
    trainer.order.start, trainer.order.stop = 0, 1
    return next(train_batches(trainer.train_set, trainer.order, 0))


def test_every_devices_generator_is_seeded_by_the_step(trainer, monkeypatch):
    """Dropout draws on the device; here is none, so the calls that would seed it are counted."""
    seeds = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)
    batch = first_batch(trainer)
    for step in (0, 1, 0):
        trainer.step(step, batch)
    assert len(seeds) == 3
    assert seeds[0] == seeds[2] != seeds[1]


@pytest.mark.parametrize("trainer", [{"precision": "bfloat16"}], indirect=True)
def test_the_backward_is_outside_of_autocast(trainer):
    found = {}

    class Look(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            found["forward"] = torch.is_autocast_enabled("cpu")
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            found["backward"] = torch.is_autocast_enabled("cpu")
            return gradient

    learner = trainer.learner
    compute = learner.compute
    learner.compute = lambda images: Look.apply(compute(images))
    trainer.step(0, first_batch(trainer))
    assert found == {"forward": True, "backward": False}


@pytest.mark.parametrize("allowed", [0, 1])
def test_detection_skips_steps_that_are_not_finite(tmp_path, allowed):
    """The option holds for every task, and the image is named."""
    fields = ("queries=4", "dim=16", "heads=2", "mlp_dim=16", "encoder_depth=1", "decoder_depth=2")
    parts = ("backbone=resnet", "backbone.block=basic", "backbone.stages=[1]", "backbone.width=8")
    small = {"model": "detr-small", "fields": (*fields, *parts), "image_size": (64,), "batch": 8}
    recipe = Recipe(data="shapes:16", task="detect", **{**SMALL, **small}, skip_nonfinite=allowed)
    trainer, told = prepared(recipe, tmp_path)[0], []
    trainer.log = told.append
    batch = first_batch(trainer)
    bad = next(i for i, target in enumerate(batch.targets) if len(target["boxes"]))
    batch.targets[bad]["boxes"][0, 0] = float("nan")
    if allowed:
        assert not math.isfinite(trainer.step(0, batch))
        assert batch.ids[bad] in told[-1]
        assert trainer.progress.skipped == 1
    else:
        with pytest.raises(TrainingError, match=rf"{batch.ids[bad]}: the boxes in the data"):
            trainer.step(0, batch)


def test_luminance_is_computed_where_the_image_is():
    image = torch.empty(3, 4, 5, device="meta")
    assert as_channels(image, 1).device.type == "meta"
