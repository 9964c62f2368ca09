"""oneDNN's fused operations: where they may take the place of torch's, and weights as they read
them.

For each product oneDNN lays out a weight in blocks for the CPU's registers; for the convolutions of
a ResNet that, and the norm that is folded into it, takes a sixth of the time. To predict, the laid
out copy is kept beside the weight. It belongs to no module: it is neither saved nor copied, and
goes when the weight does.

A weight may change at any time. Torch counts changes in place (an optimizer's step, loaded weights,
an average), and what is moved or replaced has another address; the copy is made anew then. A change
that torch does not count, by `.data`, is found by looking at some of the values.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

LOOKED_AT = 64
"""Values of a weight that are compared each time."""


class Copy(NamedTuple):
    version: tuple[int, int]
    values: Tensor
    """Some of the weight's, when it was made."""
    made: Any


_COPIES: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


@functools.cache
def has_onednn() -> bool:
    """Measured with AVX-512 alone."""
    return (
        torch.backends.mkldnn.is_available()
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


def fits(x: Tensor, weight: Tensor) -> bool:
    """Whether they compute this: in float32 on a CPU, with weights that are ordinary tensors (not
    quantised ones). Programs that are compiled or exported have their own ways."""
    return (
        x.device.type == "cpu"
        and type(weight) in (Tensor, nn.Parameter)
        and x.dtype == weight.dtype == torch.float32
        and not torch.compiler.is_compiling()
        and not torch.jit.is_tracing()
        and not torch.is_autocast_enabled("cpu")
        and not torch._C._len_torch_dispatch_stack()  # who counts operations knows torch's own
        and has_onednn()
    )


def packed(weight: Tensor, make: Callable[[], Any], *, again: bool = False) -> Any:
    """What `make` makes of a weight; made again if the weight has changed, or if that is asked
    for."""
    if weight.is_inference():  # whose changes are not counted
        return make()
    version = (weight._version, weight.data_ptr())
    values = weight.detach().view(-1)[:: weight.numel() // LOOKED_AT + 1]
    found: Copy | None = None if again else _COPIES.get(weight)
    if found is None or found.version != version or not torch.equal(found.values, values):
        found = Copy(version, values.clone(), make())
        _COPIES[weight] = found
    return found.made
