"""The report of an import, and the message of one that failed."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any

from vitreous.config import option_text
from vitreous.errors import advice

MAX_LISTED = 10
"""Of what is left when fields explain the rest."""

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
    kept: list[str] = field(default_factory=list)
    """Keys that the model has no use for and that an export writes again."""
    numbers: dict[str, str] = field(default_factory=dict)
    """Config values that were set to those of the checkpoint's library."""
    notes: list[str] = field(default_factory=list)

    def add(self, part: str, other: ImportReport) -> None:
        """The report of a part of the model."""

        def owned(name: str) -> str:
            return f"{part}.{name}"

        self.loaded += map(owned, other.loaded)
        self.reinitialised += map(owned, other.reinitialised)
        for own, theirs in (
            (self.resampled, other.resampled),
            (self.adapted, other.adapted),
            (self.numbers, other.numbers),
        ):
            own |= {owned(name): how for name, how in theirs.items()}
        self.dropped += other.dropped
        self.kept += other.kept
        self.notes += [note for note in other.notes if note not in self.notes]

    def __str__(self) -> str:
        total = sum(map(len, (self.loaded, self.resampled, self.adapted, self.reinitialised)))
        lines = [
            f"{self.source} ({self.format}): {len(self.loaded)} of {total} tensors loaded as is"
        ]
        lines += [f"  resampled       {name}: {how}" for name, how in self.resampled.items()]
        lines += [f"  adapted         {name}: {how}" for name, how in self.adapted.items()]
        lines += [f"  re-initialised  {name}" for name in self.reinitialised]
        others = [key for key in self.dropped if key not in self.reinitialised]
        lines += [f"  not used        {key}" for key in grouped(others)]
        lines += [f"  kept aside      {key}" for key in grouped(self.kept)]
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

    def __len__(self) -> int:
        return len(self.missing) + len(self.unexpected) + len(self.misshaped)

    def unexplained(self, names: Container[str]) -> Misfit:
        """Only what concerns these names and keys."""
        return Misfit(
            *(
                {name: what for name, what in table.items() if name in names}
                for table in (self.missing, self.unexpected, self.misshaped)
            )
        )

    def explain(
        self,
        source: str,
        model: str,
        format: str,
        hint: str = "",
        fields: Mapping[str, tuple[Any, Any]] | None = None,
    ) -> str:
        """One message. fields: config values for the file, which explain the rest, each with the
        model's own (None for one that the file does not show)."""
        lines = [f"{source} does not fit {model} as format {format!r}: {self._counts()}"]
        if fields:
            have = ", ".join(
                f"{name} = {value!r} (the model {ours!r})"
                for name, (value, ours) in fields.items()
                if ours is not None or name == "layer_scale"
            )
            values = {name: value for name, (value, _) in fields.items()}
            python = ", ".join(f"{name}={value!r}" for name, value in values.items())
            lines = [
                f"{source} does not fit {model}: the file has {have}; nothing was loaded",
                f"create the model with {python} ({in_options(values)})",
            ]
            if len(self):
                lines.append(f"besides, as format {format!r}: {self._counts()}")
        for what, table in (
            ("missing      {} (expected {})", self.missing),
            ("unexpected   {} {}", self.unexpected),
            ("wrong shape  {}: {}", self.misshaped),
        ):
            listed = [f"  {what.format(name, said)}" for name, said in table.items()]
            most = MAX_LISTED if fields else len(listed)
            lines += listed[:most]
            if len(listed) > most:
                lines.append(f"  … and {len(listed) - most} more")
        if self.missing:
            lines.append(advice("pass ", " to re-initialise some parameters", reinit=["head.*"]))
        if self.unexpected:
            lines.append(advice("pass ", " to ignore keys of the checkpoint", drop=["key.*"]))
        return "\n".join(filter(None, [*lines, hint]))

    def _counts(self) -> str:
        return (
            f"{len(self.missing)} missing, {len(self.unexpected)} unexpected, "
            f"{len(self.misshaped)} with a wrong shape; nothing was loaded"
        )


def in_options(fields: Mapping[str, Any]) -> str:
    """Config fields as options of a command."""
    words = []
    for name, value in fields.items():
        text = option_text(value)
        if name in ("classes", "channels"):
            words.append(f"--{name} {text}")
        else:
            words.append(f"--set {shlex.quote(f'{name}={text}')}")
    return " ".join(words)
