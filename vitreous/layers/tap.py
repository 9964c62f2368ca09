"""Looking inside a model while it runs: no second forward, no change to the equations.

    with tap(model.steps(), see):
        model(images)

calls `see(name, tensor)` for the output of each of these modules, and for what a module shows
besides its output (`show`; attention shows its weights). A tensor that `see` returns takes the
place of what it was shown: that is how a head or a position is switched off. Who looks is a
context variable: other threads may compute with the same modules meanwhile, and they are not
tapped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torch import Tensor, nn

See = Callable[[str, Tensor], Tensor | None]


class _Tap:
    """One `with tap(…)`: the names of its modules, and the function to call."""

    def __init__(self, modules: Mapping[str, nn.Module], see: See, inside: bool) -> None:
        self.names = {module: name for name, module in modules.items()}
        self.see, self.inside = see, inside

    def hook(self, module: nn.Module, _: Any, output: Any) -> Tensor | None:
        name = self.names[module]
        if not name or not isinstance(output, Tensor) or self not in _TAPS.get():
            return None
        last = _has_channels_last(module) and output.ndim == 4
        changed = self.see(name, output.movedim(-1, 1) if last else output)
        return changed.movedim(1, -1) if last and changed is not None else changed


_TAPS: ContextVar[tuple[_Tap, ...]] = ContextVar("taps", default=())


@contextmanager
def tap(modules: Mapping[str, nn.Module], see: See, *, inside: bool = False) -> Iterator[None]:
    """Inside, and in this thread alone, `see` is shown what these modules compute, by their names.

    The name "" stands for the caller's own module: of it only what it shows is reported. Maps come
    with channels first, (b, d, h, w). A tapped attention computes its weights explicitly; all
    others stay fused. `inside`: with what happens inside a step.
    """
    added = _Tap(modules, see, inside)
    token = _TAPS.set((*_TAPS.get(), added))
    hooks = [module.register_forward_hook(added.hook) for module in modules.values()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        _TAPS.reset(token)


def is_tapped(module: nn.Module) -> bool:
    """Whether anybody in this thread looks at `module`."""
    return any(module in each.names for each in _TAPS.get())


def is_of_tap(hook: object) -> bool:
    return isinstance(getattr(hook, "__self__", None), _Tap)


def show(module: nn.Module, name: str, tensor: Tensor, *, inside: bool = False) -> Tensor:
    """Report a tensor that is no module's output, if anybody looks at `module`; return it, or what
    takes its place. What is `inside` a step is for those who ask for it."""
    if is_tapped(module):
        for each in _TAPS.get():
            if module in each.names and (each.inside or not inside):
                owner = each.names[module]
                changed = each.see(f"{owner}.{name}" if owner else name, tensor)
                tensor = tensor if changed is None else changed
    return tensor


def _has_channels_last(module: nn.Module) -> bool:
    """Norms do, and modules with `channels_last`: their maps are shown with channels first."""
    return getattr(module, "channels_last", isinstance(module, nn.LayerNorm))
