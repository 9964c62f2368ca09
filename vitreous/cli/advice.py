"""Advice in errors, as options of the command that was called (see `vitreous.errors.advice`)."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from vitreous.cli import convert
from vitreous.cli.parse import arguments_of, options_of
from vitreous.errors import Spelling, Word
from vitreous.train.recipe import KEYS


def in_shell(options: Mapping[str, bool]) -> Spelling:
    """For a command with these options, by name; and whether each is a flag."""

    def spelled(name: str, value: Any) -> str:
        option, words = name.replace("_", "-"), _words(value)
        if option in options:
            return f"--{option}" if options[option] else f"--{option} {words}"
        if "set-recipe" in options and name in KEYS:
            return f"--set-recipe {name}={words}"
        if "set" in options and name in config_names():
            return f"--set {name}={words}"
        # Weights that do not fit can be changed by `convert` first.
        if "weights" in options and option in options_of(arguments_of(convert)):
            return f"--{option} {words} to 'vitreous convert'"
        return ""

    return spelled


def _words(value: Any) -> str:
    values = value if isinstance(value, list | tuple) else [value]
    return " ".join(each if isinstance(each, Word) else shlex.quote(str(each)) for each in values)


def config_names() -> set[str]:
    """The fields of all models, which --set changes."""
    from vitreous.config import marks
    from vitreous.models import FAMILIES

    return {name for family in FAMILIES.values() for name in marks(family.config)}
