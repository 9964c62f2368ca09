"""A linear layer, with what is behind it in the same pass where that is faster.

To predict on a CPU with AVX-512, oneDNN takes a tenth less time for a ViT-B than torch's usual
way, which writes the bias first and the activation last, each in a pass of its own. While training,
and wherever it was not measured to be faster, it is torch's own layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from vitreous.layers.onednn import fits
from vitreous.layers.recompute import as_multiplied, cheap

WIDE = 256
"""From which width on: narrower layers (Swin's first stages, ViT-Ti) do not gain."""


def fused(x: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN's layer takes this place."""
    return not torch.is_grad_enabled() and _fits(x, weight)


def _fits(x: Tensor, weight: Tensor) -> bool:
    return weight.shape[1] >= WIDE and fits(x, weight)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """(…, d) -> (…, e) with weight (e, d)."""
    if fused(x, weight):
        return _onednn(x, weight, bias)
    return _torch_linear(x, weight, bias)


def _onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    found: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return found


def _torch_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """What a backward may follow."""
    if _STEP.get() and torch.is_grad_enabled() and _fits(x, weight):
        return _WithBackward.apply(x, weight, bias)
    return F.linear(as_multiplied(x), weight, bias)


class _WithBackward(torch.autograd.Function):
    """oneDNN's layer and its backward, once; the weight's gradient is no faster by it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _onednn(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        to_x, to_weight, to_bias = ctx.needs_input_grad
        rows = gradient.flatten(0, -2)
        return (
            _onednn(gradient, weight.t()) if to_x else None,
            rows.t() @ x.flatten(0, -2) if to_weight else None,
            rows.sum(dim=0) if to_bias else None,
        )


_STEP: ContextVar[bool] = ContextVar("training step", default=False)


@contextmanager
def training_step() -> Iterator[None]:
    """Around a forward that one backward follows: its linear layers may be oneDNN's as well."""
    token = _STEP.set(True)
    try:
        yield
    finally:
        _STEP.reset(token)


def linear_gelu(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The same, with GELU behind it."""
    if fused(x, weight):
        found: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "gelu", [], "none")
        return found
    return cheap(F.gelu, _torch_linear(x, weight, bias))
