"""One process or many: torchrun starts them, the loop need not know how many there are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from vitreous.layers.block import Block
from vitreous.predict import find_device

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """Which of how many processes this is, and where it computes."""

    rank: int
    size: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def all_reduce(self, values: Tensor) -> Tensor:
        """The sum over all processes."""
        if self.size == 1:
            return values
        on_device = values.to(self.device)
        dist.all_reduce(on_device)
        return on_device.to(values.device)

    def gather(self, values: T) -> list[T]:
        """The values of every process, by rank; on the CPU, and of any shape."""
        if self.size == 1:
            return [values]
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, values)
        return found

    def broadcast(self, thing: Any) -> Any:
        """What the first process has, on every process."""
        things = [thing]
        if self.size > 1:
            dist.broadcast_object_list(things)
        return things[0]

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any process."""
        return bool(self.all_reduce(torch.tensor(float(flag))).item())

    def barrier(self) -> None:
        if self.size > 1:
            dist.barrier()


ALONE = World(0, 1, torch.device("cpu"))
"""A process that shares its work with no other."""


@contextmanager
def joined(device: str | None) -> Iterator[World]:
    """The processes that torchrun started, or this one alone."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    rank = int(os.environ.get("RANK", "0"))
    local = int(os.environ.get("LOCAL_RANK", "0"))
    chosen = str(find_device(device))
    if chosen == "cuda":
        torch.cuda.set_device(local)
        chosen = f"cuda:{local}"
    if size > 1:
        _init_process_group("nccl" if chosen.startswith("cuda") else "gloo")
    try:
        yield World(rank, size, torch.device(chosen))
        if size > 1:  # leaving while another process still sends would crash gloo's threads
            dist.barrier()
    finally:
        if size > 1:
            dist.destroy_process_group()


def restarts() -> int:
    """How often torchrun has started this process again."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def _init_process_group(backend: str) -> None:
    """Join the other processes.

    On one machine torchrun keeps its store over a restart (torch 2.14), and with it the addresses
    of processes that have died; the names of each attempt are kept apart here. The count is the
    same for all processes of one machine, not of several.
    """
    from torch.distributed.rendezvous import rendezvous

    store, rank, size = next(iter(rendezvous("env://")))
    if os.environ.get("LOCAL_WORLD_SIZE") == os.environ["WORLD_SIZE"]:
        store = dist.PrefixStore(f"attempt-{restarts()}", store)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size)


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
