"""Less memory for more time: what a training step keeps for its backward is computed again there;
and, on a CPU, less time because memory stays.

Whole blocks (`checkpoint_blocks`; Chen et al. 2016): of a block only its input is kept. The random
numbers of dropout are the same the second time, and so is all else: the gradient has the same bits.

What is cheap (`recompute_cheap`): more than a third of what is kept follows from something else
that is kept: the outputs of norms and of the activation inside an MLP, which the linear layers
behind them need. Inside `recomputing()`, what `cheap(function, x)` gives is not kept: the backward
calls the function once more, on the same numbers, and gets the same bits.

torch's own selective checkpointing of the blocks was measured, and needs more: for six of a ViT-S,
1,133 MB in float32 and 917 MB in bfloat16, where the plain step takes 1,021 and 798 MB, and this
857 and 700 MB.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from vitreous.engines.linear import put_on_linears, training_step
from vitreous.engines.swap import put_on
from vitreous.errors import ConfigError
from vitreous.layers.block import Block
from vitreous.layers.cross_attention import RowsLinear
from vitreous.layers.mlp import Mlp
from vitreous.layers.resample import Grid
from vitreous.models.model import Model
from vitreous.models.swin import PatchMerging, WindowAttention, Windows
from vitreous.train.distributed import RandomRows


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

    def contexts() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
        """For the first time and the second, which must take the same ways."""
        return training_step(), _again(module, RandomRows.active() or nullcontext())

    return checkpoint(forward, *inputs, use_reentrant=False, context_fn=contexts, **options)


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


@dataclass
class _Recomputing:
    """The cheap tensors of one forward that still exist, by where their memory begins."""

    see: Callable[[Tensor], object] | None
    made: dict[int, tuple[weakref.ref[Tensor], _Recipe]] = field(default_factory=dict)

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


class RecomputedNorm(nn.LayerNorm):
    def forward(self, x: Tensor) -> Tensor:
        return cheap(super().forward, x)


class RecomputedMlp(Mlp):
    def forward(self, x: Tensor) -> Tensor:
        if _ACTIVE.get() is None:
            return super().forward(x)
        x = self.norm(self.dropout(cheap(self.activation, self.fc1(x))))
        return self.dropout(self.fc2(x))


class RecomputedWindows(WindowAttention):
    def cut(self, x: Tensor, size: Grid, windows: Windows) -> Tensor:
        return cheap(partial(super().cut, size=size, windows=windows), x)


class RecomputedCast(RowsLinear):
    """x in the type in which autocast multiplies it: its copy is cheap as well."""

    def forward(self, x: Tensor, rows: slice | None = None, bias: Tensor | None = None) -> Tensor:
        precision = None if _ACTIVE.get() is None else _precision(x)
        if precision is not None and x.dtype == torch.float32:
            x = cheap(lambda values: values.to(precision), x)
        return super().forward(x, rows, bias)


def recompute_cheap(model: nn.Module) -> None:
    """Let what is cheap in a model be computed again, inside `recomputing()`."""
    for module in model.modules():
        put_on(module, RecomputedMlp)
        put_on(module, RecomputedWindows)
        if isinstance(module, Block | Mlp | PatchMerging):
            for part in module.children():
                put_on(part, RecomputedNorm)
    put_on_linears(model, RecomputedCast)
