"""Looking inside a model while it runs, without a second forward.

A `Tapped` module calls `self.show(name, tensor)` at the places worth looking at. Normally that is
one comparison with None; inside `tapping(model, see)` every tapped module reports to `see`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import Tensor, nn

See = Callable[[str, Tensor], None]


class Tapped(nn.Module):
    """A module with places that can be looked at."""

    tap: See | None = None

    def show(self, name: str, tensor: Tensor) -> Tensor:
        """Report `tensor` under `name` when somebody looks; always return it unchanged."""
        if self.tap is not None:
            self.tap(name, tensor)
        return tensor


@contextmanager
def tapping(model: nn.Module, see: See, *, inner: bool = True) -> Iterator[None]:
    """Call `see(qualified_name, tensor)` for what the tapped modules of `model` show.

    With `inner=False` only `model` itself is tapped, so that its parts compute as they always do
    (a tapped attention computes its weights explicitly). What was there before is restored.
    """
    tapped = [
        (f"{name}." if name else "", module)
        for name, module in model.named_modules()
        if isinstance(module, Tapped) and (inner or module is model)
    ]
    before = [module.tap for _, module in tapped]
    try:
        for prefix, module in tapped:
            module.tap = lambda name, tensor, prefix=prefix: see(prefix + name, tensor)
        yield
    finally:
        for (_, module), tap in zip(tapped, before, strict=True):
            module.tap = tap
