"""The built-in formats, a folder each with a TOML file per kind of model, and their reader.

A user's own file of rules is read by the same function.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Container, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from einops import EinopsError
from einops.parsing import ParsedExpression

from vitreous.config import Record, choice, flat_fields, from_dict, marks, read_toml
from vitreous.errors import ConfigError, did_you_mean
from vitreous.models import FAMILIES
from vitreous.models.extras import KEY as EXTRAS
from vitreous.models.old_fields import today, upgraded_fields
from vitreous.weights.fields import parameter_names
from vitreous.weights.rules.language import Alternative, Format, Rule
from vitreous.weights.rules.library_limits import LIMITS
from vitreous.weights.rules.patterns import apart, diagonal
from vitreous.weights.rules.templates import placeholders

FOLDER = Path(__file__).parent
ROWS = ("tokens", "all", "patches", "last", "first", "second")
OWN = "vitreous"
"""Our own names and layouts: safetensors with the model's config inside."""


@functools.cache
def formats() -> dict[str, tuple[Format, ...]]:
    """The built-in formats by name; each has a set of rules per kind of model."""
    found: dict[str, tuple[Format, ...]] = {}
    for path in sorted(FOLDER.glob("*/*.toml")):
        name = path.parent.name
        found[name] = (*found.get(name, ()), read_format(path, name=name))
    return found


def find_format(name: str | Path, family: str) -> Format:
    """The rules for `family` in a built-in format, or in the user's own TOML file."""
    if str(name) == OWN:
        own = Rule("{all}", ("{all}",))
        return Format(OWN, rules=(own,), about="our own names", drop=(f"{EXTRAS}*",))
    if str(name).endswith(".toml"):
        return read_format(Path(name), name=str(name))
    known = formats()
    if name not in known:
        hint = did_you_mean(str(name), [*known, OWN])
        raise ConfigError(
            f"unknown format {str(name)!r}{hint or ': use ' + ', '.join([*known, OWN])}"
            ", or the path of a .toml file with your own rules"
        )
    for rules in known[str(name)]:
        if family in rules.families:
            return rules
    able = [n for n, sets in known.items() if any(family in s.families for s in sets)]
    raise ConfigError(
        f"format {str(name)!r} has no rules for {family} models: "
        f"use {', '.join([*able, OWN])}, or a .toml file with your own rules"
    )


def read_format(path: Path, name: str) -> Format:
    """Rules from a TOML file. With `same_as` it extends another file."""
    data = read_toml(path, "rules")
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
    others = {name: data.pop(name) for name in ("derived", "beside") if name in data}
    if not all(isinstance(table, dict) for table in (rules, alternatives, *others.values())):
        raise ConfigError(f"{path}: [rules], [derived] and [alternatives] must be tables")
    for field in ("numbers", "choices", "writes"):
        if not isinstance(data.get(field, {}), dict):
            raise ConfigError(f"{path}: {field} = {data[field]!r}: expected a table of fields")
        if field in data:
            data[field] = flat_fields(data[field])
    words = _read_words(path, data.pop("words", {}), rules)
    if not rules and base is None:
        raise ConfigError(f"{path}: expected a table [rules] with our names and theirs")
    data["alternatives"] = {
        key: _read_alternatives(path, key, rows) for key, rows in alternatives.items()
    }
    spelled = {**(base.alternatives if base else {}), **data["alternatives"]}
    data["rules"] = tuple(
        rule
        for ours, rows in rules.items()
        for row in _alternative_rules(rows)
        for rule in _in_their_words(_read_rule(path, ours, row, spelled), words)
    )
    for other, table in others.items():
        data[other] = tuple(_read_rule(path, k, row, spelled) for k, row in table.items())
    read = from_dict(Format, {"name": name, **data}, where=str(path))
    _check_numbers(path, read)
    for limit in read.limits:
        choice("limits", limit, LIMITS)
    if base is not None:
        read = _extended(base, read, data)
    root = str(data.get("root", ""))  # that of `base` is in its rules already

    def within(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
        return tuple(replace(r, theirs=tuple(root + key for key in r.theirs)) for r in rules)

    return replace(read, rules=within(read.rules), derived=within(read.derived))


def _extended(base: Format, read: Format, given: Iterable[str]) -> Format:
    """A format with what another file changes of it. given: the fields in that file."""
    own = {rule.ours for rule in read.rules}
    return replace(
        base,
        **{key: getattr(read, key) for key in given if key not in ("rules", "alternatives")},
        rules=read.rules + tuple(rule for rule in base.rules if rule.ours not in own),
        alternatives={**base.alternatives, **read.alternatives},
    )


def _alternative_rules(rows: Any) -> list[Any]:
    """The rules for one of our names: a list with tables; a list of keys is one rule."""
    several = isinstance(rows, list) and any(isinstance(row, dict) for row in rows)
    return rows if several else [rows]


def _read_rule(path: Path, ours: str, row: Any, alternatives: Container[str]) -> Rule:
    where = f"{path}, rule {ours!r}"
    fields = dict(row) if isinstance(row, dict) else {"theirs": row}
    if isinstance(row, int | float) and not isinstance(row, bool):
        fields = {"value": row}
    if isinstance(fields.get("theirs"), str):
        fields["theirs"] = (fields["theirs"],)
    rule = from_dict(Rule, {"ours": ours, "theirs": (), **fields}, where=where)
    if not rule.theirs and rule.value is None:
        raise ConfigError(f"{where}: 'theirs' is missing: expected a key of theirs, or a value")
    if rule.theirs and rule.value is not None:
        raise ConfigError(f"{where}: either theirs or a value, not both")
    if isinstance(rule.value, str) and rule.value != "identity":
        raise ConfigError(f"{where}: value = {rule.value!r}: expected a number, or 'identity'")
    if not math.isfinite(rule.times) or rule.times == 0:
        raise ConfigError(f"{where}: times = {rule.times}: expected a finite number other than 0")
    if rule.rows not in ROWS:
        raise ConfigError(f"{where}: rows must be {', '.join(ROWS[:-1])} or {ROWS[-1]}")
    if rule.rows != "tokens" and not ours.endswith("position.table"):
        raise ConfigError(f"{where}: rows is only for position.table")
    if rule.parts and (rule.pattern is not None or len(rule.parts) != len(rule.theirs)):
        raise ConfigError(f"{where}: parts needs a number for each key, and no pattern")
    named = [axis for axis in rule.if_absent or () if isinstance(axis, str)]
    unknown = [axis for axis in named if axis not in ("dim", "core_dim", "classes")]
    if unknown:
        raise ConfigError(
            f"{where}: if_absent takes numbers, 'dim', 'core_dim' (of the model inside) and "
            f"'classes', not {unknown[0]!r}"
        )
    if rule.takes and (rule.pattern is not None or len(rule.theirs) > 1 or {*rule.takes} != {0, 1}):
        raise ConfigError(f"{where}: takes needs ones and zeros, a single key and no pattern")
    if rule.unused and len(rule.theirs) > 1:
        raise ConfigError(f"{where}: unused is only for a single key")
    _check_placeholders(where, rule, alternatives)
    for pattern in rule.patterns:
        _check_pattern(where, pattern)
    return rule


def _check_placeholders(where: str, rule: Rule, alternatives: Container[str]) -> None:
    try:
        known = placeholders(rule.ours)
        used = [name for template in rule.theirs for name in placeholders(template)]
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from error
    for name in used:
        if name not in known and name not in alternatives and name != "head":
            raise ConfigError(f"{where}: {{{name}}} is neither in our name nor in [alternatives]")


def _check_pattern(where: str, pattern: str) -> None:
    remedy = "expected 'theirs -> ours' with the same axes on both sides, like 'i o -> o i'"
    if pattern.count("->") != 1:
        raise ConfigError(f"{where}: {pattern!r}: {remedy}")
    sides = tuple(pattern.split("->"))
    try:
        if diagonal(pattern):
            left_side, axes, right_side = apart(pattern)
            if "..." in pattern or re.search(r"\b1\b", pattern):
                raise EinopsError("an axis named twice allows neither '...' nor 1")
            sides = left_side, f"{axes} {diagonal(pattern)}"
            ParsedExpression(right_side)
        left, right = (ParsedExpression(side).identifiers for side in sides)
    except EinopsError as error:
        raise ConfigError(f"{where}: {pattern!r}: {error}: {remedy}") from error
    if left - right or right - left not in (set(), {"heads"}):
        raise ConfigError(f"{where}: {pattern!r}: {remedy}")


def _read_words(path: Path, given: Any, rules: Iterable[str]) -> dict[str, dict[str, str]]:
    tables = list(given.values()) if isinstance(given, dict) else [given]
    if not all(
        isinstance(table, dict) and all(isinstance(word, str) for word in table.values())
        for table in tables
    ):
        raise ConfigError(
            f"{path}: words: expected a table for each placeholder, of our words and theirs, like "
            'words = { n = { weight = "gamma", bias = "beta" } }'
        )
    for name in given:
        if not any(f"{{{name}}}" in ours for ours in rules):
            raise ConfigError(f"{path}: words: none of our names in [rules] has {{{name}}}")
    return given


def _in_their_words(rule: Rule, words: dict[str, dict[str, str]]) -> list[Rule]:
    """A rule for each word that a placeholder of theirs has otherwise, and that for all others."""
    rules = [rule]
    for name, table in words.items():
        place = f"{{{name}}}"
        rules = [
            replace(
                each,
                ours=each.ours.replace(place, ours),
                theirs=tuple(key.replace(place, theirs) for key in each.theirs),
            )
            for each in rules
            for ours, theirs in {**(table if place in each.ours else {}), place: place}.items()
        ]
    return rules


def _read_alternatives(path: Path, key: str, rows: Any) -> tuple[Alternative, ...]:
    where = f"{path}, alternatives of {key!r}"
    if not isinstance(rows, list):
        raise ConfigError(f"{where}: expected a list of spellings")
    read = tuple(
        from_dict(Alternative, row if isinstance(row, dict) else {"name": row}, where=where)
        for row in rows
    )
    if all(alternative.when or alternative.unless for alternative in read):
        raise ConfigError(f"{where}: one of them needs no 'when' or 'unless', as the default")
    return read


def _check_numbers(path: Path, read: Format) -> None:
    """`numbers` and `choices` are about fields that models have, and values that they may have."""
    configs: list[type[Record]] = [FAMILIES[family].config for family in read.families or FAMILIES]
    for what, choices in (("choices", read.choices), ("writes", read.writes)):
        for name, values in choices.items():
            if not isinstance(values, list | tuple):
                raise ConfigError(f"{path}: {what} of {name}: expected a list")
    tables = [("numbers", {n: [v] for n, v in read.numbers.items()}), ("choices", read.choices)]
    tables.append(("writes", read.writes))
    for setting, needed in read.needs.items():
        tables.append(("needs", {setting.partition("=")[0]: []}))
        tables.append(("needs", {name: [value] for name, value in needed.items()}))
    for what, table in tables:
        for name, values in table.items():
            owners = [each for each in configs if today(name, each) in marks(each)]
            if not owners:
                known = sorted({name for each in configs for name in marks(each)})
                hint = did_you_mean(name, known) or f": the fields are {', '.join(known)}"
                raise ConfigError(f"{path}: {what}: unknown field {name!r}{hint}")
            for value in values:
                try:
                    for field, own in upgraded_fields(owners[0], {name: value}).items():
                        owners[0].check_value(field, own)
                except ConfigError as error:
                    raise ConfigError(f"{path}: {what}: {error}") from None


def check_names(rules: Format, family: str, names: Iterable[str]) -> None:
    """A rule of the user's that can match no parameter of such models is misspelt; one that this
    model has no parameter for is not. names: the model's parameters."""
    if not rules.name.endswith(".toml"):
        return
    names = list(names)
    known = {rule.ours for sets in formats().values() for each in sets for rule in each.rules}
    for rule in (rule for rule in rules.rules if not rule.unused and rule.ours not in known):
        if not any(map(rule.matches, names)) and not any(
            map(rule.matches, parameter_names(family))
        ):
            templates = sorted({re.sub(r"\.\d+\.", ".{i}.", name) for name in names})
            hint = did_you_mean(rule.ours.replace(".{p}", ".weight"), templates)
            raise ConfigError(
                f"{rules.name}, rule {rule.ours!r}: no {family} model has such a parameter{hint}"
            )
