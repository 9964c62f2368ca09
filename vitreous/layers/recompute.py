"""Less memory for a little time: what is cheap to compute is computed again in the backward.

A training step keeps what its backward needs. More than a third of that follows from something else
that is kept: the outputs of norms and of the activation inside an MLP, which the linear layers
behind them need. Inside `recomputing()`, what `cheap(function, x)` gives is not kept: the backward
calls the function once more, on the same numbers, and gets the same bits.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks


class _Recipe(NamedTuple):
    """How a tensor is made again: the function and its arguments, which may be such themselves."""

    function: Callable[..., Tensor]
    arguments: tuple[Tensor | _Recipe, ...]
    precision: torch.dtype | None
    """Of autocast, which is over when the backward begins."""
    device: str

    def make(self) -> Tensor:
        arguments = [a.make() if isinstance(a, _Recipe) else a for a in self.arguments]
        if self.precision is None:
            return self.function(*arguments)
        with torch.autocast(self.device, self.precision):
            return self.function(*arguments)


class _View(NamedTuple):
    """Stands in place of a tensor that the backward needs: which part of what is made again."""

    recipe: _Recipe
    size: torch.Size
    stride: tuple[int, ...]
    offset: int


class _Recomputing:
    """The cheap tensors of one forward that still exist, by where their memory begins."""

    def __init__(self, see: Callable[[Tensor], object] | None) -> None:
        self.see = see
        self.made: dict[int, tuple[weakref.ref[Tensor], _Recipe]] = {}

    def add(self, tensor: Tensor, recipe: _Recipe) -> None:
        self.made[_memory(tensor)] = weakref.ref(tensor), recipe

    def recipe_of(self, tensor: Tensor) -> _Recipe | None:
        exists, recipe = self.made.get(_memory(tensor), (None, None))
        # Memory of a tensor that has gone may be another's by now.
        return recipe if exists is not None and exists() is not None else None

    def pack(self, tensor: Tensor) -> Tensor | _View:
        recipe = self.recipe_of(tensor)
        if recipe is None:
            if self.see is not None:
                self.see(tensor)
            return tensor.detach()
        return _View(recipe, tensor.size(), tensor.stride(), int(tensor.storage_offset()))


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


@torch.no_grad()
def _unpack(kept: Tensor | _View) -> Tensor:
    if isinstance(kept, Tensor):
        return kept
    return kept.recipe.make().as_strided(kept.size, kept.stride, kept.offset)


_ACTIVE: ContextVar[_Recomputing | None] = ContextVar("recomputing", default=None)


@contextmanager
def recomputing(see: Callable[[Tensor], object] | None = None) -> Iterator[None]:
    """Around a forward that a backward follows; `see` is called with what is kept for it."""
    active = _Recomputing(see)
    token = _ACTIVE.set(active)
    try:
        with saved_tensors_hooks(active.pack, _unpack):
            yield
    finally:
        _ACTIVE.reset(token)


def cheap(function: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """function(*tensors), which must give a tensor of its own and not depend on chance."""
    made = function(*tensors)
    active = None if torch.compiler.is_compiling() else _ACTIVE.get()
    if active is not None and made.requires_grad and all(made is not each for each in tensors):
        arguments = tuple(active.recipe_of(each) or each.detach() for each in tensors)
        active.add(made, _Recipe(function, arguments, _precision(made), made.device.type))
    return made


def _precision(tensor: Tensor) -> torch.dtype | None:
    """Of autocast, where it is on."""
    device = tensor.device.type
    on = torch.is_autocast_enabled(device)
    return torch.get_autocast_dtype(device) if on else None


def as_multiplied(x: Tensor) -> Tensor:
    """x in the type in which autocast multiplies it: its copy is cheap as well."""
    if torch.compiler.is_compiling() or _ACTIVE.get() is None or x.dtype != torch.float32:
        return x
    precision = _precision(x)
    return x if precision is None else cheap(lambda values: values.to(precision), x)
