"""Config fields on the command line."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from typing import Any

from vitreous.errors import ConfigError


def size_of(name: str, numbers: Sequence[int]) -> int | tuple[int, int]:
    """One number for both sides, or height and width."""
    if len(numbers) == 1:
        return numbers[0]
    if len(numbers) == 2:
        return numbers[0], numbers[1]
    raise ConfigError(f"{name} takes one number, or height and width; {len(numbers)} were given")


def config_fields(assignments: Sequence[str]) -> dict[str, Any]:
    """`["heads=4", "pool=mean"]` as values of the right type: TOML's, or else plain text."""
    fields: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals or not name:
            raise ConfigError(f"{assignment!r}: a field is given as name=value")
        try:
            fields[name.replace("-", "_")] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            fields[name.replace("-", "_")] = text
    return fields
