"""Vitreous: vision transformers that you can see through.

The public names are imported when they are first used, so that `import vitreous` costs nothing.
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vitreous.api import (
        benchmark,
        check_data,
        compare,
        convert,
        create,
        dry_run,
        embed,
        evaluate,
        explain,
        export,
        export_weights,
        find_lr,
        import_run,
        import_weights,
        load,
        models,
        predict,
        pretrain,
        serve,
        study,
        train,
    )

__version__ = "0.1.0"

__all__ = [
    "benchmark",
    "check_data",
    "compare",
    "convert",
    "create",
    "dry_run",
    "embed",
    "evaluate",
    "explain",
    "export",
    "export_weights",
    "find_lr",
    "import_run",
    "import_weights",
    "load",
    "models",
    "predict",
    "pretrain",
    "serve",
    "study",
    "train",
]
_MODULES = ("embed", "explain", "import_run", "models", "predict", "serve", "study", "train")
"""Verbs that are also the names of modules."""


class CallableModule(types.ModuleType):
    """A module that is also the verb of its name: `vitreous.train(...)` calls `api.train`."""

    def __call__(self, *values: Any, **options: Any) -> Any:
        verb = getattr(importlib.import_module("vitreous.api"), self.__name__.rpartition(".")[2])
        return verb(*values, **options)


class _Package(types.ModuleType):
    """Python sets a submodule as an attribute when it is imported, whoever imports it."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _MODULES and isinstance(value, types.ModuleType):
            value.__class__ = CallableModule
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"vitreous.{name}")
    if name in __all__:
        return getattr(importlib.import_module("vitreous.api"), name)
    raise AttributeError(f"module 'vitreous' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
