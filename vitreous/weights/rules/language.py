"""A checkpoint format as data: rules that map our parameter names to those of another library.

A rule pairs one of our names with one or several of theirs; `{i}` matches the same text on both
sides (`{i+1}` and `{2i+1}` compute with it). Where the layout differs, an einops pattern converts
theirs to ours; read from right to left it converts ours to theirs. Several tensors of theirs are
concatenated along the first axis; with a pattern they are stacked on a new first axis, so one
pattern can fuse, split, transpose and reshape:

    "blocks.{i}.attention.qkv.weight" = { theirs = ["l{i}.q", "l{i}.k", "l{i}.v"],
                                          pattern = "qkv d width -> (qkv width) d" }

`docs/formats.md` describes the file format; the built-in formats are in `formats/*/*.toml`.
"""

from __future__ import annotations

import fnmatch
import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from vitreous.config import Uncommon, changed, flat, own_marks
from vitreous.errors import ConfigError
from vitreous.models.old_fields import upgraded_fields
from vitreous.weights.rules.library_limits import broken_limits
from vitreous.weights.rules.templates import (
    PLACEHOLDER,
    expand,
    fill,
    placeholders,
    regex,
    solve,
    uses,
)

Shape = tuple[int, ...]
_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True)
class Rule:
    """One row of a format."""

    ours: str
    theirs: tuple[str, ...]
    pattern: str | tuple[str, ...] | None = None
    """einops pattern from theirs (stacked, if several) to ours; without one the shapes are the
    same. Of several, the first that fits is read, and the first is written."""
    parts: tuple[int, ...] = ()
    """Without a pattern: the proportions of several concatenated tensors; default: equal."""
    takes: tuple[int, ...] = ()
    """Which of equal parts of their tensor, along its first axis, are ours: 1, or 0 for those that
    their model holds at zero."""
    rows: str = "tokens"
    """Which tokens have a row in a position table that we write: class and distillation token and
    patches (tokens), also registers (all), or only patches (patches). We read all three. Where
    class and distillation token have the last rows: last. Of a table with more rows than tokens
    the first are used (first), or all but the first, which is for a class token that their model
    does not have (second); the others are kept for an export."""
    value: float | Literal["identity"] | None = None
    """Instead of theirs: what our parameter is where their models have none. 0 for a bias, 1 for a
    norm's weight, identity for a square matrix."""
    times: float = 1.0
    """Factor from theirs to ours: for a scale that their code applies outside of its parameters."""
    if_absent: tuple[int | str, ...] | None = None
    """The shape of the zeros that we write where our model lacks the parameter."""
    when: str | None = None
    """Written only if one of our parameters or settings (`activation=silu-gated`) matches; for one
    of several rules for the same parameter, or with `if_absent` or `unused`."""
    unused: bool = False
    """No model of ours has it: an import keeps it beside the weights, and an export writes it."""

    @property
    def patterns(self) -> tuple[str, ...]:
        return (self.pattern,) if isinstance(self.pattern, str) else self.pattern or ()

    def matches(self, ours: str) -> bool:
        return regex(self.ours).fullmatch(ours) is not None

    @property
    def stacks(self) -> bool:
        """Whether a pattern sees several tensors, stacked on a new first axis."""
        return len(self.theirs) > 1 or any(uses(theirs, "head") for theirs in self.theirs)

    def constant(self, like: Tensor) -> Tensor:
        """Our parameter, of this shape, by `value`."""
        assert self.value is not None
        if isinstance(self.value, str):
            return torch.eye(*like.shape, dtype=like.dtype, device=like.device)
        return torch.full_like(like, self.value)


class Place(NamedTuple):
    """Where a key of theirs belongs."""

    ours: str
    rule: Rule
    spelling: int
    """Which of the rule's spellings it is in,"""
    part: int
    """which of the rule's keys it is,"""
    head: int
    """and of which attention head (0 for keys that are not per head)."""


class _Template(NamedTuple):
    """One key of a rule in one spelling."""

    key: str
    rule: Rule
    spelling: int
    part: int
    skeleton: re.Pattern[str]
    """Matches keys with other numbers too, written as #: it rules out most templates."""


@dataclass(frozen=True)
class Alternative:
    """One of the spellings that a placeholder of theirs may have."""

    name: str
    when: str | None = None
    """Written only if one of our parameters matches; the first that applies is written."""
    unless: str | None = None
    """Written only if none of our parameters matches."""

    def applies(self, ours: list[str]) -> bool:
        when = self.when is None or bool(fnmatch.filter(ours, self.when))
        return when and (self.unless is None or not fnmatch.filter(ours, self.unless))


@dataclass(frozen=True)
class Format:
    """All rules of one format for one kind of model."""

    name: str
    rules: tuple[Rule, ...]
    about: str = ""
    families: tuple[str, ...] = ()
    wrap: str | None = None
    """The key of the tensors in the outer dict of a .pth file."""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    """Config values of every model in this library."""
    root: str = ""
    """What stands before every key of the rules: their model is part of a larger one."""
    prefixes: tuple[str, ...] = ()
    """Prefixes that all keys of a file may share."""
    drop: tuple[str, ...] = ()
    """Patterns of their keys that are ignored."""
    optional: tuple[str, ...] = ()
    """Patterns of our parameters that files may lack; the model keeps its own."""
    derived: tuple[Rule, ...] = ()
    """Rules for buffers that follow from the config (`Model.derived`): written, not read."""
    owns: tuple[str, ...] = ()
    """Of a text tower: patterns of the keys that are its own in a file that has an image tower
    too,"""
    beside: tuple[Rule, ...] = ()
    """and rules for what compares the two."""
    choices: Mapping[str, Any] = field(default_factory=dict)
    """The values of hidden config fields that this library's models support."""
    needs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The values of other fields that a model with some value (`head=linear`) has in this
    library."""
    ask: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Fields in which models of this library differ although nothing shows it: their values, and
    whose they are."""
    writes: Mapping[str, Any] = field(default_factory=dict)
    """The same for models that we write: their library builds no others, but there are files of
    people who have changed it, which are read."""
    advice: Mapping[str, str] = field(default_factory=dict)
    """What to do before their library loads a model with (`head=none`) or without (`channels!=3`)
    some value."""
    limits: tuple[str, ...] = ()
    """What else its models are limited to: names from `library_limits.py`."""
    alternatives: Mapping[str, tuple[Alternative, ...]] = field(default_factory=dict)
    note: str = ""
    """A note for the import report …"""
    note_when: Mapping[str, Any] = field(default_factory=dict)
    """… if the model's config has these values."""
    same_as: str = ""
    """The format file that this one extends."""

    def rule_for(self, ours: str, derived: bool = False) -> tuple[Rule, dict[str, str]] | None:
        """The first rule that matches our parameter, and the values of its placeholders."""
        for rule in self.derived if derived else self.rules:
            found = regex(rule.ours).fullmatch(ours)
            if found:
                return rule, found.groupdict()
        return None

    def rules_for(self, ours: str) -> list[tuple[Rule, dict[str, str]]]:
        """All rules that a file lists for our parameter: the spelling of some of its models is
        another one. Any of them is read."""
        first = self.rule_for(ours)
        if first is None:
            return []
        return [(rule, first[1]) for rule in self.rules if rule.ours == first[0].ours]

    def rule_to_write(self, ours: str, known: list[str]) -> tuple[Rule, dict[str, str]] | None:
        """The first of them that applies to a model with these parameters and settings."""
        rules = self.rules_for(ours)
        for rule, values in rules:
            if rule.when is None or fnmatch.filter(known, rule.when):
                return rule, values
        return rules[-1] if rules else None

    @property
    def unseen(self) -> tuple[str, ...]:
        """Patterns of our parameters whose shape no file shows: constants of this format, and
        positions of which the first are used."""
        rules = [rule for rule in self.rules if rule.value is not None or rule.rows == "first"]
        return tuple(PLACEHOLDER.sub("*", rule.ours) for rule in rules)

    @property
    def cuts_positions(self) -> bool:
        return any(rule.rows == "first" for rule in self.rules)

    def spellings(
        self, rule: Rule, values: Mapping[str, str], axes: Mapping[str, int]
    ) -> Iterator[list[str]]:
        """All spellings of the keys of a rule."""
        for chosen in self._choices(rule):
            yield expand(rule.theirs, {**values, **chosen}, axes)

    def written(
        self, rule: Rule, values: Mapping[str, str], axes: Mapping[str, int], ours: Iterable[str]
    ) -> list[str]:
        """The keys of a rule in a file that we write."""
        ours = list(ours)
        chosen = {}
        for name, alternatives in self.alternatives.items():
            chosen[name] = next(alt.name for alt in alternatives if alt.applies(ours))
        return expand(rule.theirs, {**values, **chosen}, axes)

    def ours_of(self, key: str, derived: bool = False) -> str | None:
        """Our name for one of their keys, whether or not the model has it."""
        return next((place.ours for place in self.places_of(key, derived)), None)

    def places_of(self, key: str, derived: bool = False) -> Iterator[Place]:
        """Every parameter of ours that a key may belong to, by the rules alone."""
        skeleton = _DIGITS.sub("#", key)
        near = self._near.get((skeleton, derived))
        if near is None:
            known = self._templates[derived]
            near = [each for each in known if each.skeleton.fullmatch(skeleton)]
            self._near[skeleton, derived] = near
        for template in near:
            found = regex(template.key).fullmatch(key)
            values = solve(template.key, found.groupdict()) if found else None
            if values is None:
                continue
            head = values.pop("head", "0")
            ours = fill(template.rule.ours, values)
            first = self.rule_for(ours, derived)
            if head.isdigit() and first is not None and first[0].ours == template.rule.ours:
                yield Place(ours, template.rule, template.spelling, template.part, int(head))

    @functools.cached_property
    def _near(self) -> dict[tuple[str, bool], list[_Template]]:
        return {}

    @functools.cached_property
    def _templates(self) -> dict[bool, list[_Template]]:
        """Of the rules, and of those for what is derived."""
        return {
            derived: [each for rule in rules for each in self._templates_of(rule)]
            for derived, rules in ((False, self.rules), (True, self.derived))
        }

    def _templates_of(self, rule: Rule) -> Iterator[_Template]:
        unchanged = {name: f"{{{name}}}" for name in (*placeholders(rule.ours), "head")}
        for spelling, chosen in enumerate(self._choices(rule)):
            for part, template in enumerate(rule.theirs):
                key = fill(template, {**unchanged, **chosen})
                literal = PLACEHOLDER.split(key)[::4]  # between the placeholders and their parts
                names = [found.group(0) for found in PLACEHOLDER.finditer(key)]
                masked = "".join(
                    _DIGITS.sub("#", text) + name
                    for text, name in itertools.zip_longest(literal, names, fillvalue="")
                )
                yield _Template(key, rule, spelling, part, regex(masked))

    def _choices(self, rule: Rule) -> Iterator[dict[str, str]]:
        """The spellings of a rule's placeholders, by name."""
        used = [name for name in self.alternatives if any(uses(t, name) for t in rule.theirs)]
        for names in itertools.product(*(self.alternatives[name] for name in used)):
            yield {name: alt.name for name, alt in zip(used, names, strict=True)}

    def needed(self, config: Any) -> dict[str, Any]:
        """The values that a model of this config would have to have, by `needs`."""
        have = flat(config)
        return {
            name: value
            for setting, values in self.needs.items()
            if str(have.get(setting.partition("=")[0])) == setting.partition("=")[2]
            for name, value in upgraded_fields(type(config), values).items()
            if have.get(name) != value
        }

    def advice_for(self, config: Any) -> list[str]:
        """What to do before their library loads a model of this config."""
        found = []
        for setting, text in self.advice.items():
            name, value = re.split("!?=", setting)
            same = str(flat(config).get(name)) == value
            if same != ("!=" in setting):
                found.append(text)
        return found

    def unsupported(self, config: Any) -> list[str]:
        """Config values that this library's models do not support, although the weights fit."""
        have = flat(config)
        known = upgraded_fields(type(config), {**self.choices, **self.writes})
        others = [
            f"{name} = {value!r} (only {', '.join(map(repr, values)) or 'the default'})"
            for name, values in known.items()
            if (value := have.get(name)) is not None and value not in values
        ]
        others += [
            f"{name} = {have.get(name)!r} in such a model (only {value!r})"
            for name, value in self.needed(config).items()
        ]
        others += broken_limits(self.limits, config)
        if self.families:
            others += [
                f"{name} = {have[name]!r} (no published library has it)"
                for name, about in own_marks(config).items()
                if any(
                    isinstance(each, Uncommon) and have.get(name) in each.values for each in about
                )
            ]
        return others + [
            f"{name} = {have.get(name)!r} (only {value!r})"
            for name, value in self.unlike(config).items()
        ]

    def unlike(self, config: Any) -> dict[str, Any]:
        """The numbers of this library that a config has otherwise, but for the norms' epsilon,
        which an import sets."""
        return {
            name: value
            for name, value in upgraded_fields(type(config), self.numbers).items()
            if name != "norm_eps" and name in flat(config) and not has_field(config, name, value)
        }


def has_field(config: Any, name: str, value: Any) -> bool:
    """Whether a config with this value of a field is the same."""
    try:
        return bool(changed(config, {name: value}) == config)
    except ConfigError:
        return False
