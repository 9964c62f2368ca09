"""Models without values: names, shapes and types alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


@contextmanager
def without_values() -> Iterator[None]:
    """Inside, models are made on the meta device, which takes no memory and little time."""
    with torch.device("meta"), _Undrawn():
        yield


class _Undrawn(TorchFunctionMode):
    """No normal numbers are drawn: to draw them without memory, torch imports its compiler, which
    takes seconds."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if getattr(function, "__name__", "") == "normal_":
            return args[0] if args else kwargs["tensor"]
        return function(*args, **kwargs or {})
