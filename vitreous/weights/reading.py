"""What a checkpoint is read as: one model, in one format. It is found once, and passed on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from vitreous.config import option_text
from vitreous.models.model import Model
from vitreous.weights.origin import WeightFile
from vitreous.weights.rules.keys import Gathered
from vitreous.weights.rules.language import Format
from vitreous.weights.stated import Stated

Assumed = dict[str, tuple[Any, str]]
"""Config fields that the tensors do not show: the value taken, and why."""


@dataclass(frozen=True)
class Reading:
    """A checkpoint as `vitreous.create(model, **fields)`, in the format of `gathered.rules`."""

    file: WeightFile
    stated: Stated
    """By the file, or by the catalog about it."""
    gathered: Gathered
    """The file's keys for each parameter."""
    model: str
    fields: dict[str, Any]
    """The arguments of `create` besides the model's name."""
    blank: Model
    """The model without values, on the meta device; or the one that the weights go into."""
    assumed: Assumed = field(default_factory=dict)
    unused: tuple[str, ...] = ()
    """Keys that the model has no place for."""
    name: str = ""
    """The model's name, if it has another than `create` gives it."""
    keep: frozenset[str] = frozenset()
    """Fields that stay although the checkpoint's library has other values."""
    also: tuple[str, ...] = ()
    """Other models that have the same tensors."""
    given: frozenset[str] = frozenset()
    """Fields that the caller gave."""
    towers: tuple[Reading, Reading] | None = None
    """Of a file with both, that of the image tower and that of the text tower,"""
    beside: Mapping[str, Tensor] = field(default_factory=dict)
    """and what stands beside them, by its own names."""

    @property
    def rules(self) -> Format:
        return self.gathered.rules

    @property
    def format(self) -> str:
        """Of the built-in rules, or the path of a file with rules."""
        return self.rules.name

    @property
    def source(self) -> str:
        """As the caller called it."""
        return self.file.called

    def __str__(self) -> str:
        """`vit-ti/16 with classes=10 (timm)`"""
        fields = ", ".join(f"{name}={value!r}" for name, value in self.fields.items())
        return f"{self.model}{' with ' if fields else ''}{fields} ({self.format})"

    def to_dict(self) -> dict[str, Any]:
        """What a listing of the file says."""
        found = {"format": self.format, "model": self.model, "changes": self.fields}
        return {**found, "assumed": self.assumed, "unused": self.unused}


def assumptions(assumed: Mapping[str, tuple[Any, str]]) -> list[str]:
    """What was assumed and why, one line for each reason: `heads=3 (as in vit-ti/16)`."""
    reasons: dict[str, list[str]] = {}
    for name, (value, why) in assumed.items():
        reasons.setdefault(why, []).append(f"{name}={option_text(value)}")
    return [f"{', '.join(fields)} ({why})" for why, fields in reasons.items()]
