"""What predicts in fewer passes gives the same, and follows every change of a weight."""

import copy
import gc

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import vitreous
from vitreous.layers import convolution, packed
from vitreous.layers import linear as layers
from vitreous.models.resnet import pool_plain

needs_onednn = pytest.mark.skipif(not packed.has_onednn(), reason="a CPU without AVX-512")


@pytest.fixture
def narrow(monkeypatch):
    """Of any size, so that small ones are packed, too."""
    monkeypatch.setattr(layers, "WORK", 1)
    torch.manual_seed(0)
    return nn.Linear(96, 64), torch.randn(2, 9, 96)


def predicted(module, x):
    with torch.inference_mode():
        return layers.linear(x, module.weight, module.bias)


def wanted(module, x):
    with torch.no_grad():
        return F.linear(x, module.weight, module.bias)


def by_optimizer(module, x):
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    module(x).square().mean().backward()
    optimizer.step()


def by_data(module, x):
    module.weight.data.mul_(2)


def by_data_of_few(module, x):
    module.weight.data[:32] = 0


def by_state(module, x):
    module.load_state_dict(nn.Linear(96, 64).state_dict())


def by_assigned_state(module, x):
    module.load_state_dict(nn.Linear(96, 64).state_dict(), assign=True)


def by_another_tensor(module, x):
    module.weight.data = torch.randn(64, 96)


@needs_onednn
@pytest.mark.parametrize(
    "change",
    [by_optimizer, by_data, by_data_of_few, by_state, by_assigned_state, by_another_tensor],
)
def test_a_changed_weight_is_packed_again(narrow, change):
    module, x = narrow
    for _ in range(2):
        torch.testing.assert_close(predicted(module, x), wanted(module, x), rtol=1e-5, atol=1e-6)
    assert module.weight in packed._COPIES
    change(module, x)
    torch.testing.assert_close(predicted(module, x), wanted(module, x), rtol=1e-5, atol=1e-6)


@needs_onednn
def test_copies_of_a_module_are_their_own(narrow, tmp_path):
    module, x = narrow
    predicted(module, x)
    other = copy.deepcopy(module)
    with torch.no_grad():
        other.weight.mul_(3)
    torch.testing.assert_close(predicted(other, x), wanted(other, x), rtol=1e-5, atol=1e-6)
    torch.save(module, tmp_path / "module.pt")  # what is packed is no part of it
    assert (tmp_path / "module.pt").stat().st_size < 1.5 * module.weight.nbytes


@needs_onednn
def test_a_packed_weight_goes_with_its_weight(monkeypatch):
    monkeypatch.setattr(layers, "WORK", 1)
    gc.collect()
    before = len(packed._COPIES)
    module = nn.Linear(96, 64)
    predicted(module, torch.randn(2, 9, 96))
    assert len(packed._COPIES) == before + 1
    del module
    gc.collect()
    assert len(packed._COPIES) == before


def test_weights_of_inference_mode(narrow):
    """Their changes are not counted by torch, and nothing is kept of them."""
    _, x = narrow
    with torch.inference_mode():
        module = nn.Linear(96, 64)
        for _ in range(2):
            torch.testing.assert_close(predicted(module, x), wanted(module, x))
            module.weight.mul_(2)


@pytest.mark.parametrize("kind", ["frozen", "batch"])
@pytest.mark.parametrize("name", ["resnet-18", "resnet-50"])
def test_a_residual_network_in_few_passes(name, kind, monkeypatch):
    """Against the same network step by step, as it is while gradients are needed."""
    torch.manual_seed(0)
    monkeypatch.setattr(convolution, "WORK", 1)
    model = vitreous.create(name, classes=5, norm=kind, stages=(1, 1, 2, 1), width=16).eval()
    for module in model.modules():
        if hasattr(module, "running_mean"):
            nn.init.normal_(module.running_mean, std=0.1)
            nn.init.uniform_(module.running_var, 0.5, 2)
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, std=0.1)
    images = torch.randn(2, 3, 75, 50)

    def compare():
        expected = model(images).detach()
        with torch.inference_mode():
            found = model(images)
        assert (found - expected).abs().max() < 3e-6 * expected.abs().max()
        return expected

    before = compare()
    if kind == "batch":  # whose statistics change without torch's counting
        model.train()(images)
        model.eval()
        assert not torch.equal(compare(), before)


@pytest.mark.parametrize("size", [(8, 8), (9, 8), (7, 9), (1, 1), (2, 3), (1, 5)])
def test_pooling_by_rows_and_columns(size):
    x = torch.randn(2, 16, *size).contiguous(memory_format=torch.channels_last)
    with torch.inference_mode():
        assert torch.equal(pool_plain(x), F.max_pool2d(x, 3, 2, 1))
