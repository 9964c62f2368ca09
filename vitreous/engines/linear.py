"""Linear layers and MLPs as this CPU computes them fastest.

To predict on a CPU with AVX-512, oneDNN takes a tenth less time for a ViT-B than torch's usual
way, which writes the bias first and the activation last, each in a pass of its own. Inside
`training_step()` it takes part in training, too. Wherever it was not measured to be faster, it is
torch's own layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from vitreous.engines.onednn import fits
from vitreous.engines.swap import base_of, is_watched, put_on
from vitreous.layers.attention import Heads
from vitreous.layers.cross_attention import RowsLinear, rows_of
from vitreous.layers.mlp import Mlp

WIDE = 256
"""From which width on: narrower layers (Swin's first stages, ViT-Ti) do not gain."""
NARROW, PIECE = 128, 1 << 20
"""Up to which width an MLP is cut into pieces on a CPU, and of how many numbers inside."""

_STEP: ContextVar[bool] = ContextVar("training step", default=False)


@contextmanager
def training_step() -> Iterator[None]:
    """Around a forward that one backward follows: its linear layers may be oneDNN's as well."""
    token = _STEP.set(True)
    try:
        yield
    finally:
        _STEP.reset(token)


class FastLinear(RowsLinear):
    """The layer by oneDNN."""

    def forward(self, x: Tensor, rows: slice | None = None, bias: Tensor | None = None) -> Tensor:
        return linear(x, *rows_of(self, rows, bias))


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """(…, d) -> (…, e) with weight (e, d)."""
    learns = torch.is_grad_enabled()
    if (learns and not _STEP.get()) or not is_faster(x, weight):
        return F.linear(x, weight, bias)
    return _WithBackward.apply(x, weight, bias) if learns else _onednn(x, weight, bias)


def is_faster(x: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN's layer may take the place of torch's, and gains."""
    return weight.shape[1] >= WIDE and fits(x, weight)


def _onednn(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, then: tuple[str, str] = ("none", "")
) -> Tensor:
    activation, form = then
    found: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, activation, [], form)
    return found


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


class FastMlp(Mlp):
    """To predict: GELU in the same pass as the layer before it, and narrow ones piece by piece.
    While anybody watches its layers, they are computed one after another."""

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled() or is_watched(self.fc1, self.norm, self.dropout, self.fc2):
            return super().forward(x)
        pieces = self.pieces(x)
        if pieces > 1:
            return torch.cat([self._predict(piece) for piece in x.chunk(pieces, dim=-2)], dim=-2)
        return self._predict(x)

    def _predict(self, x: Tensor) -> Tensor:
        fc1 = self.fc1
        fuses = self.activation is F.gelu and isinstance(fc1, FastLinear)
        if not fuses or not is_faster(x, fc1.weight):
            return super().forward(x)
        x = _onednn(x, fc1.weight, fc1.bias, ("gelu", "none"))
        return self.dropout(self.fc2(self.norm(self.dropout(x))))

    def pieces(self, x: Tensor) -> int:
        """Into how many pieces to cut the tokens, which do not know of each other here.

        On a CPU a narrow MLP over many tokens (Swin's first stage) waits for memory, not for
        arithmetic: in pieces that fit the cache it takes half the time. Wide ones do not gain.
        """
        width, inside = x.shape[-1], self.fc2.in_features
        total = x.numel() // width * inside
        narrow = x.device.type == "cpu" and width <= NARROW and total > 4 * PIECE
        return -(-total // PIECE) if narrow and not torch.compiler.is_compiling() else 1


def put_on_linears(model: nn.Module, kind: type[RowsLinear]) -> None:
    """On the linear layers of attention and MLPs; others are few, or narrow."""
    for module in model.modules():
        if isinstance(module, Heads):
            found = (module.qkv, module.projection)
        elif isinstance(module, Mlp):
            found = (module.fc1, module.fc2)
        else:
            continue
        for linear in found:
            put_on(linear, kind, RowsLinear if base_of(linear) is RowsLinear else nn.Linear)
