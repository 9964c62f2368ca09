"""The one attention: fused, and step by step where that is faster to learn with."""

import pytest
import torch
import torch.nn.functional as F

from vitreous.engines import attention
from vitreous.engines.accelerate import accelerate
from vitreous.layers.attention import Attention


def gradients(layer, x, **more):
    x = x.clone().requires_grad_()
    layer.zero_grad()
    layer(x, **more).float().square().sum().backward()
    return [x.grad, *(each.grad.clone() for each in layer.parameters())]


def steps(monkeypatch):
    """Counts the calls of the kernel that is not used where products are faster."""
    calls, fused = [], F.scaled_dot_product_attention

    def counted(*given, **more):
        calls.append(1)
        return fused(*given, **more)

    monkeypatch.setattr(F, "scaled_dot_product_attention", counted)
    return calls


@pytest.mark.parametrize("biased", [False, True])
def test_products_learn_what_the_fused_kernel_learns(biased, monkeypatch):
    """In bfloat16 on a CPU, to train; both are as far from float32."""
    torch.manual_seed(0)
    layer, x = accelerate(Attention(32, 2, 16)), torch.randn(3, 20, 32)
    bias = torch.randn(1, 2, 20, 20) if biased else None
    calls = steps(monkeypatch)
    exact = gradients(layer, x, bias=bias)
    assert len(calls) == 1
    layer, x = layer.bfloat16(), x.bfloat16()
    by_steps = gradients(layer, x, bias=bias)
    assert len(calls) == 1
    with torch.no_grad():
        layer(x)
    assert len(calls) == 2, "to predict, it is fused"
    monkeypatch.setattr(attention, "MOST_SCORES", 20 * 20 - 1)
    fused = gradients(layer, x, bias=bias)
    assert len(calls) == 3, "with more tokens, too"
    for wanted, one, other in zip(exact, by_steps, fused, strict=True):
        errors = [((each.float() - wanted).norm() / wanted.norm()).item() for each in (one, other)]
        assert errors[0] < max(2 * errors[1], 0.02), errors
