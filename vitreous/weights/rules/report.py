"""The report of an import, and the message of one that failed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

MANY = 8
"""Keys of one part that are listed one by one."""


@dataclass
class ImportReport:
    """Every parameter is in exactly one of loaded, resampled, adapted and reinitialised."""

    source: str
    format: str
    loaded: list[str] = field(default_factory=list)
    resampled: dict[str, str] = field(default_factory=dict)
    """Position parameters whose grid or window changed, and how."""
    adapted: dict[str, str] = field(default_factory=dict)
    """Parameters whose number of channels changed, and how."""
    reinitialised: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    """Keys of the checkpoint that were not used, because an option or a rule names them."""
    numbers: dict[str, str] = field(default_factory=dict)
    """Config values that were set to those of the checkpoint's library."""
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        total = sum(map(len, (self.loaded, self.resampled, self.adapted, self.reinitialised)))
        lines = [
            f"{self.source} ({self.format}): {len(self.loaded)} of {total} tensors loaded as is"
        ]
        lines += [f"  resampled       {name}: {how}" for name, how in self.resampled.items()]
        lines += [f"  adapted         {name}: {how}" for name, how in self.adapted.items()]
        lines += [f"  re-initialised  {name}" for name in self.reinitialised]
        lines += [f"  not used        {key}" for key in grouped(self.dropped)]
        lines += [f"  set             {name}: {how}" for name, how in self.numbers.items()]
        lines += [f"  note            {note}" for note in self.notes]
        return "\n".join(lines)


def grouped(keys: list[str]) -> list[str]:
    """The keys; those of a part that has many (a text tower, a decoder) as one line."""
    parts = Counter(key.partition(".")[0] for key in keys)
    lines = dict.fromkeys(
        key if parts[part := key.partition(".")[0]] <= MANY else f"{part}.* ({parts[part]} tensors)"
        for key in keys
    )
    return list(lines)


@dataclass
class Misfit:
    """Every reason why a checkpoint does not fit a model."""

    missing: dict[str, str] = field(default_factory=dict)
    """Our name, and the expected keys."""
    unexpected: dict[str, str] = field(default_factory=dict)
    """Their key, and its shape."""
    misshaped: dict[str, str] = field(default_factory=dict)
    """Our name, and the problem."""

    def __bool__(self) -> bool:
        return bool(self.missing or self.unexpected or self.misshaped)

    def explain(self, source: str, model: str, format: str, hint: str = "") -> str:
        """One message with every key."""
        counts = (
            f"{len(self.missing)} missing, {len(self.unexpected)} unexpected, "
            f"{len(self.misshaped)} with a wrong shape"
        )
        lines = [
            f"{source} does not fit {model} as format {format!r}: {counts}; nothing was loaded"
        ]
        lines += [f"  missing      {name} (expected {keys})" for name, keys in self.missing.items()]
        lines += [f"  unexpected   {key} {shape}" for key, shape in self.unexpected.items()]
        lines += [f"  wrong shape  {name}: {what}" for name, what in self.misshaped.items()]
        if self.missing:
            lines.append("pass reinit=['head.*'] to re-initialise some parameters")
        if self.unexpected:
            lines.append("pass drop=['key.*'] to ignore keys of the checkpoint")
        return "\n".join(lines + ([hint] if hint else []))
