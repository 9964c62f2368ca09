"""What is known about a checkpoint besides its tensors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from vitreous.config import HIDDEN, PARTLY_HIDDEN, marked
from vitreous.models import FAMILIES, configure
from vitreous.models.composite import CompositeConfig

HIDDEN_FIELDS = tuple(
    dict.fromkeys(
        name
        for family in FAMILIES.values()
        for name in marked(family.config, HIDDEN, PARTLY_HIDDEN)
        if "layers" not in name
    )
)
"""Config fields that change the outputs, but neither names nor shapes of parameters."""
Origin = tuple[str, dict[str, Any]]
"""A model's name and the changes to its config."""


@dataclass(frozen=True)
class Stated:
    """What is known about a checkpoint besides its tensors; empty where nothing says it."""

    model: str | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    """Of the classes, in the model's order."""
    labels: str = ""
    """The name of a set of classes (imagenet-1k), where it stands for their names."""
    several: bool = False
    """Whether an image may have several of the classes."""
    preprocessing: dict[str, Any] = field(default_factory=dict)
    """Fields of a `CatalogPreprocessing`."""
    licence: str = ""
    kind: str = ""
    """What the source calls its model, where it is none of ours."""
    format: str = ""
    """Of the library whose folder it is."""
    notes: tuple[str, ...] = ()
    """What was taken otherwise than it is stated."""
    named: Origin | None = None
    """The model of another library that the file is called by, where nothing else states it: its
    library's values of what no tensor shows."""
    whole: Origin | None = None
    """The model around `model` that the source has too, for whoever asks for it."""

    @property
    def origin(self) -> Origin | None:
        return None if self.model is None else (self.model, dict(self.fields))

    @property
    def hidden(self) -> dict[str, Any]:
        """The stated fields that no tensor shows."""
        stated = {name: self.fields[name] for name in HIDDEN_FIELDS if name in self.fields}
        return {name: tuple(v) if isinstance(v, list) else v for name, v in stated.items()}

    @property
    def inner_epsilon(self) -> float | None:
        """Of the norms of a model inside, where the source states that."""
        if self.model is None or FAMILIES[configure(self.model)[0]].part is None:
            return None
        return core_epsilon(configure(self.model, **self.fields)[1])


def core_epsilon(config: CompositeConfig) -> float:
    """Of the norms of the model inside one with this config."""
    usual = configure(getattr(config, config.part))[1]
    return float(config.core_fields().get("norm_eps", usual.norm_eps))
