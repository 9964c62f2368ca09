"""One process or many: torchrun starts them, the loop need not know how many there are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from vitreous.engines.device import find_device
from vitreous.engines.world import World
from vitreous.layers.block import Block


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
