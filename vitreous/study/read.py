"""Reads a study file. Everything in it is checked before anything runs, and an error names the
file and the key."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

from vitreous.config import checked, choice, from_dict, parse_toml, read_toml, type_hints
from vitreous.errors import ConfigError, did_you_mean
from vitreous.study.spec import (
    BEYOND,
    ENDS,
    KINDS,
    TIERS,
    Before,
    Claim,
    Equal,
    Expect,
    Paper,
    Search,
    Study,
    Table,
    Tier,
    Variant,
    arm_of,
    axis_of,
    text_of,
)


def read_study(path: Path) -> Study:
    """A file, checked; an error names it and the key."""
    values = read_toml(path, "a study")
    return _study(values, path.read_text(encoding="utf-8"), str(path), path.stem)


def parse_study(text: str, where: str = "study") -> Study:
    """From the text of a study file."""
    return _study(parse_toml(text, where), text, where, where)


SECTIONS = {"claim": Claim, "paper": Paper, "search": Search, "equal": Equal}


def _study(values: Table, text: str, where: str, name: str) -> Study:
    values = dict(values)
    for own in ("file", "text", "name", "seeds"):
        if own in values:
            raise ConfigError(f"{where}: unknown key {own!r}: tiers have seeds, the file a name")
    for key, kind in SECTIONS.items():
        if key in values:
            values[key] = from_dict(kind, values[key], where=f"[{key}] of {where}")
    for key in ("recipe", "over", "tier", "own"):
        if not isinstance(values.get(key, {}), dict):
            raise ConfigError(f"{where}: {key} = {values[key]!r}: expected a table, [{key}]")
    study = Study(**checked(Study, values, where=where), file=where, text=text, name=name)
    study = replace(
        study,
        search=_spelled(study.search, where),
        equal=_spelled(study.equal, where),
        before=tuple(_spelled(each, f"{where}: [[before]] {each.name}") for each in study.before),
        expect=tuple(_spelled(each, f"{where}: [[expect]]") for each in study.expect),
    )
    _check(study)
    return study


def _spelled(row: Any, where: str) -> Any:
    """Choices (`Literal`) as they stand above; an unknown one is an error."""
    hints = {each.name: _choices_of(type(row), each.name) for each in fields(row)}
    changes = {}
    for name, known in hints.items():
        if known and getattr(row, name) != "":
            try:
                changes[name] = choice(name, getattr(row, name), known)
            except ConfigError as error:
                raise ConfigError(f"{where}: {error}") from None
    return replace(row, **changes)


def _choices_of(record: type, name: str) -> tuple[str, ...]:
    """The choices of a field."""
    hint = type_hints(record)[name]
    return tuple(filter(None, get_args(hint))) if "Literal" in str(hint) else ()


def _check(study: Study) -> None:
    """What the types do not say."""
    where = study.file
    if not study.question:
        raise ConfigError(f"{where}: question is missing: what does the study ask?")
    if not study.variant:
        raise ConfigError(f"{where}: there is no [[variant]]: a study compares at least one")
    _check_names(study)
    _check_paper(study)
    if study.over:
        axis_of(study.over, where)
    if "lr" in _explicit(study) and study.search.lr:
        raise ConfigError(f"{where}: [search] lr chooses the learning rate: leave out lr = …")
    if any(not 0 < lr < math.inf for lr in study.search.lr):
        raise ConfigError(f"{where}: [search] lr = {list(study.search.lr)}: expected above 0")
    if (study.equal.what == "cpu") != bool(study.equal.time) and not _tier_times(study):
        raise ConfigError(
            f"{where}: [equal] what = {study.equal.what!r}, time = {study.equal.time!r}: a time "
            "('30s') and what = 'cpu' belong together"
        )
    for name in study.tier:
        if name not in TIERS:
            hint = did_you_mean(name, TIERS) or f": the tiers are {', '.join(TIERS)}"
            raise ConfigError(f"{where}: unknown tier {name!r}{hint}")
    for rule in study.expect:
        _check_rule(study, rule)
    _check_changes(study, study.own, f"{where}: [own]")
    for name in TIERS:
        _check_changes(study, study.tier.get(name, {}), f"{where}: [tier.{name}]")
        _check_axis(study.at_tier(name))


def _tier_times(study: Study) -> bool:
    return any("time" in tier.get("equal", {}) for tier in study.tier.values())


def _explicit(study: Study) -> set[str]:
    """Keys that the recipe of a variant has, or that of all."""
    return {*study.recipe, *(key for each in study.variant for key in each.recipe)}


def _check_changes(study: Study, table: Table, where: str) -> None:
    """Of a tier, or of the user's own data."""
    tier = from_dict(Tier, table, where=where)
    for key, rows in (("variant", study.variant), ("before", study.before)):
        known = [row.name for row in rows]
        for each in getattr(tier, key):
            _known(f"{where} {key}", each, known)
    for each in tier.variants:
        _known(f"{where} variants", each, [row.name for row in study.variant])


def _check_axis(study: Study) -> None:
    """A value that a rule names is one of the axis, at every tier."""
    if study.over:
        axis_of(study.over, study.file)


def _check_names(study: Study) -> None:
    """Every row has a name of its own that can be a folder's, and every @NAME is there."""
    where = study.file
    rows: tuple[Before | Variant, ...] = (*study.before, *study.variant)
    for row in rows:
        if not re.fullmatch(r"[a-z0-9][a-z0-9.+-]*", row.name):
            raise ConfigError(
                f"{where}: [[{type(row).__name__.lower()}]] name = {row.name!r}: expected small "
                "letters, digits and -, such as no-positions"
            )
    every = [row.name for row in rows]
    if twice := next((name for name in every if every.count(name) > 1), None):
        raise ConfigError(f"{where}: {twice!r} is the name of two rows: give each its own")
    known: list[str] = []
    for row in rows:
        for key, value in {**study.recipe, **row.recipe}.items():
            if isinstance(value, str) and value.startswith(BEYOND):
                _known(f"{where}: {row.name}: {key}", value.removeprefix(BEYOND), known)
        if isinstance(row, Variant) and row.run:
            _known(f"{where}: {row.name}: run", row.run.removeprefix(BEYOND), known)
            if row.recipe or row.set:
                raise ConfigError(
                    f"{where}: {row.name}: run = {row.run!r} is measured as it is: leave out "
                    "recipe and set"
                )
        if isinstance(row, Before):
            known.append(row.name)
    for each in study.measure:
        for name in each.variants:
            _known(f"{where}: [[measure]] {each.what}", name, [row.name for row in study.variant])


def _check_paper(study: Study) -> None:
    known = [row.name for row in study.variant]
    for table in ("values", "others"):
        for name, value in getattr(study.paper, table).items():
            if table == "values":
                _known(
                    f"{study.file}: [paper] values", name, known, "; [paper] others has the rest"
                )
            pairs = value if isinstance(value, list) else [[0, value]]
            if not pairs or not all(_is_pair(each) for each in pairs):
                raise ConfigError(
                    f"{study.file}: [paper] {name} = {value!r}: expected a number, or a list of "
                    "[x, number]"
                )


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and isinstance(value[1], int | float)


def _known(where: str, name: str, known: Iterable[str], otherwise: str = "") -> None:
    known = list(known)
    if name not in known:
        hint = did_you_mean(name, known) or f": there are {', '.join(known) or 'none'}"
        raise ConfigError(f"{where}: unknown name {name!r}{hint}{otherwise}")


NEEDS = {
    "better": ("than",),
    "more": ("than",),
    "close": ("within",),
    "gap": ("along",),
    "rises": (),
    "falls": (),
}
ALLOWS = {
    "better": ("by", "on", "at"),
    "more": ("by", "on", "at"),
    "close": ("on", "at"),
    "gap": ("on",),
    "rises": ("by", "on"),
    "falls": ("by", "on"),
}


def _check_rule(study: Study, rule: Expect) -> None:
    where = f"{study.file}: [[expect]] {study.expect.index(rule) + 1}"
    given = [each.name for each in fields(rule) if getattr(rule, each.name) != each.default]
    kinds = [name for name in KINDS if name in given]
    if len(kinds) != 1:
        raise ConfigError(
            f"{where}: expected exactly one of {', '.join(KINDS)}; it has "
            f"{' and '.join(kinds) or 'none'}"
        )
    kind = kinds[0]
    for name in NEEDS[kind]:
        if name not in given:
            raise ConfigError(f"{where}: {kind} needs {name}")
    for name in given:
        if name not in (kind, "text", *NEEDS[kind], *ALLOWS[kind]):
            raise ConfigError(f"{where}: {name} = {getattr(rule, name)!r} does nothing for {kind}")
    variants = [row.name for row in study.variant]
    for arm in rule.arms:
        _known(f"{where} {kind}", arm_of(arm), variants)
    axis = study.axis
    if kind == "close" and (len(rule.close) < 2 or (rule.within or 0) <= 0):
        raise ConfigError(f"{where}: close names two variants or more, and within is above 0")
    if kind == "gap" and len(rule.gap) != 2:
        raise ConfigError(f"{where}: gap = {list(rule.gap)}: expected two variants")
    if kind in ("gap", "rises", "falls") and axis is None and not rule.on:
        raise ConfigError(
            f"{where}: {kind} needs an axis: give [over], or on = a number of a series"
        )
    for value in (rule.at, *(arm.partition(BEYOND)[2] or None for arm in rule.arms)):
        # a number may be a series with an axis of its own
        if value in (None, "all", *ENDS) or rule.on:
            continue
        if axis is None:
            raise ConfigError(f"{where}: {value!r} is a value of an axis: give [over]")
        _known(f"{where}: the axis {axis.name}", text_of(value), map(text_of, axis.values))
