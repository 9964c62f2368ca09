"""The fused linear layer is the layer, and is used only where nothing else is asked for."""

import contextlib

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from vitreous.layers import linear as layers
from vitreous.layers.onednn import has_onednn

needs_onednn = pytest.mark.skipif(not has_onednn(), reason="a CPU without AVX-512")


@pytest.fixture
def wide():
    torch.manual_seed(0)
    return torch.randn(2, 5, 256), torch.randn(384, 256) / 16, torch.randn(384)


@pytest.mark.parametrize("biased", [True, False])
def test_both_ways_agree(wide, biased):
    x, weight, bias = wide
    bias = bias if biased else None
    expected = F.linear(x, weight, bias)
    with torch.inference_mode():
        torch.testing.assert_close(layers.linear(x, weight, bias), expected, rtol=1e-5, atol=1e-5)
        found = layers.linear_gelu(x, weight, bias)
    torch.testing.assert_close(found, F.gelu(expected), rtol=1e-5, atol=1e-5)


def test_rows_that_are_a_part_of_a_weight(wide):
    """Attention makes queries alone from the first rows, keys from those behind."""
    x, weight, bias = wide
    with torch.inference_mode():
        found = layers.linear(x[:, :2], weight[128:256], bias[128:256])
    expected = F.linear(x[:, :2], weight[128:256], bias[128:256])
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@needs_onednn
def test_it_is_used_to_predict(wide):
    x, weight, _ = wide
    with torch.no_grad():
        assert layers.fused(x, weight)


@needs_onednn
def test_it_is_not_used_where_others_know_better(wide):
    x, weight, _ = wide
    assert not layers.fused(x, weight)  # with gradients
    with torch.no_grad():
        assert not layers.fused(x[..., :64], weight[:, :64])
        assert not layers.fused(x.bfloat16(), weight.bfloat16())
        with torch.autocast("cpu", torch.bfloat16):
            assert not layers.fused(x, weight)


def test_operations_are_counted(wide):
    x, weight, bias = wide
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        layers.linear(x, weight, bias)
    assert counter.get_total_flops() == 2 * 10 * 256 * 384


def test_gradients_flow(wide):
    x, weight, bias = wide
    weight.requires_grad_()
    layers.linear_gelu(x, weight, bias).sum().backward()
    assert weight.grad is not None


@needs_onednn
@pytest.mark.parametrize("biased", [True, False])
def test_a_training_step_has_torchs_gradients(wide, biased):
    x, weight, bias = (each.requires_grad_() for each in wide)
    given = (x, weight, bias) if biased else (x, weight)
    found, expected = [], []
    for gradients, step in ((found, layers.training_step), (expected, contextlib.nullcontext)):
        with step():
            output = layers.linear(x, weight, bias if biased else None)
        gradients += torch.autograd.grad(output.square().sum(), given)
    assert "_WithBackward" not in str(output.grad_fn)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
