"""Export weights to other libraries: the rules read from right to left."""

from __future__ import annotations

import fnmatch
from pathlib import Path

import torch
from einops import EinopsError
from torch import Tensor

from vitreous.errors import CheckpointError
from vitreous.layers.resample import State
from vitreous.models import family_of
from vitreous.models.extras import Extras
from vitreous.models.model import Model
from vitreous.models.two_towers import TwoTowers
from vitreous.weights.families import state_dict_of
from vitreous.weights.rules.formats import OWN, check_names, find_format
from vitreous.weights.rules.keys import axes_of, conditions, title
from vitreous.weights.rules.language import Format
from vitreous.weights.rules.patterns import to_theirs
from vitreous.weights.towers import export_comparison

MAX_LISTED = 10
"""Parameters that a message lists."""


def export_weights(model: Model, format: str | Path) -> dict[str, Tensor]:
    """The model's weights under another library's names and in its layouts, for strict loading."""
    if not isinstance(model, TwoTowers) or str(format) == OWN:
        return _export(model, format, model.extras)
    parts = {"image": model.core, "text": model.text}
    found: dict[str, Tensor] = {}
    for part, tower in parts.items():
        found |= _export(tower, format, model.extras.of(part), alone=False)
    return found | export_comparison(model, format)


def _export(
    model: Model, format: str | Path, extras: Extras, alone: bool = True
) -> dict[str, Tensor]:
    rules = find_format(format, family_of(model))
    check_names(rules, family_of(model), model.state_dict())
    axes, about = axes_of(model), state_dict_of(model)
    ours = {name: value.detach() for name, value in model.state_dict().items()}
    came = _as_it_came(model, rules, ours, extras)
    known = conditions(model, alone)
    covered = {name: rules.rule_to_write(name, known) for name in ours}
    unknown = [name for name, rule in covered.items() if rule is None]
    unsupported = rules.unsupported(model.config)
    if unknown:
        more = f" and {len(unknown) - MAX_LISTED} more" if len(unknown) > MAX_LISTED else ""
        also = f". It does not support {'; '.join(unsupported)} either" if unsupported else ""
        raise CheckpointError(
            f"format {rules.name!r} has no rule for {len(unknown)} parameters of {title(model)}: "
            f"{', '.join(unknown[:MAX_LISTED])}{more}{also}. Choose another format, or write rules "
            "(docs/formats.md)"
        )
    if unsupported:
        raise CheckpointError(
            f"the weights of {title(model)} fit format {rules.name!r}, but its models do not "
            f"support {'; '.join(unsupported)}"
        )
    result: dict[str, Tensor] = {}
    written_by: dict[str, str] = {}
    for found in covered.values():
        if found is not None and found[0].rows in ("all", "patches") and not came:
            ours = about.with_rows(model, ours, found[0].rows)
    ours |= came
    patterns, unused = extras.patterns, extras.unused
    for name, found in covered.items():
        assert found is not None
        rule = found[0]
        if rule.value is not None and not torch.equal(ours[name], rule.constant(ours[name])):
            raise CheckpointError(
                f"format {rules.name!r} has no place for {name}: its rule says that it is "
                f"{rule.value}, and it is not (it was trained since, or is another model's)"
            )
        keys = rules.written(*found, axes, known)
        value = ours[name].roll(-model.config.rows, 0) if rule.rows == "last" else ours[name]
        try:
            other = patterns.get(name), unused.get(name)
            parts = to_theirs(rule, value, len(keys), axes, *other) if keys else []
        except (ValueError, EinopsError) as error:
            raise CheckpointError(
                f"format {rules.name!r} has no place for all of {name}: {error}"
            ) from error
        for key, tensor in zip(keys, parts, strict=True):
            if key in written_by and not torch.equal(result[key], tensor):
                raise CheckpointError(
                    f"format {rules.name!r} writes both {written_by[key]} and {name} to {key!r}: a "
                    f"placeholder is missing in the rule for {rule.ours!r}"
                )
            result[key] = tensor.contiguous()
            written_by[key] = name
    for name, value in about.derived(model).items():
        derived = rules.rule_for(name, derived=True)
        if derived is not None:
            (key,) = rules.written(*derived, axes, known)
            if name in unused and unused[name].shape == value.shape:
                value = unused[name]
            (result[key],) = to_theirs(derived[0], value, 1, axes)
    return {**_unused(rules, axes, known, extras), **result}


def _as_it_came(model: Model, rules: Format, ours: State, extras: Extras) -> State:
    """Parameters as they were in the checkpoint, if it was in this format, and if the import would
    make of them what the model has now: training has not changed it."""
    before = extras.before
    if extras.format != rules.name or not before.keys() <= ours.keys():
        return {}
    again = dict(before)
    state_dict_of(model).resample(model, again, None, None)
    if not all(torch.equal(again[name].to(ours[name]), ours[name]) for name in before):
        return {}
    return {name: value.to(ours[name]) for name, value in before.items()}


def _unused(rules: Format, axes: dict[str, int], known: list[str], extras: Extras) -> State:
    """What no model of ours has and theirs have: as it came, or else zeros."""
    result: State = {}
    kept = {name: (rules.rule_for(name), value) for name, value in extras.unused.items()}
    for rule in rules.rules:
        if rule.when is not None and not fnmatch.filter(known, rule.when):
            continue
        if rule.if_absent is not None and rule.ours not in known:
            shape = [axes[size] if isinstance(size, str) else size for size in rule.if_absent]
            result[rules.written(rule, {}, axes, known)[0]] = torch.zeros(shape)
        for found, value in kept.values():
            if found is not None and found[0] is rule and rule.unused:
                (key,) = rules.written(*found, axes, known)
                (result[key],) = to_theirs(rule, value, 1, axes)
    return result
