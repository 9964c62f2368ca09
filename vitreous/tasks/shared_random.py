"""Random numbers of a loss for a batch that several processes share (`train/distributed.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

_SHARED: ContextVar[bool] = ContextVar("shared_batch", default=False)


@contextmanager
def sharing_batch() -> Iterator[None]:
    """Inside, `rand_rows` draws the rows of this process from those of all, which have the same
    seed."""
    token = _SHARED.set(True)
    try:
        yield
    finally:
        _SHARED.reset(token)


def rand_rows(count: int, *shape: int, device: torch.device) -> Tensor:
    """torch.rand(count, *shape): random numbers for items of a batch, of which each process has
    another number. All processes must call it equally often."""
    if not _SHARED.get():
        return torch.rand(count, *shape, device=device)
    counts: list[Any] = [0] * dist.get_world_size()
    dist.all_gather_object(counts, count)
    first = sum(counts[: dist.get_rank()])
    return torch.rand(sum(counts), *shape, device=device)[first : first + count]
