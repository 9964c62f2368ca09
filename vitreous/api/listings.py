"""`vitreous models` and `vitreous summary`: what there is, and what a model is made of."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING, Any

from vitreous.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from vitreous.engines.summary import SummaryRow
    from vitreous.weights.catalog import CatalogEntry


def models(pattern: str = "*") -> list[str]:
    """The names of the models that match."""
    from vitreous.models import names

    return names(pattern)


def model_counts(pattern: str = "*") -> dict[str, dict[str, int]]:
    """Parameters and FLOPs of the models that match, from a table: it does not wait for torch."""
    from vitreous.engines.counts import recorded

    counts = recorded()
    return {
        name: dict(zip(("parameters", "flops"), counts[name], strict=True))
        for name in _matching(list(counts), pattern)
    }


def public_weights(pattern: str = "*") -> dict[str, CatalogEntry]:
    """The public checkpoints that match, by name."""
    from vitreous.weights.catalog import catalog

    known = catalog()
    return {name: known[name] for name in _matching(list(known), pattern)}


def _matching(known: list[str], pattern: str) -> list[str]:
    """The names that match a pattern, or contain a word; none is an error."""
    names = [name for name in known if fnmatch.fnmatchcase(name, pattern)]
    if not names and not set("*?[") & set(pattern):
        names = [name for name in known if pattern in name]
    if not names:
        hint = did_you_mean(pattern, known) or ": 'vitreous models' lists them all"
        raise ConfigError(f"no name matches {pattern!r}{hint}")
    return names


def summary(model: str, **changes: Any) -> list[SummaryRow]:
    """The walk of an image through a model, stage by stage: shape, parameters and FLOPs."""
    from vitreous.engines.summary import summarise_name

    return summarise_name(model, **changes)
