"""What --json prints, in every command."""

from __future__ import annotations

import json
import math
from typing import Any

from vitreous.terminal import print


def print_json(value: Any, indent: int | None = None) -> None:
    """JSON as every reader takes it: a metric that is not defined (NaN) is null."""
    print(json.dumps(_defined(value), indent=indent, allow_nan=False), flush=True)


def _defined(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _defined(each) for key, each in value.items()}
    return [_defined(each) for each in value] if isinstance(value, list | tuple) else value
