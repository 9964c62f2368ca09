"""Advice in errors, in the words of the shell.

An error that is raised below the commands does not know who will see it, so its advice is Python:
`pass pad=True`. On the command line the same advice names an option, if the command has one.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Mapping
from typing import Any

_VALUE = r"""(?:'[^']*'|"[^"]*"|\[[^\]]*\]|\([^)]*\)|[^\s,;:()]+)"""
_ARGUMENT = rf"([a-z_.]+)=({_VALUE})"
_ADVICE = re.compile(
    rf"(?P<before>(?:[:;,](?: or)? | or )?)(?P<verb>pass|leave out) "
    rf"(?P<arguments>{_ARGUMENT}(?:(?:, or |, | or ){_ARGUMENT})*)(?P<after>[^;.,\n]*)"
)


def in_shell(message: str, options: Mapping[str, bool]) -> str:
    """A message with its advice as options of a command; advice that needs others is left out.

    options: the command's, by name, and whether each is a flag.
    """

    def spelled(found: re.Match[str]) -> str:
        given = re.findall(_ARGUMENT, found["arguments"])
        ways = [way for name, value in given if (way := _option(name, value, options))]
        if not ways:
            return ""
        return f"{found['before']}{found['verb']} {' or '.join(ways)}{found['after']}"

    lines = [(_ADVICE.sub(spelled, line), line) for line in message.split("\n")]
    return "\n".join(new for new, line in lines if new or not line)


def _option(name: str, text: str, options: Mapping[str, bool]) -> str:
    """`--name value`, or "" if the command has no such option."""
    option, value = name.replace("_", "-"), _words(text)
    if option in options:
        return f"--{option}" if options[option] else f"--{option} {value}"
    if "set" in options and name in _config_fields():
        return f"--set {name}={value}"
    if "weights" in options and option in _convert_options():
        return f"--{option} {value} to 'vitreous convert'"
    return ""


def _words(text: str) -> str:
    """A value of Python as words of a shell; a placeholder stays what it is."""
    try:
        value: Any = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text.strip("[]()").replace(",", "")
    values = value if isinstance(value, list | tuple) else [value]
    return " ".join(shlex.quote(str(each)) for each in values)


def _config_fields() -> set[str]:
    """The fields of all models, which --set changes."""
    from vitreous.config import marks
    from vitreous.models import FAMILIES

    return {name for family in FAMILIES.values() for name in marks(family.config)}


def _convert_options() -> Mapping[str, bool]:
    """Weights that do not fit can be changed by `convert` first."""
    from vitreous.cli import convert
    from vitreous.cli.parse import arguments_of, options_of

    return options_of(arguments_of(convert))
