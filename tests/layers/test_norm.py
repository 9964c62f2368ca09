"""LayerNorm or BatchNorm in the blocks of a ViT."""

import copy

import pytest
import torch
import torch.nn.functional as F
from compare import perturb
from runs import VIT, made
from shared import refused
from sklearn.datasets import load_digits
from torch import nn

import vitreous
from vitreous.engines.accelerate import accelerate
from vitreous.errors import ConfigError
from vitreous.layers.uncommon import BatchNorm, BatchNormConfig
from vitreous.models import configure
from vitreous.train import distributed
from vitreous.train.optimizer import Average

TINY = {"image_size": 16, "patch": 4, "dim": 16, "depth": 2, "heads": 2, "mlp_dim": 32}


def tiny(**fields):
    torch.manual_seed(0)
    return perturb(vitreous.create("vit", **{**TINY, "classes": 5, "norm": "batch", **fields}))


def both():
    ours = BatchNormConfig(momentum=0.3).make(6, 1e-3)
    theirs = nn.BatchNorm1d(6, eps=1e-3, momentum=0.3)
    perturb(ours)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


@pytest.mark.parametrize("training", [True, False])
def test_it_is_batch_norm_over_batch_and_tokens(training):
    ours, theirs = (each.train(training) for each in both())
    x = torch.randn(4, 7, 6) * 3 + 1
    found, wanted = ours(x), theirs(x.reshape(28, 6)).reshape(4, 7, 6)
    torch.testing.assert_close(found, wanted)
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], value)


def test_with_several_processes_it_is_the_same(monkeypatch):
    """Here one: what is summed over processes stays as it is."""
    monkeypatch.setattr(distributed, "all_reduce", lambda values: values)
    ours = both()[0].train()
    alone = copy.deepcopy(ours)
    distributed.synchronise_batch_norms(ours)
    x = torch.randn(4, 7, 6) * 3 + 1
    torch.testing.assert_close(ours(x), alone(x))
    torch.testing.assert_close(ours.running_var, alone.running_var)
    torch.testing.assert_close(ours.eval()(x), alone.eval()(x))


def test_the_norms_of_blocks_alone():
    model = tiny()
    assert all(type(each.norm1) is type(each.norm2) is BatchNorm for each in model.blocks)
    assert type(model.norm) is nn.LayerNorm
    assert model.blocks[0].norm1.eps == 1e-6
    images = torch.randn(3, 3, 16, 16)
    single = torch.cat([model(image[None]) for image in images])
    torch.testing.assert_close(model(images), single, rtol=1e-4, atol=1e-5)


def test_the_average_of_weights_has_the_statistics():
    model = tiny().train()
    average = Average(model, 0.5)
    model(torch.randn(8, 3, 16, 16))
    average.update(model, 10)
    name = "blocks.0.norm1.running_mean"
    before, now = tiny().state_dict()[name], model.state_dict()[name]
    torch.testing.assert_close(average.state[name], (before + now) / 2)


def test_names_of_before():
    config = configure("vit", norm="post")[1]
    assert (config.norm.kind, config.norm.place) == ("layer", "post")
    config = configure("vit", norm="batch", **{"norm.place": "post", "norm.momentum": 0.2})[1]
    assert (config.norm.place, config.norm.momentum) == ("post", 0.2)
    with pytest.raises(ConfigError, match=r"norm.momentum .*is for norm = 'batch'"):
        configure("vit", **{"norm.momentum": 0.2})
    with pytest.raises(ConfigError, match="a number above 0"):
        configure("vit", norm="batch", **{"norm.momentum": 0.0})


def test_it_learns_digits():
    """In eval mode, what it has learned holds by the running statistics."""
    pixels, digits = load_digits(return_X_y=True)
    images = torch.tensor(pixels[:300]).float().reshape(-1, 1, 8, 8) / 8 - 1
    digits = torch.tensor(digits[:300])
    torch.manual_seed(0)
    fields = {**TINY, "image_size": 8, "patch": 2, "dim": 32, "channels": 1, "classes": 10}
    model = accelerate(vitreous.create("vit", **fields, norm="batch")).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for step in range(45):
        rows = torch.arange(step % 3, 300, 3)
        optimizer.zero_grad()
        F.cross_entropy(model(images[rows]), digits[rows]).backward()
        optimizer.step()
    assert F.cross_entropy(model.eval()(images), digits) < 1.6


def test_no_other_library_has_it(tmp_path):
    run = made(tmp_path / "run", "classify", "vit", **VIT, norm="batch")
    said = refused("convert", run, tmp_path / "x.safetensors", "--from", "vitreous", "--to", "timm")
    assert "norm = 'batch' (no published library has it)" in said
    done = vitreous.export(run, tmp_path / "model.pt2", log=lambda text: None)
    assert done.agreement == 1
