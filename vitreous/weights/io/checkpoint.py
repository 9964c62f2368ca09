"""What is read from a weight file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Checkpoint:
    """Tensors by name, on the CPU, and the file they were read from."""

    tensors: dict[str, Tensor]
    metadata: dict[str, str] = field(default_factory=dict)
    """Of a safetensors file; empty for other types."""
    path: Path = Path()
    settings: dict[str, Any] = field(default_factory=dict)
    """What a training checkpoint says about its numbers; see `settings_of`."""
    source: str = ""
    """As the user called it, where that is not its path."""
    entries: dict[str, str] = field(default_factory=dict)
    """Of a training checkpoint, and what they are; empty for files that have tensors alone."""

    @property
    def called(self) -> str:
        return self.source or str(self.path)
