"""A linear layer, with what is behind it in the same pass where that is faster.

To predict on a CPU with AVX-512, oneDNN takes a tenth less time for a ViT-B than torch's usual
way, which writes the bias first and the activation last, each in a pass of its own; and another
tenth less for narrow layers whose weight lies in memory as oneDNN reads it (`packed.py`). While
training, and wherever it was not measured to be faster, it is torch's own layer.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitreous.layers.packed import onednn, packed

WIDE = 256
"""From which width on without packing: narrower layers (Swin's first stages, ViT-Ti) do not gain.
"""
PACKED_UP_TO = 512
"""Wider layers gain 5 % from packing, which is not worth a second copy of the weight."""
WORK = 1 << 25
"""Multiplications from which on packing is worth looking for the packed weight."""


def fused(x: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN's layer takes this place."""
    return onednn(x, weight) and (weight.shape[1] >= WIDE or _packs(x, weight))


def _packs(x: Tensor, weight: Tensor) -> bool:
    kept = isinstance(weight, nn.Parameter) and weight.is_contiguous()
    return kept and weight.shape[1] <= PACKED_UP_TO and x.numel() * weight.shape[0] >= WORK


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, rows: slice = slice(None)) -> Tensor:
    """(…, d) -> (…, e) with weight (e, d), or those rows of it and of the bias."""
    if fused(x, weight):
        return _onednn(x, weight, bias, rows, "none")
    return F.linear(x, weight[rows], None if bias is None else bias[rows])


def linear_gelu(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The same, with GELU behind it."""
    if fused(x, weight):
        return _onednn(x, weight, bias, slice(None), "gelu")
    return F.gelu(F.linear(x, weight, bias))


def _onednn(x: Tensor, weight: Tensor, bias: Tensor | None, rows: slice, then: str) -> Tensor:
    if _packs(x, weight):
        made = packed(weight, rows, lambda: _pack(weight[rows]))
    else:
        made = weight[rows]
    bias = None if bias is None else bias[rows]
    # GELU has two forms, and "none" of tanh's is the exact one
    form = "none" if then == "gelu" else ""
    found: Tensor = torch.ops.mkldnn._linear_pointwise(x, made, bias, then, [], form)
    return found


def _pack(weight: Tensor) -> Tensor:
    found: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach())
    return found
