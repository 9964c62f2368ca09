"""The catalog of well-known public checkpoints: `catalog.toml`, read and checked. No torch here."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vitreous.config import from_dict


@dataclass(frozen=True)
class CatalogPreprocessing:
    """How an image was prepared when the checkpoint was evaluated."""

    image_size: int
    crop: float
    interpolation: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    resize: str = "shorter"
    """The shorter side is resized and a square is cut out (shorter), or both sides are (square)."""
    longest: int | None = None
    """Of a detector, which sees the whole image: how long the longer side may become."""
    antialias: bool = True


@dataclass(frozen=True)
class CatalogEntry:
    """One published file or repository."""

    name: str
    model: str
    format: str
    address: str
    """`hf:owner/name`, or where the file can be downloaded."""
    classes: int
    """Outputs of the stored head; 0 when there is none."""
    preprocessing: CatalogPreprocessing
    licence: str
    config: Mapping[str, Any] = field(default_factory=dict)
    """Changes to the model's config, the numbers that hide among them."""
    labels: str = ""
    sha256: str = ""
    """The first digits of the file's hash, where they are published."""
    accuracy: float | None = None
    """Published top-1 on ImageNet-1k."""
    ap: float | None = None
    """Published average precision of boxes on COCO val2017."""
    source: str = ""
    """Who says so."""

    @property
    def changes(self) -> dict[str, Any]:
        """What to give to `create` besides the model's name."""
        return {**self.config, **({"classes": self.classes} if self.classes else {})}


@functools.cache
def catalog() -> dict[str, CatalogEntry]:
    """Every entry, by name."""
    path = Path(__file__).with_name("catalog.toml")
    entries = {}
    for row in tomllib.loads(path.read_text(encoding="utf-8"))["checkpoint"]:
        where = f"{path.name}, {row.get('name')}"
        prepared = from_dict(CatalogPreprocessing, row["preprocessing"], where=where)
        entry = from_dict(CatalogEntry, {**row, "preprocessing": prepared}, where=where)
        entries[entry.name] = entry
    return entries
