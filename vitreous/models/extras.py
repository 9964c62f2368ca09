"""What a checkpoint had besides the weights that a model uses: it is exported as it came."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from torch import Tensor

T = TypeVar("T")

KEY = "extras."
"""Our own files keep these tensors beside the weights, under names that begin with this."""


@dataclass(frozen=True)
class Extras:
    """Empty for a model that was not imported."""

    format: str = ""
    """The format that the weights came in."""
    unused: dict[str, Tensor] = field(default_factory=dict)
    """Tensors that no model of ours uses (mask tokens), by the names that the rules give them."""
    before: dict[str, Tensor] = field(default_factory=dict)
    """Parameters that the import expressed otherwise, with the same outputs, as they were: rows of
    positions that were added to tokens."""
    patterns: dict[str, str] = field(default_factory=dict)
    """The layouts of parameters that came in another one than the format is written in."""

    def inside(self, owner: str) -> Extras:
        """Those of a model that is a part of another one, `owner`, as that one's."""

        def owned(table: Mapping[str, T]) -> dict[str, T]:
            return {f"{owner}.{name}": value for name, value in table.items()}

        return Extras(self.format, owned(self.unused), owned(self.before), owned(self.patterns))

    def of(self, part: str) -> Extras:
        """The reverse of `inside`."""
        owner = f"{part}."

        def own(table: Mapping[str, T]) -> dict[str, T]:
            return {k.removeprefix(owner): v for k, v in table.items() if k.startswith(owner)}

        return Extras(self.format, own(self.unused), own(self.before), own(self.patterns))

    def joined(self, other: Extras) -> Extras:
        """Both, of the same format."""
        return Extras(
            self.format,
            {**self.unused, **other.unused},
            {**self.before, **other.before},
            {**self.patterns, **other.patterns},
        )

    def tensors(self) -> dict[str, Tensor]:
        """For our own files, with `metadata`."""
        tables = {"unused": self.unused, "before": self.before}
        return {
            f"{KEY}{table}.{name}": value
            for table, values in tables.items()
            for name, value in values.items()
        }

    def metadata(self) -> dict[str, str]:
        if not (self.unused or self.before or self.patterns):
            return {}
        return {"extras": json.dumps({"format": self.format, "patterns": self.patterns})}

    @classmethod
    def read(cls, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> Extras:
        """Of a file of ours; of one whose metadata are damaged, the tensors."""
        try:
            stated = json.loads(metadata.get("extras", "{}"))
            format, patterns = str(stated["format"]), dict(stated["patterns"])
        except (ValueError, TypeError, KeyError, RecursionError):
            format, patterns = "", {}

        def table(name: str) -> dict[str, Tensor]:
            owner = f"{KEY}{name}."
            return {k.removeprefix(owner): v for k, v in tensors.items() if k.startswith(owner)}

        return cls(format, table("unused"), table("before"), patterns)
