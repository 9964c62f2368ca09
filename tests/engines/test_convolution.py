"""A residual network that predicts in few passes gives what it gives step by step, and follows
every change of its weights."""

import copy
import gc

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import vitreous
from vitreous.engines import convolution, onednn
from vitreous.engines.accelerate import accelerate

needs_onednn = pytest.mark.skipif(not onednn.has_onednn(), reason="a CPU without AVX-512")
FACTOR, SUMMAND = torch.linspace(0.5, 2, 64), torch.linspace(-1, 1, 64)


@pytest.fixture(autouse=True)
def any_size(monkeypatch):
    """Small ones, too."""
    monkeypatch.setattr(convolution, "WORK", 1)
    torch.manual_seed(0)


def made():
    images = torch.randn(2, 32, 9, 7).contiguous(memory_format=torch.channels_last)
    return nn.Conv2d(32, 64, 3, stride=2, padding=1, bias=False), images


def predicted(conv, x):
    with torch.inference_mode():
        return convolution.folded(conv, FACTOR, SUMMAND, x)


def wanted(conv, x):
    weight = conv.weight.detach() * FACTOR[:, None, None, None]
    return F.conv2d(x, weight, SUMMAND, conv.stride, conv.padding)


def by_optimizer(conv, x):
    optimizer = torch.optim.SGD(conv.parameters(), lr=1.0)
    conv(x).square().mean().backward()
    optimizer.step()


def by_data(conv, x):
    conv.weight.data.mul_(2)


def by_data_of_some(conv, x):
    conv.weight.data[:32] = 0


def by_state(conv, x):
    conv.load_state_dict(made()[0].state_dict())


def by_assigned_state(conv, x):
    conv.load_state_dict(made()[0].state_dict(), assign=True)


def by_another_tensor(conv, x):
    conv.weight.data = torch.randn(64, 32, 3, 3)


@needs_onednn
@pytest.mark.parametrize(
    "change",
    [by_optimizer, by_data, by_data_of_some, by_state, by_assigned_state, by_another_tensor],
)
def test_a_changed_weight_is_packed_again(change):
    conv, x = made()
    for _ in range(2):
        torch.testing.assert_close(predicted(conv, x), wanted(conv, x), rtol=1e-5, atol=1e-6)
    assert conv.weight in onednn._COPIES
    change(conv, x)
    torch.testing.assert_close(predicted(conv, x), wanted(conv, x), rtol=1e-5, atol=1e-6)


@needs_onednn
def test_copies_of_a_module_are_their_own(tmp_path):
    conv, x = made()
    predicted(conv, x)
    other = copy.deepcopy(conv)
    with torch.no_grad():
        other.weight.mul_(3)
    torch.testing.assert_close(predicted(other, x), wanted(other, x), rtol=1e-5, atol=1e-6)
    torch.save(conv, tmp_path / "conv.pt")  # what is packed is no part of it
    assert (tmp_path / "conv.pt").stat().st_size < 1.5 * conv.weight.nbytes


@needs_onednn
def test_a_packed_weight_goes_with_its_weight():
    gc.collect()
    before = len(onednn._COPIES)
    conv, x = made()
    predicted(conv, x)
    assert len(onednn._COPIES) == before + 1
    del conv
    gc.collect()
    assert len(onednn._COPIES) == before


def test_weights_of_inference_mode():
    """Torch does not count their changes, and nothing is kept of them."""
    with torch.inference_mode():
        conv, x = made()
        for _ in range(2):
            torch.testing.assert_close(predicted(conv, x), wanted(conv, x))
            conv.weight.mul_(2)


def small(name, norm):
    model = vitreous.create(name, classes=5, norm=norm, stages=(1, 1, 2, 1), width=16).eval()
    accelerate(model)
    for module in model.modules():
        if hasattr(module, "running_mean"):
            nn.init.normal_(module.running_mean, std=0.1)
            nn.init.uniform_(module.running_var, 0.5, 2)
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, std=0.1)
    return model


@pytest.mark.parametrize("norm", ["frozen", "batch"])
@pytest.mark.parametrize("name", ["resnet-18", "resnet-50"])
def test_a_network_in_few_passes(name, norm):
    """Against the same one step by step, as it is while gradients are needed."""
    model, images = small(name, norm), torch.randn(2, 3, 75, 50)

    def compare():
        expected = model(images).detach()
        with torch.inference_mode():
            found = model(images)
        assert (found - expected).abs().max() < 3e-6 * expected.abs().max()
        return expected

    before = compare()
    if norm == "batch":  # torch does not count how its statistics change
        model.train()(images)
        model.eval()
        assert not torch.equal(compare(), before)


def test_what_somebody_watches_is_not_written_over():
    model, images = small("resnet-50", "frozen"), torch.randn(2, 3, 64, 64)
    seen = []
    model.stages[2][0].register_forward_hook(lambda module, given, found: seen.append(found))
    expected = model.stages[2][0](model.stages[1](model.stages[0](model.root(images))))
    with torch.inference_mode():
        tokens = model.tokens(images, blocks=[0, 1, 2])
        again = model.tokens(images, blocks=[0, 1, 2])
    torch.testing.assert_close(seen[1], seen[0].detach(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(seen[1], expected.detach(), rtol=1e-4, atol=1e-5)
    assert all(torch.equal(one, other) for one, other in zip(tokens, again, strict=True))
