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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from einops import EinopsError, rearrange
from torch import Tensor

from vitreous.errors import ConfigError


@dataclass(frozen=True)
class Rule:
    """One row of a format."""

    ours: str
    theirs: tuple[str, ...]
    pattern: str | None = None
    """einops pattern from theirs (stacked, if several) to ours."""
    parts: tuple[int, ...] = ()
    """Without a pattern: the proportions of several concatenated tensors; default: equal."""
    rows: str = "tokens"
    """Which tokens have a row in a position table that we write: class and distillation token and
    patches (tokens), also registers (all), or only patches (patches). We read all three."""
    if_absent: tuple[int | str, ...] | None = None
    """The shape of the zeros that we write where our model lacks the parameter."""
    when: str | None = None
    """Applies only if one of our parameters matches; used with `if_absent`."""


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
    prefixes: tuple[str, ...] = ()
    """Prefixes that all keys of a file may share."""
    drop: tuple[str, ...] = ()
    """Patterns of their keys that are ignored."""
    optional: tuple[str, ...] = ()
    """Patterns of our parameters that files may lack; the model keeps its own."""
    derived: tuple[Rule, ...] = ()
    """Rules for buffers that follow from the config (`Model.derived`): written, not read."""
    choices: Mapping[str, Any] = field(default_factory=dict)
    """The values of hidden config fields that this library's models support."""
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
            found = _regex(rule.ours).fullmatch(ours)
            if found:
                return rule, found.groupdict()
        return None

    def spellings(
        self, rule: Rule, values: Mapping[str, str], axes: Mapping[str, int]
    ) -> Iterator[list[str]]:
        """All spellings of the keys of a rule."""
        used = [name for name in self.alternatives if any(_uses(t, name) for t in rule.theirs)]
        for names in itertools.product(*(self.alternatives[name] for name in used)):
            chosen = {name: alt.name for name, alt in zip(used, names, strict=True)}
            yield _expand(rule.theirs, {**values, **chosen}, axes)

    def written(
        self, rule: Rule, values: Mapping[str, str], axes: Mapping[str, int], ours: Iterable[str]
    ) -> list[str]:
        """The keys of a rule in a file that we write."""
        ours = list(ours)
        chosen = {}
        for name, alternatives in self.alternatives.items():
            chosen[name] = next(alt.name for alt in alternatives if alt.applies(ours))
        return _expand(rule.theirs, {**values, **chosen}, axes)

    def ours_of(self, key: str, axes: Mapping[str, int], derived: bool = False) -> str | None:
        """Our name for one of their keys, whether or not the model has it."""
        for rule in self.derived if derived else self.rules:
            unchanged = {name: f"{{{name}}}" for name in placeholders(rule.ours)}
            for names in self.spellings(rule, unchanged, axes):
                for template in names:
                    found = _regex(template).fullmatch(key)
                    if found:
                        values = _solve(template, found.groupdict())
                        if values is not None:
                            return _fill(rule.ours, values)
        return None

    def unsupported(self, config: Any) -> list[str]:
        """Config values that this library's models do not support, although the weights fit."""
        return [
            f"{name} = {value!r} (only {', '.join(map(repr, values)) or 'the default'})"
            for name, values in self.choices.items()
            if (value := getattr(config, name, None)) is not None and value not in values
        ]


def to_ours(rule: Rule, tensors: Sequence[Tensor], axes: Mapping[str, int]) -> Tensor:
    """Their tensors in our layout. Extra or missing axes of length 1 do not matter."""
    shapes = ", ".join(str(tuple(t.shape)) for t in tensors)
    if rule.pattern is None:
        try:
            return torch.cat(list(tensors)) if len(tensors) > 1 else tensors[0]
        except RuntimeError as error:
            raise ValueError(f"{shapes} cannot be concatenated") from error
    left = rule.pattern.split("->")[0]
    try:
        if not _stacks(rule):
            return rearrange(_match_unit_axes(tensors[0], left), rule.pattern, **_sizes(left, axes))
        inner = " ".join(_axes(left)[1:])
        stacked = torch.stack([_match_unit_axes(t, inner) for t in tensors])
        return rearrange(stacked, rule.pattern, **_sizes(left, axes))
    except (EinopsError, RuntimeError) as error:
        raise ValueError(f"{shapes} does not fit the pattern '{rule.pattern}'") from error


def to_theirs(rule: Rule, value: Tensor, count: int, axes: Mapping[str, int]) -> list[Tensor]:
    """Our tensor as `count` tensors of theirs: the pattern read from right to left."""
    if rule.pattern is None:
        if count == 1:
            return [value]
        parts = rule.parts or (1,) * count
        return list(value.split([value.shape[0] * part // sum(parts) for part in parts]))
    left, right = (side.strip() for side in rule.pattern.split("->"))
    theirs = rearrange(value, f"{right} -> {left}", **_sizes(right, axes))
    return list(theirs.unbind(0)) if count > 1 or _stacks(rule) else [theirs]


_PLACEHOLDER = re.compile(r"\{(?P<times>\d+)?(?P<name>[A-Za-z_]\w*)(?P<plus>[+-]\d+)?\}")


def placeholders(template: str) -> list[str]:
    """The names in braces; anything else in braces is an error."""
    if re.search(r"[{}]", _PLACEHOLDER.sub("", template)):
        raise ValueError(
            f"{template!r}: expected a name in braces, like {{i}}, {{i+1}} or {{2i+1}}"
        )
    return [found["name"] for found in _PLACEHOLDER.finditer(template)]


@functools.cache
def _regex(template: str) -> re.Pattern[str]:
    """`blocks.{i}.norm` as a regex: `{all}` matches anything, other names no dot or slash."""
    result, end, seen = "", 0, set()
    for found in _PLACEHOLDER.finditer(template):
        name = found["name"]
        result += re.escape(template[end : found.start()])
        body = ".+" if name == "all" else "[^./]+?"
        result += f"(?P={name})" if name in seen else f"(?P<{name}>{body})"
        seen.add(name)
        end = found.end()
    return re.compile(result + re.escape(template[end:]))


def _solve(template: str, values: dict[str, str]) -> dict[str, str] | None:
    """The values of `i` from those of `{2i+1}`; None if there is no integer solution."""
    for found in _PLACEHOLDER.finditer(template):
        value = values[found["name"]]
        if (found["times"] or found["plus"]) and value.isdigit():
            rest = int(value) - int(found["plus"] or 0)
            if rest < 0 or rest % int(found["times"] or 1):
                return None
            values = {**values, found["name"]: str(rest // int(found["times"] or 1))}
    return values


def _uses(template: str, name: str) -> bool:
    return name in placeholders(template)


def _fill(template: str, values: Mapping[str, str]) -> str:
    """The template with its placeholders replaced; one without a value becomes `*`."""

    def piece(found: re.Match[str]) -> str:
        value = values.get(found["name"], "*")
        if not found["times"] and not found["plus"]:
            return value
        if not value.isdigit():
            return found.group(0)
        return str(int(found["times"] or 1) * int(value) + int(found["plus"] or 0))

    return _PLACEHOLDER.sub(piece, template)


def _expand(
    templates: Sequence[str], values: Mapping[str, str], axes: Mapping[str, int]
) -> list[str]:
    """Their keys; a template with `{head}` gives one key per attention head."""
    keys = []
    for template in templates:
        if _uses(template, "head"):
            if "heads" not in axes:
                raise ConfigError(f"rule for {template!r}: this model has no attention heads")
            keys += [_fill(template, {**values, "head": str(h)}) for h in range(axes["heads"])]
        else:
            keys.append(_fill(template, values))
    return keys


def _stacks(rule: Rule) -> bool:
    return len(rule.theirs) > 1 or _uses(rule.theirs[0], "head")


def _sizes(side: str, axes: Mapping[str, int]) -> dict[str, int]:
    """The axis lengths that einops needs for one side of a pattern: those in parentheses."""
    inside = set(re.findall(r"\w+", " ".join(re.findall(r"\(([^)]*)\)", side))))
    return {name: axes[name] for name in inside if name in axes}


def _match_unit_axes(tensor: Tensor, side: str) -> Tensor:
    """`tensor` with axes of length 1 added or removed to match one side of a pattern."""
    if "..." in side:
        return tensor
    atoms = _axes(side)
    if tensor.ndim == len(atoms):
        return tensor
    sizes = iter(size for size in tensor.shape if size != 1)
    return tensor.reshape([1 if atom == "1" else next(sizes, 1) for atom in atoms])


def _axes(side: str) -> list[str]:
    """The axes of one side of a pattern; a group in parentheses is one axis."""
    return re.findall(r"\([^)]*\)|\S+", side)
