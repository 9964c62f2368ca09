"""Vitreous: vision transformers that you can see through.

The public names are imported when they are first used, so that `import vitreous` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vitreous.models import create
    from vitreous.models import names as models
    from vitreous.predict import load
    from vitreous.weights.rules.exporting import export_weights
    from vitreous.weights.rules.importing import import_weights

__version__ = "0.1.0"
__all__ = ["create", "export_weights", "import_weights", "load", "models"]

_HOME = {
    "create": "vitreous.models",
    "import_weights": "vitreous.weights.rules.importing",
    "export_weights": "vitreous.weights.rules.exporting",
    "load": "vitreous.predict",
}


def __getattr__(name: str) -> Any:
    if name == "models":
        return importlib.import_module("vitreous.models")
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'vitreous' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
