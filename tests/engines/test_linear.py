"""oneDNN's linear layer is the layer, and is used only where nothing else is asked for."""

import contextlib

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from vitreous.engines.accelerate import accelerate
from vitreous.engines.linear import is_faster, put_on_linears, training_step
from vitreous.engines.onednn import has_onednn
from vitreous.layers.cross_attention import CrossAttention
from vitreous.layers.mlp import Mlp

needs_onednn = pytest.mark.skipif(not has_onednn(), reason="a CPU without AVX-512")


@pytest.fixture
def wide():
    """An MLP, and tokens for it."""
    torch.manual_seed(0)
    return accelerate(Mlp(256, 384)), torch.randn(2, 5, 256)


@torch.inference_mode()
def test_an_mlp_to_predict(wide):
    mlp, x = wide
    expected = F.linear(x, mlp.fc1.weight, mlp.fc1.bias)
    torch.testing.assert_close(mlp.fc1(x), expected, rtol=1e-5, atol=1e-5)
    expected = F.linear(F.gelu(expected), mlp.fc2.weight, mlp.fc2.bias)
    torch.testing.assert_close(mlp(x), expected, rtol=1e-5, atol=1e-5)


@torch.inference_mode()
def test_some_rows_of_a_weight():
    attention = accelerate(CrossAttention(256, 4, 64))
    x, qkv = torch.randn(2, 5, 256), attention.qkv
    expected = F.linear(x, qkv.weight, qkv.bias)[..., 256:512]
    torch.testing.assert_close(qkv(x, slice(256, 512)), expected, rtol=1e-5, atol=1e-5)


@needs_onednn
def test_where_it_is_used(wide):
    mlp, x = wide
    weight = mlp.fc1.weight
    assert is_faster(x, weight)
    assert not is_faster(x[..., :64], weight[:, :64])
    assert not is_faster(x.bfloat16(), weight.bfloat16())
    with torch.autocast("cpu", torch.bfloat16):
        assert not is_faster(x, weight)


def test_operations_are_counted(wide):
    mlp, x = wide
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        mlp(x)
    assert counter.get_total_flops() == 2 * 2 * 10 * 256 * 384


@needs_onednn
@pytest.mark.parametrize("biased", [True, False])
def test_a_training_step_has_torchs_gradients(wide, biased):
    mlp, x = wide
    if not biased:
        mlp.fc1 = nn.Linear(256, 384, bias=False)
        put_on_linears(mlp, type(mlp.fc2).__mro__[1])
    found, expected, x = [], [], x.requires_grad_()
    for gradients, step in ((found, training_step), (expected, contextlib.nullcontext)):
        with step():
            output = mlp.fc1(x)
        assert ("_WithBackward" in str(output.grad_fn)) == (step is training_step)
        gradients += torch.autograd.grad(output.square().sum(), (x, *mlp.fc1.parameters()))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
