"""The built-in formats, one folder each with a TOML file per kind of model, and how they are read.

A user's own file of rules is read by the same function.
"""

from __future__ import annotations

import functools
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

from vitreous.config import from_dict
from vitreous.errors import ConfigError, did_you_mean
from vitreous.weights.rules import Alternative, Format, Rule

FOLDER = Path(__file__).parent
OWN = "vitreous"
"""Our own names and layouts: safetensors with the model's config inside."""


@functools.cache
def formats() -> dict[str, tuple[Format, ...]]:
    """The built-in formats, by name; each has a rule set per kind of model."""
    found: dict[str, tuple[Format, ...]] = {}
    for path in sorted(FOLDER.glob("*/*.toml")):
        name = path.parent.name
        found[name] = (*found.get(name, ()), read_format(path, name=name))
    return found


def find_format(name: str | Path, family: str) -> Format:
    """The rules for `family` in a built-in format, or in a TOML file of the user's."""
    if str(name) == OWN:
        return Format(OWN, rules=(Rule("{all}", ("{all}",)),), about="our own names")
    if str(name).endswith(".toml"):
        return read_format(Path(name), name=str(name))
    known = formats()
    if name not in known:
        hint = did_you_mean(str(name), [*known, OWN])
        raise ConfigError(
            f"unknown format {str(name)!r}{hint or ': use ' + ', '.join([*known, OWN])}"
            ", or the path of a .toml file with rules of your own"
        )
    for rules in known[str(name)]:
        if family in rules.families:
            return rules
    able = [n for n, sets in known.items() if any(family in s.families for s in sets)]
    raise ConfigError(
        f"format {str(name)!r} has no rules for {family} models: "
        f"use {', '.join([*able, OWN])}, or a .toml file with rules of your own"
    )


def read_format(path: Path, name: str) -> Format:
    """Rules from a TOML file. `same_as` takes over another file's, with changes."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file with rules") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"{path}: not a readable TOML file: {error}") from error
    base: Format | None = None
    if "same_as" in data:
        origin = str(data["same_as"])
        source = FOLDER / f"{origin}.toml"
        if not source.is_file():
            known = [f"{p.parent.name}/{p.stem}" for p in sorted(FOLDER.glob("*/*.toml"))]
            raise ConfigError(f"{path}: same_as = {origin!r}: use one of {', '.join(known)}")
        base = read_format(source, name=name)
    rules = data.pop("rules", {})
    alternatives = data.pop("alternatives", {})
    if not isinstance(rules, dict) or not isinstance(alternatives, dict):
        raise ConfigError(f"{path}: [rules] and [alternatives] must be tables")
    if not rules and base is None:
        raise ConfigError(f"{path}: expected a table [rules] of our names and theirs")
    data["rules"] = tuple(_read_rule(path, ours, row) for ours, row in rules.items())
    data["alternatives"] = {
        key: tuple(_read_alternative(path, key, row) for row in rows)
        for key, rows in alternatives.items()
    }
    read = from_dict(Format, {"name": name, **data}, where=str(path))
    if base is None:
        return read
    return replace(
        base,
        **{key: getattr(read, key) for key in data if key not in ("rules", "alternatives")},
        rules=read.rules + base.rules,
        alternatives={**base.alternatives, **read.alternatives},
    )


def _read_rule(path: Path, ours: str, row: Any) -> Rule:
    fields = dict(row) if isinstance(row, dict) else {"theirs": row}
    if isinstance(fields.get("theirs"), str):
        fields["theirs"] = (fields["theirs"],)
    rule = from_dict(Rule, {"ours": ours, "theirs": (), **fields}, where=f"{path}, rule {ours!r}")
    if not rule.theirs:
        raise ConfigError(f"{path}, rule {ours!r}: 'theirs' is missing")
    if rule.rows not in ("tokens", "all", "patches"):
        raise ConfigError(f"{path}, rule {ours!r}: rows must be tokens, all or patches")
    if rule.pattern is not None and rule.pattern.count("->") != 1:
        raise ConfigError(
            f"{path}, rule {ours!r}: a pattern reads 'theirs -> ours', like 'i o -> o i'"
        )
    if len(rule.theirs) > 1 and rule.pattern is None:
        raise ConfigError(f"{path}, rule {ours!r}: several keys need a pattern that joins them")
    return rule


def _read_alternative(path: Path, key: str, row: Any) -> Alternative:
    fields = row if isinstance(row, dict) else {"name": row}
    return from_dict(Alternative, fields, where=f"{path}, alternatives of {key!r}")
