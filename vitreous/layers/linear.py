"""A linear layer, with what is behind it in the same pass where that is faster.

To predict on a CPU with AVX-512, oneDNN takes a tenth less time for a ViT-B than torch's usual
way, which writes the bias first and the activation last, each in a pass of its own. While training,
and wherever it was not measured to be faster, it is torch's own layer.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.layers.onednn import fits

WIDE = 256
"""From which width on: narrower layers (Swin's first stages, ViT-Ti) do not gain."""


def fused(x: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN's layer takes this place."""
    return not torch.is_grad_enabled() and weight.shape[1] >= WIDE and fits(x, weight)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """(…, d) -> (…, e) with weight (e, d)."""
    if fused(x, weight):
        found: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return found
    return F.linear(x, weight, bias)


def linear_gelu(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The same, with GELU behind it."""
    if fused(x, weight):
        found: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "gelu", [], "none")
        return found
    return F.gelu(F.linear(x, weight, bias))
