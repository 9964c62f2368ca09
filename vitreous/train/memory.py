"""Less memory for more time: whole blocks are computed again in the backward (Chen et al. 2016);
and, on a CPU, less time because memory stays.

Of a block only its input is kept. The random numbers of dropout are the same the second time, and
so is all else: the gradient has the same bits. `recompute.py` keeps more and costs less.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from vitreous.engines.linear import training_step
from vitreous.errors import ConfigError
from vitreous.layers.block import Block
from vitreous.models.model import Model
from vitreous.train.shared_batch import RandomRows


def checkpoint_blocks(model: Model) -> list[nn.Module]:
    """Each block between what comes before them and the head, and those of a decoder."""
    found = [module for modules in model.layers()[1:-1] for module in modules]
    known = {part for module in found for part in module.modules()}
    found += [part for part in model.modules() if isinstance(part, Block) and part not in known]
    if not found:
        raise ConfigError(f"checkpoint: {model.name} has no blocks to compute again")
    for module in found:
        module.forward = partial(_forward, module, module.forward)
    return found


def _forward(module: nn.Module, forward: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*inputs, **options)
    contexts = partial(_contexts, module)
    return checkpoint(forward, *inputs, use_reentrant=False, context_fn=contexts, **options)


def _contexts(module: nn.Module) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """For the first time and the second, which must take the same ways."""
    return training_step(), _again(module, RandomRows.active() or nullcontext())


@contextmanager
def _again(module: nn.Module, rows: AbstractContextManager[Any]) -> Iterator[None]:
    """With the same random numbers. The statistics of batch norms have seen the batch already."""
    norms = [each for each in module.modules() if isinstance(each, _BatchNorm) and each.training]
    before = [(buffer, buffer.clone()) for norm in norms for buffer in norm.buffers()]
    try:
        with training_step(), rows:
            yield
    finally:
        for buffer, value in before:
            buffer.copy_(value)


MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1
"""Of glibc's mallopt."""


def keep_memory() -> None:
    """Let this process keep memory that is free for the moment. By default glibc returns large
    tensors to the system; the next one's memory must then be cleared page by page, which takes
    longer than to compute what goes into it. Every step needs as much as the last one. It needs a
    twentieth more memory, because there are gaps."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is not None:
        mallopt(MMAP_THRESHOLD, 1 << 30)
        mallopt(TRIM_THRESHOLD, (1 << 31) - 1)
