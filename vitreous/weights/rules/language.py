"""A checkpoint format as data: rules that say what another library calls our parameters.

A rule pairs a name of ours with one or several of theirs; `{i}` stands for the same piece of text
on both sides (`{i+1}`: one more; `{2i+1}`: every second number). Where the layout differs, an
einops pattern turns theirs into ours; read from right to left it turns ours into theirs. Several
tensors of theirs are joined along their first axis; with a pattern they are stacked on a new one,
so that fusing, splitting, transposing and reshaping are all one pattern:

    "blocks.{i}.attention.qkv.weight" = { theirs = ["l{i}.q", "l{i}.k", "l{i}.v"],
                                          pattern = "qkv d width -> (qkv width) d" }

`docs/formats.md` describes the file format; `formats/*/*.toml` are examples, and all there is.
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
    """Without a pattern: the proportions of several joined tensors, alike unless given."""
    rows: str = "tokens"
    """For a position table: do class and distillation token (tokens), also registers (all), or only
    the patches (patches) have rows in the files that we write? Reading understands all three."""
    if_absent: tuple[int | str, ...] | None = None
    """The shape of the empty tensor that they keep where we have no such parameter."""
    when: str | None = None
    """Applies only if one of our parameters matches; used with `if_absent`."""


@dataclass(frozen=True)
class Alternative:
    """One of several pieces of text that a placeholder of theirs may stand for."""

    name: str
    when: str | None = None
    """Written only if one of our parameters matches; the first that may be written is."""
    unless: str | None = None
    """Written only if none of our parameters matches."""

    def may_be_written(self, ours: list[str]) -> bool:
        wanted = self.when is None or bool(fnmatch.filter(ours, self.when))
        return wanted and (self.unless is None or not fnmatch.filter(ours, self.unless))


@dataclass(frozen=True)
class Format:
    """All rules of one format for one kind of model."""

    name: str
    rules: tuple[Rule, ...]
    about: str = ""
    families: tuple[str, ...] = ()
    wrap: str | None = None
    """The key under which a .pth file holds the tensors."""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    """Config values that every model of this library has."""
    prefixes: tuple[str, ...] = ()
    """Text that may stand before every key of a file."""
    drop: tuple[str, ...] = ()
    """Patterns of their keys that we have no use for."""
    optional: tuple[str, ...] = ()
    """Patterns of our parameters that files may lack; they stay as they are."""
    derived: tuple[Rule, ...] = ()
    """Rules for what their files hold although it follows from the sizes (`Model.derived`): it is
    written, and of what is read it is dropped."""
    choices: Mapping[str, Any] = field(default_factory=dict)
    """Config values that this library's models can have, where no parameter shows them."""
    alternatives: Mapping[str, tuple[Alternative, ...]] = field(default_factory=dict)
    note: str = ""
    """What who imports should know,"""
    note_when: Mapping[str, Any] = field(default_factory=dict)
    """if the model's config has these values."""
    same_as: str = ""
    """The file whose rules these are, with changes."""

    def rule_for(self, ours: str, derived: bool = False) -> tuple[Rule, dict[str, str]] | None:
        """The first rule that covers our parameter, and what its placeholders stand for."""
        for rule in self.derived if derived else self.rules:
            found = _regex(rule.ours).fullmatch(ours)
            if found:
                return rule, found.groupdict()
        return None

    def spellings(
        self, rule: Rule, values: Mapping[str, str], axes: Mapping[str, int]
    ) -> Iterator[list[str]]:
        """Every way in which a file may spell the keys of a rule."""
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
            chosen[name] = next(alt.name for alt in alternatives if alt.may_be_written(ours))
        return _expand(rule.theirs, {**values, **chosen}, axes)

    def ours_of(self, key: str, axes: Mapping[str, int], derived: bool = False) -> str | None:
        """Our name for a key of theirs, whether or not the model has it."""
        for rule in self.derived if derived else self.rules:
            unfilled = {name: f"{{{name}}}" for name in placeholders(rule.ours)}
            for names in self.spellings(rule, unfilled, axes):
                for template in names:
                    found = _regex(template).fullmatch(key)
                    if found:
                        values = _unreckoned(template, found.groupdict())
                        if values is not None:
                            return _fill(rule.ours, values)
        return None

    def cannot_say(self, config: Any) -> list[str]:
        """What this library's models cannot compute, although their parameters would fit."""
        return [
            f"{name} = {value!r} (it has {', '.join(map(repr, values)) or 'no such choice'})"
            for name, values in self.choices.items()
            if (value := getattr(config, name, None)) is not None and value not in values
        ]


def to_ours(rule: Rule, tensors: Sequence[Tensor], axes: Mapping[str, int]) -> Tensor:
    """Their tensors in our layout. Axes of length 1 that they have or lack do not matter."""
    shapes = ", ".join(str(tuple(t.shape)) for t in tensors)
    if rule.pattern is None:
        try:
            return torch.cat(list(tensors)) if len(tensors) > 1 else tensors[0]
        except RuntimeError as error:
            raise ValueError(f"{shapes} cannot be joined") from error
    left = rule.pattern.split("->")[0]
    try:
        if not _stacks(rule):
            return rearrange(_with_units(tensors[0], left), rule.pattern, **_sizes(left, axes))
        inner = " ".join(_atoms(left)[1:])
        stacked = torch.stack([_with_units(t, inner) for t in tensors])
        return rearrange(stacked, rule.pattern, **_sizes(left, axes))
    except (EinopsError, RuntimeError) as error:
        raise ValueError(f"{shapes} does not fit the pattern '{rule.pattern}'") from error


def to_theirs(rule: Rule, value: Tensor, count: int, axes: Mapping[str, int]) -> list[Tensor]:
    """Our tensor as their `count` tensors: the pattern read backwards."""
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
    """The names in braces; braces that hold something else are an error."""
    if re.search(r"[{}]", _PLACEHOLDER.sub("", template)):
        raise ValueError(f"{template!r}: braces hold a name, like {{i}}, {{i+1}} or {{2i+1}}")
    return [found["name"] for found in _PLACEHOLDER.finditer(template)]


@functools.cache
def _regex(template: str) -> re.Pattern[str]:
    """`blocks.{i}.norm` -> a pattern; `{all}` takes anything, the others no dot or slash."""
    result, at, seen = "", 0, set()
    for found in _PLACEHOLDER.finditer(template):
        name = found["name"]
        result += re.escape(template[at : found.start()])
        body = ".+" if name == "all" else "[^./]+?"
        result += f"(?P={name})" if name in seen else f"(?P<{name}>{body})"
        seen.add(name)
        at = found.end()
    return re.compile(result + re.escape(template[at:]))


def _unreckoned(template: str, values: dict[str, str]) -> dict[str, str] | None:
    """What the names stand for where a key has `{2i+1}` for them; None if it is no whole number."""
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
    """The template with its placeholders replaced; one that has no value becomes `*`."""

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
    """Their keys; `{head}` runs over the heads, within each template."""
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
    """The known axis lengths that one side of a pattern needs: those inside parentheses."""
    inside = set(re.findall(r"\w+", " ".join(re.findall(r"\(([^)]*)\)", side))))
    return {name: axes[name] for name in inside if name in axes}


def _with_units(tensor: Tensor, side: str) -> Tensor:
    """`tensor` with axes of length 1 put in or left out, as one side of a pattern has them."""
    if "..." in side:
        return tensor
    atoms = _atoms(side)
    if tensor.ndim == len(atoms):
        return tensor
    long = iter(size for size in tensor.shape if size != 1)
    shape = [1 if atom == "1" else next(long, 1) for atom in atoms]
    return tensor.reshape(shape)


def _atoms(side: str) -> list[str]:
    """The axes of one side of a pattern; what is in parentheses is one."""
    return re.findall(r"\([^)]*\)|\S+", side)
