"""Several processes that share one piece of work, as torchrun starts them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from vitreous.errors import VitreousError

T = TypeVar("T")
R = TypeVar("R")


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

    @contextmanager
    def alike(self) -> Iterator[None]:
        """Inside, all processes of a machine do the same: of an error in it, one tells."""
        try:
            yield
        except VitreousError as error:
            error.told_elsewhere |= int(os.environ.get("LOCAL_RANK", "0")) > 0
            raise

    def lead(self, function: Callable[[], T]) -> T:
        """What a function gives in the first process, or its error, in every process."""
        found: tuple[Any, VitreousError | None] = (None, None)
        if self.is_first:
            try:
                found = (function(), None)
            except VitreousError as error:
                found = (None, error)
        result: tuple[T, VitreousError | None] = self.broadcast(found)
        self._raise(result[1])
        return result[0]

    def _raise(self, problem: VitreousError | None) -> None:
        """What is raised in all processes, and told by the first."""
        if problem is not None:
            problem.told_elsewhere = not self.is_first
            raise problem

    @contextmanager
    def only_first(self, make: Callable[[], AbstractContextManager[T]]) -> Iterator[T | None]:
        """Inside, the first process has what a context gives; an error at its beginning is raised
        in all."""
        with ExitStack() as stack:
            given: list[T] = []
            self.lead(lambda: given.append(stack.enter_context(make())))
            yield given[0] if given else None

    @contextmanager
    def first_leads(self) -> Iterator[None]:
        """Inside is the first process, then the others: they find what it has put into a cache."""
        if not self.is_first:
            self.barrier()
        try:
            yield
        finally:
            if self.is_first:
                self.barrier()

    def share(
        self, things: Iterable[T], size: int, work: Callable[[Iterable[T]], Iterator[R]]
    ) -> Iterator[R]:
        """What `work` gives for things, in their order, in the first process; the others compute
        their part of it and give nothing. All processes must have the same things.

        `work` gives one result for each `size` of the things that it is given. Processes take turns
        in these, so that each result is what one process alone would compute. An error is raised in
        all processes, behind the results before it.
        """
        if self.size == 1:
            yield from work(things)
            return
        every = list(things)
        turns = range(0, len(every), size * self.size)
        firsts = [turn + self.rank * size for turn in turns]
        mine = work([thing for first in firsts for thing in every[first : first + size]])
        for first in firsts:
            made: tuple[Any, VitreousError | None] = (None, None)
            if first < len(every):
                try:
                    made = (next(mine), None)
                except VitreousError as error:
                    made = (None, error)
            yield from self._collected(made, has=first < len(every))

    def _collected(self, made: tuple[Any, VitreousError | None], *, has: bool) -> Iterator[Any]:
        """The results of one turn, in the first process; the first error of it in all."""
        found: list[Any] = [None] * self.size
        try:
            problems = self.gather(made[1])
            dist.gather_object((has, made[0]), found if self.is_first else None)
        except RuntimeError as error:  # of the connection
            self._raise(VitreousError(f"another process has ended: {error}"))
        for problem, part in zip(problems, found, strict=True):
            self._raise(problem)
            if self.is_first and part[0]:
                yield part[1]


ALONE = World(0, 1, torch.device("cpu"))
"""A process that shares its work with no other."""
