"""Config fields: what is known of them besides a state dict, what one shows, in which models of a
family may differ, and in which two configs do."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from vitreous.config import (
    HIDDEN,
    SETTING,
    changed,
    fitting,
    flat,
    flat_like,
    kind_of,
    marked,
    records,
    type_hints,
)
from vitreous.errors import ConfigError
from vitreous.models import FAMILIES, build
from vitreous.weights.blank import without_values

FREE = ("classes", "channels", "image_size")
"""Fields in which a model differs from its named variant without being another one."""


@dataclass(frozen=True)
class GivenFields:
    """What is known about a model besides its tensors."""

    model: str | None = None
    """Its name, or its family."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Config values that are certain,"""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    """those of every model in its library,"""
    choices: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """and those that its library has at all."""
    optional: tuple[str, ...] = ()
    """Patterns of parameters that a file may lack."""
    superfluous: frozenset[str] = frozenset()
    """Parameters that a file may have for nothing."""
    config: Any = None
    """The config that is near, instead of the named model's."""
    search: bool = True
    """Whether fields that no paper reads are searched for too, which takes longer."""
    kinds: frozenset[type] = frozenset()
    """The classes of models that it may be; any if there are none."""
    published: bool = True
    """Whether it may be of a family that only has other defaults than one that it derives from
    (CLIP's activation): somebody's own model, as its rules say, has none but the common ones."""


@dataclass(frozen=True)
class Inferred:
    """A model that a state dict fits, or nearly."""

    model: str
    """Its name: of a variant, or of its family,"""
    family: str
    config: Any
    changes: dict[str, Any]
    """and how its config differs from that one's."""
    shown: frozenset[str]
    """The fields that the state dict shows, or that were given; others are as usual,"""
    guessed: frozenset[str]
    """and of these, some that the shapes need and do not decide."""
    misfits: tuple[str, ...]
    """Parameters that are missing or have another shape."""
    unused: tuple[str, ...]
    """Tensors that the model has no place for."""


def difference(config: Any, base: Any) -> dict[str, Any]:
    """The fields of `config` that differ from those of `base`; of a part of another kind, those
    that differ from its defaults."""
    usual = flat_like(config, base)
    found = {name: value for name, value in flat(config).items() if value != usual.get(name, value)}
    if kind_of(config, "head") == "none":
        found.pop("classes", None)
    if "mlp_dim" in found and base.mlp_dim is None:
        usual = dataclasses.replace(config, mlp_dim=None)
        if getattr(usual, "mlp_width", None) == found["mlp_dim"]:
            del found["mlp_dim"]  # spelled out, and the same
    if found.get("layer_scale") and base.layer_scale is not None:
        del found["layer_scale"]  # any first value does
    return found


def variations(config: Any) -> Iterator[dict[str, Any]]:
    """Every other value of each field that has few of them, and that shows in names and shapes."""
    apart, values = {*marked(type(config), HIDDEN, SETTING)}, flat(config)
    for name, hint in flat_hints(config).items():
        if name in apart:
            continue
        value = values[name]
        if hint is bool:
            yield {name: not value}
        elif typing.get_origin(hint) is Literal:
            yield from ({name: other} for other in typing.get_args(hint) if other != value)
        elif typing.get_origin(hint) in (types.UnionType, typing.Union):
            kinds = typing.get_args(hint)
            words = [
                w for k in kinds if typing.get_origin(k) is Literal for w in typing.get_args(k)
            ]
            flags = [True, False] if bool in kinds else []
            yield from ({name: other} for other in (*flags, *words) if other != value)
            if {*kinds} == {float, types.NoneType}:
                yield {name: None if value is not None else 1e-5}


def flat_hints(config: Any) -> dict[str, Any]:
    """The type of each field, of those of parts too; of a part's kind, a `Literal`."""
    found: dict[str, Any] = {}
    for each in dataclasses.fields(config):
        hint = type_hints(type(config))[each.name]
        if kinds := records(hint):
            inner = flat_hints(getattr(config, each.name))
            if inner.pop("kind", None):
                found[each.name] = Literal[tuple(kinds)]
            found |= {f"{each.name}.{name}": own for name, own in inner.items()}
        else:
            found[each.name] = hint
    return found


@functools.cache
def parameter_names(family: str) -> frozenset[str]:
    """Names of parameters that models of a family may have: of its default (with one block: the
    others are alike), and of each with one field changed."""
    names: set[str] = set()
    base = FAMILIES[family].config()
    if hasattr(base, "depth"):
        base = changed(base, {"depth": 1})
    for change in (
        {},
        *variations(base),
        {"registers": 1},
        {"tokens": "none", "pool": "mean"},
        {"tokens": "class+distillation", "pool": "both"},
    ):
        try:
            with without_values():
                model = build(family, changed(base, fitting(base, change)))
        except ConfigError:
            continue
        names.update(model.state_dict())
    return frozenset(names)
