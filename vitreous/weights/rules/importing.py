"""Import weights from other libraries: completely, or not at all with one message that says why."""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vitreous.config import Size, pair
from vitreous.errors import CheckpointError, ConfigError
from vitreous.models import build
from vitreous.models.model import Model
from vitreous.weights.hub import resolve
from vitreous.weights.io.files import Checkpoint, read_tensors
from vitreous.weights.origin import HIDDEN_FIELDS, stated_fields
from vitreous.weights.rules.fit import fit_grid, fit_input
from vitreous.weights.rules.formats import find_format
from vitreous.weights.rules.keys import (
    axes_of,
    detect_format,
    family_of,
    find_keys,
    strip_prefix,
    title,
)
from vitreous.weights.rules.language import Format, to_ours
from vitreous.weights.rules.report import ImportReport, Misfit


def import_weights(
    model: Model,
    source: str | Path | Mapping[str, Any] | Checkpoint,
    format: str | Path | None = None,
    *,
    reinit: Iterable[str] = (),
    drop: Iterable[str] = (),
    resample: str | None = None,
    source_grid: Size | None = None,
    adapt_channels: bool = False,
    keep: Iterable[str] = (),
    inside: str | None = None,
) -> ImportReport:
    """Load every tensor of `source` into `model`, or raise and leave the model unchanged.

    source: a file, a folder, a hub reference (`hf:owner/name[@revision]`), or tensors by name.
    format: google, timm, huggingface, torchvision, vit_pytorch, deit, official, paddle, vitreous,
        or the path of a .toml file with rules; None detects the format.
    reinit: patterns of our parameters to initialise anew, whatever the source has for them; for a
        model without a head, "head.*" ignores the source's.
    drop: patterns of the source's keys to ignore.
    resample: "bicubic" or "bilinear": resize position embeddings to the model's grid, and relative
        position biases to its window.
    source_grid: the grid of the source's positions, or its window, if it is not square.
    adapt_channels: adapt the first layer to the model's number of channels.
    keep: config fields that stay although the checkpoint or its library has other values:
        "norm_eps", "heads", "activation", "pool" …
    inside: the entry to take from a training checkpoint ("model_ema").
    """
    if resample not in (None, "bicubic", "bilinear"):
        raise ConfigError(f"resample = {resample!r}: use 'bicubic' or 'bilinear'")
    reinit, drop, keep = (
        _patterns(option, given)
        for option, given in (("reinit", reinit), ("drop", drop), ("keep", keep))
    )
    for field in keep:
        if field not in HIDDEN_FIELDS:
            raise ConfigError(f"keep = {field!r}: use one of {', '.join(HIDDEN_FIELDS)}")
    family = family_of(model)
    name, tensors, stated = _read(source, inside)
    rules = detect_format(model, tensors, name) if format is None else find_format(format, family)
    tensors = strip_prefix(tensors, rules)

    report, misfit = ImportReport(name, rules.name), Misfit()
    tensors = _drop(tensors, drop, report)
    values, used = _gather(model, rules, tensors, reinit, report, misfit)
    _sort_other_keys(model, rules, tensors, used, reinit, report, misfit)
    grid = None if source_grid is None else pair("source_grid", source_grid)
    fit_grid(model, values, grid, resample, report, misfit)
    fit_input(model, values, adapt_channels, report, misfit)
    _check_shapes(model, values, misfit)
    _compare_fields(model, stated, keep, report, misfit)
    if misfit:
        hint = _other_format(model, rules, tensors)
        raise CheckpointError(misfit.explain(name, title(model), rules.name, hint))

    _load(model, values, report)
    epsilon = stated.get("norm_eps", rules.numbers.get("norm_eps"))
    if epsilon is not None and "norm_eps" not in keep:
        _set_epsilon(model, epsilon, report)
    if rules.note and all(getattr(model.config, k) == v for k, v in rules.note_when.items()):
        report.notes.append(rules.note)
    return report


def _patterns(option: str, given: Iterable[str]) -> list[str]:
    """A list; a single string would be read letter by letter."""
    if isinstance(given, str):
        raise ConfigError(f"{option} = {given!r}: expected a list of names, like [{given!r}]")
    return list(given)


def _read(
    source: str | Path | Mapping[str, Any] | Checkpoint, inside: str | None
) -> tuple[str, dict[str, Tensor], dict[str, Any]]:
    """The source's name, its tensors, and the hidden fields of its config."""
    if isinstance(source, Mapping):
        return "the given state dict", _as_tensors(source), {}
    if isinstance(source, Checkpoint):
        name, read = str(source.path), source
    elif isinstance(source, str | Path):
        name, read = str(source), read_tensors(resolve(str(source)), inside=inside)
    else:
        raise CheckpointError(
            f"expected a path or a state dict, got {type(source).__name__}: pass model.state_dict()"
        )
    return name, read.tensors, stated_fields(name, read.path, read.metadata)


def _compare_fields(
    model: Model, stated: Mapping[str, Any], keep: list[str], report: ImportReport, misfit: Misfit
) -> None:
    """The model must have the hidden fields that the checkpoint's config states."""
    headless = getattr(model.config, "head", "") == "none"
    head_is_new = headless or any(name.startswith("head.") for name in report.reinitialised)
    for name, value in stated.items():
        have = getattr(model.config, name, value)
        if name == "norm_eps" or name in keep or have == value or (name == "pool" and head_is_new):
            continue
        misfit.misshaped[name] = (
            f"the checkpoint's config has {value!r}, the model has {have!r}: create it with "
            f"{name}={value!r}, or pass keep=[{name!r}]"
        )


def _as_tensors(given: Mapping[str, Any]) -> dict[str, Tensor]:
    tensors = {}
    for key, value in given.items():
        if not isinstance(key, str):
            raise CheckpointError(f"the given state dict has the key {key!r}: expected strings")
        try:
            tensors[key] = value if isinstance(value, Tensor) else torch.tensor(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise CheckpointError(
                f"the given state dict: {key} is not a tensor: {error}"
            ) from error
    return tensors


def _drop(tensors: dict[str, Tensor], drop: list[str], report: ImportReport) -> dict[str, Tensor]:
    """The tensors without those that the caller drops, which go into the report."""
    for pattern in drop:
        if not fnmatch.filter(tensors, pattern):
            raise ConfigError(f"drop = {pattern!r} matches no key of {report.source}")
    report.dropped += [key for key in tensors if _matches(key, drop)]
    return {key: value for key, value in tensors.items() if not _matches(key, drop)}


def _gather(
    model: Model,
    rules: Format,
    tensors: Mapping[str, Tensor],
    reinit: list[str],
    report: ImportReport,
    misfit: Misfit,
) -> tuple[dict[str, Tensor], set[str]]:
    """The checkpoint's values for our parameters, in our layout, and the keys that they use."""
    axes, ours = axes_of(model), model.state_dict()
    values: dict[str, Tensor] = {}
    used: set[str] = set()
    for pattern in reinit:
        headless = getattr(model.config, "head", "") == "none" and pattern in model.classwise
        if not headless and not fnmatch.filter(ours, pattern):
            raise ConfigError(
                f"reinit = {pattern!r} matches no parameter of {title(model)}; "
                f"its parts are {', '.join(dict.fromkeys(k.split('.')[0] for k in ours))}"
            )
    for name in ours:
        found = find_keys(rules, name, tensors, axes)
        if found is not None:
            used.update(found[1])
        if _matches(name, reinit):
            report.reinitialised.append(name)
            report.dropped += found[1] if found else []
        elif found is not None:
            rule, keys = found
            try:
                values[name] = to_ours(rule, [tensors[key] for key in keys], axes)
            except ValueError as error:
                misfit.misshaped[name] = f"{', '.join(keys)}: {error}"
        elif _matches(name, rules.optional):
            values[name] = ours[name]
            report.notes.append(f"{name}: not in the checkpoint, unchanged")
        else:
            misfit.missing[name] = _expected_keys(rules, name, axes, ours)
    return values, used


def _expected_keys(
    rules: Format, name: str, axes: Mapping[str, int], ours: Mapping[str, Tensor]
) -> str:
    covered = rules.rule_for(name)
    if covered is None:
        return "no key: models of this format have no such part; create the model without it"
    others = len(list(rules.spellings(*covered, axes))) - 1
    usual = " + ".join(rules.written(*covered, axes, ours))
    return f"{usual}, and {others} other spellings" if others else usual


def _sort_other_keys(
    model: Model,
    rules: Format,
    tensors: Mapping[str, Tensor],
    used: set[str],
    reinit: list[str],
    report: ImportReport,
    misfit: Misfit,
) -> None:
    """Every other key is ignored by a rule, derived, re-initialised, or unexpected."""
    axes = axes_of(model)
    for key, tensor in tensors.items():
        if key in used or tensor.numel() == 0:
            continue
        ours = rules.ours_of(key, axes)
        known = _matches(key, rules.drop) or rules.ours_of(key, axes, derived=True) is not None
        if known or (ours is not None and _matches(ours, reinit)):
            report.dropped.append(key)
        else:
            misfit.unexpected[key] = str(tuple(tensor.shape))


def _check_shapes(model: Model, values: dict[str, Tensor], misfit: Misfit) -> None:
    """Compare shapes; axes of length 1 do not matter."""
    for name, parameter in model.state_dict().items():
        if name not in values or name in misfit.misshaped:
            continue
        have, want = values[name].shape, parameter.shape
        if [size for size in have if size != 1] == [size for size in want if size != 1]:
            values[name] = values[name].reshape(want)
            continue
        misfit.misshaped[name] = f"{tuple(have)}, the model has {tuple(want)}"
        if _matches(name, model.classwise):
            misfit.misshaped[name] += (
                ": create it with as many classes, or let the head start afresh"
            )


def _other_format(model: Model, rules: Format, tensors: Mapping[str, Tensor]) -> str:
    """A hint if the checkpoint has all parameters under another format's names."""
    try:
        better = detect_format(model, tensors, "")
    except CheckpointError:
        return ""
    return "" if better.name == rules.name else f"its keys match format {better.name!r}"


def _load(model: Model, values: dict[str, Tensor], report: ImportReport) -> None:
    target = model.state_dict()
    casts = sorted({str(v.dtype) for n, v in values.items() if v.dtype != target[n].dtype})
    if casts:
        report.notes.append(f"converted from {', '.join(c.removeprefix('torch.') for c in casts)}")
    if report.reinitialised:
        fresh = build(family_of(model), model.config).state_dict()
        values = {**values, **{name: fresh[name] for name in report.reinitialised}}
    on_meta = any(parameter.is_meta for parameter in target.values())
    if on_meta:  # no memory to copy into: assign the tensors
        values = {n: v.to(target[n].dtype, copy=True) for n, v in values.items()}
    model.load_state_dict(values, assign=on_meta)
    changed = {*report.resampled, *report.adapted, *report.reinitialised}
    report.loaded = [name for name in target if name not in changed]


def _set_epsilon(model: Model, value: float, report: ImportReport) -> None:
    """Use the LayerNorm and BatchNorm eps of the checkpoint's library."""
    before = model.config.norm_eps
    if before == value:
        return
    for module in model.modules():
        if isinstance(module, nn.LayerNorm | nn.BatchNorm2d):
            module.eps = value
    model.config = dataclasses.replace(model.config, norm_eps=value)
    report.numbers["norm_eps"] = f"{before} to {value}, as in the checkpoint's library"


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
