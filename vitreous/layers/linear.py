"""A linear layer, with what is behind it in the same pass where that is faster.

To predict on a CPU with AVX-512, oneDNN takes a tenth less time for a ViT-B than torch's usual
way, which writes the bias first and the activation last, each in a pass of its own. While training,
and wherever it was not measured to be faster, it is torch's own layer.
"""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from torch import Tensor

WIDE = 256
"""From which width on: narrower layers (Swin's first stages, ViT-Ti) do not gain."""


@functools.cache
def _has_onednn() -> bool:
    return (
        torch.backends.mkldnn.is_available()
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


def fused(x: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN's layer takes this place. Programs that are compiled or exported have their
    own ways."""
    return (
        x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and weight.shape[1] >= WIDE
        and not torch.is_grad_enabled()
        and not torch.compiler.is_compiling()
        and not torch.jit.is_tracing()
        and not torch.is_autocast_enabled("cpu")
        and not torch._C._len_torch_dispatch_stack()  # who counts operations knows torch's own
        and _has_onednn()
    )


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
