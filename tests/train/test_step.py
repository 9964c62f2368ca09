"""One step of the loop: its random numbers, its precision."""

import pytest
import torch

from vitreous.data.decode.channels import as_channels
from vitreous.data.loader import train_batches
from vitreous.run_folder import Run
from vitreous.train.distributed import joined
from vitreous.train.recipe import Recipe
from vitreous.train.run import prepare

FIELDS = ("patch=4", "dim=16", "depth=1", "heads=2", "dropout=0.3", "drop_path=0.3")
SMALL = {"model": "vit", "fields": FIELDS, "image_size": (8,), "batch": 16, "lr": 1e-3, "epochs": 1}


@pytest.fixture
def trainer(tmp_path, request):
    recipe = Recipe(data="digits", **{**SMALL, **getattr(request, "param", {})})
    with joined("cpu") as world:
        yield prepare(recipe, Run(tmp_path), world, lambda text: None, lambda event: None)[0]


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

    compute = trainer.compute
    trainer.compute = lambda images: Look.apply(compute(images))
    trainer.step(0, first_batch(trainer))
    assert found == {"forward": True, "backward": False}


def test_luminance_is_computed_where_the_image_is():
    image = torch.empty(3, 4, 5, device="meta")
    assert as_channels(image, 1).device.type == "meta"
