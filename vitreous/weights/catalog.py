"""The catalog of well-known public checkpoints: `catalog.toml`, read and checked. No torch here."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vitreous.config import flat_fields, from_dict, read_toml
from vitreous.errors import did_you_mean


@dataclass(frozen=True)
class CatalogPreprocessing:
    """The preprocessing with which the checkpoint was evaluated."""

    image_size: int
    crop: float
    interpolation: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    resize: str = "shorter"
    """Resize the shorter side and crop a square (shorter), or resize both sides (square)."""
    longest: int | None = None
    """For detectors, which do not crop: the maximum length of the longer side."""
    antialias: bool = True


@dataclass(frozen=True)
class CatalogEntry:
    """One published file or repository."""

    name: str
    model: str
    format: str
    address: str
    """`hf:owner/name`, or the file's URL."""
    classes: int
    """Outputs of the stored head; 0 if it has none."""
    preprocessing: CatalogPreprocessing
    licence: str
    config: Mapping[str, Any] = field(default_factory=dict)
    """Changes to the model's config that these weights need."""
    labels: str = ""
    sha256: str = ""
    """The first digits of the file's hash, if they are published."""
    accuracy: float | None = None
    """Published top-1 on ImageNet-1k."""
    ap: float | None = None
    """Published box AP on COCO val2017."""
    source: str = ""
    """Who published the accuracy or AP."""
    default: bool = False
    """Whether the model's name alone means this one, where there are several."""

    @property
    def changes(self) -> dict[str, Any]:
        """The arguments of `create` besides the model's name."""
        return {**flat_fields(self.config), **({"classes": self.classes} if self.classes else {})}


@functools.cache
def catalog() -> dict[str, CatalogEntry]:
    """Every entry, by name."""
    path = Path(__file__).with_name("catalog.toml")
    entries = {}
    for row in read_toml(path, "checkpoints")["checkpoint"]:
        where = f"{path.name}, {row.get('name')}"
        prepared = from_dict(CatalogPreprocessing, row["preprocessing"], where=where)
        entry = from_dict(CatalogEntry, {**row, "preprocessing": prepared}, where=where)
        entries[entry.name] = entry
    return entries


def find_entry(name: str) -> CatalogEntry | None:
    """The entry of this name; or of this model, if it is the only one or the default."""
    known = catalog()
    if name in known:
        return known[name]
    found = entries_for(name)
    return next((e for e in found if e.default), found[0] if len(found) == 1 else None)


def named(name: str) -> bool:
    """Whether the catalog has something of this name, an entry or a model."""
    return name in catalog() or bool(entries_for(name))


def meant(name: str) -> str:
    """`": did you mean …?"` for a name that the catalog does not have, or an empty string."""
    return did_you_mean(name, dict.fromkeys((*(e.model for e in catalog().values()), *catalog())))


def entries_for(model: str) -> list[CatalogEntry]:
    """Those of a model, by its name; or of its image tower, if these are all there are."""
    known = catalog().values()
    whole = [entry for entry in known if entry.model == model]
    return whole or [entry for entry in known if entry.model == f"{model}-image"]


def entry_of_hash(sha256: str) -> CatalogEntry | None:
    """The entry whose file has this hash, among those whose hash is published."""
    entries = catalog().values()
    return next((each for each in entries if each.sha256 and sha256.startswith(each.sha256)), None)
