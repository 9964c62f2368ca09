"""One process or many: torchrun starts them, the loop need not know how many there are.

A batch that several processes share is computed as one process would compute it. Each has some
consecutive rows of the batch. Most of a model looks at each row by itself; here is what does not:
batch norm, whose statistics are those of all rows, and random numbers, of which each row has its
own wherever it is computed. Both are put on a model from outside.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar, Token
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.nn.functional import all_reduce
from torch.nn.modules.batchnorm import _BatchNorm
from torch.overrides import TorchFunctionMode

from vitreous.engines.device import find_device
from vitreous.engines.world import World
from vitreous.layers.attention import attention_weights
from vitreous.layers.block import Block
from vitreous.layers.uncommon import BatchNorm


@contextmanager
def sharing() -> Iterator[World]:
    """The processes that torchrun started, or this one alone, for what is no training: each has the
    same arguments, and computes a part of the images."""
    with joined(None, backend="gloo", timeout=timedelta(days=1)) as world, world.alike():
        yield world


@contextmanager
def joined(
    device: str | None, *, backend: str | None = None, timeout: timedelta | None = None
) -> Iterator[World]:
    """The processes that torchrun started, or this one alone. `backend` is nccl for GPUs, and else
    gloo, unless given; `timeout` is how long one waits for another."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    rank = int(os.environ.get("RANK", "0"))
    local = int(os.environ.get("LOCAL_RANK", "0"))
    chosen = str(find_device(device))
    if chosen == "cuda":
        torch.cuda.set_device(local)
        chosen = f"cuda:{local}"
    if size > 1:
        usual = "nccl" if chosen.startswith("cuda") else "gloo"
        _init_process_group(backend or usual, timeout)
    try:
        yield World(rank, size, torch.device(chosen))
        if size > 1:  # leaving while another process still sends would crash gloo's threads
            # If the first one has ended meanwhile, with an error, it has told why.
            with suppress(RuntimeError) if rank else nullcontext():
                dist.barrier()
    finally:
        if size > 1:
            dist.destroy_process_group()


def restarts() -> int:
    """How often torchrun has started this process again."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def _init_process_group(backend: str, timeout: timedelta | None) -> None:
    """Join the other processes.

    On one machine torchrun keeps its store over a restart (torch 2.14), and with it the addresses
    of processes that have died; the names of each attempt are kept apart here. The count is the
    same for all processes of one machine, not of several.
    """
    from torch.distributed.rendezvous import rendezvous

    store, rank, size = next(iter(rendezvous("env://")))
    if os.environ.get("LOCAL_WORLD_SIZE") == os.environ["WORLD_SIZE"]:
        store = dist.PrefixStore(f"attempt-{restarts()}", store)
    dist.init_process_group(backend, timeout=timeout, store=store, rank=rank, world_size=size)


def wrap(model: nn.Module, world: World, shard: bool) -> nn.Module:
    """The model for training: as it is, or with several processes replicated (DDP) or sharded
    (FSDP2)."""
    if shard and world.size > 1:
        from torch.distributed.fsdp import fully_shard

        for module in model.modules():
            if isinstance(module, Block):
                fully_shard(module)
        fully_shard(model)
        model.sharded = True  # type: ignore[assignment]
        return model
    if world.size > 1:
        ids = [world.device.index] if world.device.type == "cuda" else None
        return nn.parallel.DistributedDataParallel(model, device_ids=ids)
    return model


def whole(tensor: Tensor) -> Tensor:
    """A tensor that may be sharded, complete and on the CPU."""
    full: Any = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return full.detach().cpu()


def copy_into(target: Tensor, value: Tensor) -> None:
    """Copy a complete tensor into one that may be sharded."""
    with torch.no_grad():
        if hasattr(target, "full_tensor"):
            from torch.distributed.tensor import distribute_tensor

            like: Any = target
            value = distribute_tensor(
                value.to(target.device, target.dtype), like.device_mesh, like.placements
            )
        target.copy_(value)


def synchronise_batch_norms(model: nn.Module) -> None:
    """Let the batch norms of a model normalise by the statistics of all processes. (torch's own
    SyncBatchNorm needs GPUs.)"""
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.forward = partial(_batch_norm, module)  # type: ignore[method-assign]


def _batch_norm(norm: _BatchNorm, x: Tensor) -> Tensor:
    """x (b, c, …), as `nn.BatchNorm2d` does it (Ioffe and Szegedy 2015, algorithm 1); of a block's
    norm (b, n, c)."""
    if not norm.training:
        return type(norm).forward(norm, x)
    if isinstance(norm, BatchNorm) and x.ndim > 2:
        return _batch_norm(norm, x.flatten(0, -2)).view_as(x)
    axes, by_channel = (0, *range(2, x.ndim)), (1, -1, *[1] * (x.ndim - 2))
    values = x.float()
    count = float(all_reduce(torch.tensor(x.numel() / x.shape[1], device=x.device)))
    mean = all_reduce(values.sum(axes)) / count
    centred = values - mean.view(by_channel)
    variance = all_reduce(centred.square().sum(axes)) / count
    _remember(norm, mean.detach(), variance.detach() * count / max(count - 1, 1))
    factor = (variance + norm.eps).rsqrt()
    if norm.affine:
        factor = factor * norm.weight
    normed = centred * factor.view(by_channel)
    return (normed + norm.bias.view(by_channel) if norm.affine else normed).to(x.dtype)


@torch.no_grad()
def _remember(norm: _BatchNorm, mean: Tensor, variance: Tensor) -> None:
    """The running statistics, for eval mode."""
    if norm.running_mean is None or norm.running_var is None:
        return
    assert norm.num_batches_tracked is not None
    norm.num_batches_tracked.add_(1)
    share = 1 / float(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
    norm.running_mean.lerp_(mean, share)
    norm.running_var.lerp_(variance, share)


_ROWS: ContextVar[RandomRows | None] = ContextVar("random_rows", default=None)


class RandomRows(TorchFunctionMode):
    """Inside, random numbers for the rows of a batch (drop path, dropout, masks of MAE) are those
    that one process with the same seed would draw for them: all processes draw the numbers of the
    whole batch, and take those of their rows. `rows`: how many images this process has."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.rows = rows
        self.tokens: list[Token[RandomRows | None]] = []
        self.replaced = {
            torch.rand: self._rand,
            F.dropout: self._dropout,
            F.scaled_dot_product_attention: self._attention,
        }

    @staticmethod
    def active() -> RandomRows | None:
        """The one that this is inside of. A backward, which may compute a block again, is not."""
        return _ROWS.get()

    def __enter__(self) -> RandomRows:
        self.tokens.append(_ROWS.set(self))
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        _ROWS.reset(self.tokens.pop())

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return self.replaced.get(function, function)(*args, **kwargs or {})

    def _is_shared(self, rows: int) -> bool:
        """Whether the first axis has the images of a batch (times views or windows); what all
        images have in common is the same in all processes already."""
        return rows % self.rows == 0

    def _rand(self, *size: Any, **options: Any) -> Tensor:
        rows, *others = size if isinstance(size[0], int) else size[0]
        if options.get("generator") is not None or not self._is_shared(rows):
            return torch.rand(rows, *others, **options)
        return _own_rows(torch.rand(rows * dist.get_world_size(), *others, **options))

    def _dropout(
        self, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Tensor:
        if not training or p == 0 or not self._is_shared(x.shape[0]):
            return F.dropout(x, p, training, inplace)
        whole = x.new_empty(x.shape[0] * dist.get_world_size(), *x.shape[1:])
        return x * _own_rows(whole.bernoulli_(1 - p)).div(1 - p)

    def _attention(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        *,
        scale: float,
    ) -> Tensor:
        if dropout_p == 0:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask, scale=scale)
        return self._dropout(attention_weights(q, k, attn_mask, scale), dropout_p) @ v


def _own_rows(whole: Tensor) -> Tensor:
    """Those of this process."""
    return whole.chunk(dist.get_world_size())[dist.get_rank()]
