"""Other classes for modules, put on from outside and taken off again.

A module stays the object that it is: its parameters, their names, hooks and buffers are those that
it had; only its class is derived from the one it had and from one that computes the same in
another way. What somebody else has put in its place (PEFT, a subclass with a `forward` of its own)
is left alone.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from torch import nn
from torch.nn.modules import module as torch_module

from vitreous.layers.tap import is_of_tap, is_tapped


@functools.cache
def _derived(base: Any, added: tuple[Any, ...]) -> Any:
    """A class of the same name as `base`; the last that was added is asked first."""

    def reduce(self: nn.Module, protocol: Any) -> tuple[Any, ...]:
        return _made_again, (base, added), self.__dict__.copy()

    names = {"__module__": base.__module__, "__qualname__": base.__qualname__}
    content = {"__reduce_ex__": reduce, "_base": base, "_added": added, **names}
    return type(base.__name__, (*reversed(added), base), content)


def _made_again(base: Any, added: tuple[Any, ...]) -> Any:
    """For copies and pickles."""
    kind = _derived(base, added)
    return kind.__new__(kind)


def _parts(module: nn.Module) -> tuple[Any, tuple[Any, ...]]:
    """The class that it had, and those that were put on. Not inherited: FSDP and parametrizations
    derive classes of their own from ours."""
    known = vars(type(module))
    return known.get("_base", type(module)), known.get("_added", ())


def base_of(module: nn.Module) -> type[nn.Module]:
    """The class that it had before anything was put on."""
    base: type[nn.Module] = _parts(module)[0]
    return base


def put_on(module: nn.Module, kind: type[nn.Module], like: type[nn.Module] | None = None) -> None:
    """Let `module` compute as `kind` does, if it computes as `like` now: the class that `kind` is
    derived from. Any other module is left alone."""
    base, added = _parts(module)
    like = kind.__mro__[1] if like is None else like
    if not issubclass(base, like) or isinstance(module, kind) or "forward" in vars(module):
        return
    changed = [name for name in vars(kind) if not name.startswith("__") and hasattr(like, name)]
    if all(getattr(base, name) is getattr(like, name) for name in changed):
        module.__class__ = _derived(base, (*added, kind))


def take_off(module: nn.Module, kinds: Iterable[type[nn.Module]]) -> None:
    base, added = _parts(module)
    left = tuple(each for each in added if each not in kinds)
    if left != added:
        module.__class__ = _derived(base, left) if left else base


def is_watched(*modules: nn.Module) -> bool:
    """Whether somebody has put hooks on them, or on all modules that there are."""
    return torch_module._has_any_global_hook() or has_hooks(*modules)


def has_hooks(*modules: nn.Module) -> bool:
    """A tap counts in its own thread alone: in others, outputs stay the same to the bit."""
    return any(
        each._forward_pre_hooks
        or is_tapped(each)
        or not all(map(is_of_tap, tuple(each._forward_hooks.values())))
        for each in modules
    )
