"""Weights of other libraries: which model they are for, and that model with them inside.

The model is the one that the caller names, or that the source states (its folder, the catalog), or
that its tensors show.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Unpack

import torch

from vitreous.config import flat, merged, pair
from vitreous.errors import CheckpointError, ConfigError
from vitreous.models import FAMILIES, configure, create, family_of
from vitreous.models.model import Model
from vitreous.weights.hub import open_checkpoint
from vitreous.weights.identify import Reading, as_projection, detect_format, readings
from vitreous.weights.importing import FitOptions, load_checkpoint
from vitreous.weights.infer import FREE
from vitreous.weights.io.files import SHARD_INDEX, Checkpoint
from vitreous.weights.origin import HIDDEN_FIELDS, Stated, infer_changes, known_file, stated_by
from vitreous.weights.rule_problems import rule_problems
from vitreous.weights.rules.formats import find_format
from vitreous.weights.rules.keys import first_keys, shapes_of
from vitreous.weights.rules.language import Format
from vitreous.weights.rules.report import ImportReport


@dataclass(frozen=True)
class Found:
    """A checkpoint, the model it is for, and what is known about it."""

    checkpoint: Checkpoint
    said: Stated
    """By the checkpoint itself,"""
    stated: Stated
    """and with what the catalog knows of it."""
    model: str
    fields: dict[str, Any]
    """The arguments of `create` besides the model's name."""
    blank: Model
    """The model without values, on the meta device."""
    format: str
    """Of the built-in rules, or the path of a file with rules."""
    name: str = ""
    """The model's name, if it has another than `create` gives it."""
    keep: frozenset[str] = frozenset()
    """Fields that stay although the checkpoint's library has other values."""
    assumed: dict[str, tuple[Any, str]] = field(default_factory=dict)
    """Fields that the tensors do not show: the value taken, and why it cannot be seen."""
    also: tuple[str, ...] = ()
    """Other models that have the same tensors."""
    given: frozenset[str] = frozenset()
    """Fields that the caller gave."""

    @property
    def source(self) -> str:
        """As the caller called it."""
        return self.checkpoint.called

    def load(self, **fit: Unpack[FitOptions]) -> tuple[Model, ImportReport]:
        """The model with the weights, in eval mode; the options are those of `import_weights`."""
        model = create(self.model, **self.fields).eval()
        model.name = self.name or model.name
        checkpoint, said = self.checkpoint, self.said
        report = load_checkpoint(model, checkpoint, said, self.format, self.keep, **fit)
        report.notes += [f"{self.source} may also be {other}" for other in self.also]
        return model, report


def find(
    source: str | Path | Checkpoint,
    *,
    format: str | Path | None = None,
    model: str | None = None,
    changes: dict[str, Any] | None = None,
    inside: str | None = None,
) -> Found:
    """Read a checkpoint, and find out which model it is for.

    source: a file, a folder, hf:owner/name[@revision] or a name from the catalog. `model` and
    `changes`, the fields of its config, override what the source states. The other arguments are
    those of `import_weights`.
    """
    checkpoint = source if isinstance(source, Checkpoint) else open_checkpoint(source, inside)
    called, given = checkpoint.called, changes or {}
    said = stated = stated_by(checkpoint)
    if stated.model is None and model is None:
        stated = known_file(stated, checkpoint.path)
    if model is not None and stated.whole and configure(model)[0] == stated.whole[0]:
        stated, model = replace(stated, model=stated.whole[0], fields=stated.whole[1]), None
    seen: list[Reading] = []
    hidden: dict[str, Any] = {}
    named: dict[str, Any] = {}
    if model is not None or stated.model is None:
        # What the caller is certain of helps to find the rest; where it does not fit, the import
        # says so.
        certain = {name: value for name, value in given.items() if name not in FREE}
        read = functools.partial(
            readings, checkpoint, format=format, model=model, origin=stated.origin
        )
        seen = read(fields=certain)
        if not seen and certain:
            seen = read()
    if stated.model is not None and model is None:
        start, fields = stated.model, merged(stated.fields, given)
    else:
        hidden = {name: v for name, v in stated.fields.items() if name in HIDDEN_FIELDS}
        named = _named_fields(stated, seen, model)
        if model is not None:  # of another family it has other fields
            usual = configure(model)[1]
            hidden = {name: v for name, v in hidden.items() if name in flat(usual)}
        shapes = shapes_of(checkpoint.tensors)
        if model is None and (
            problem := rule_problems(called, shapes, format, bool(seen), certain)
        ):
            raise CheckpointError(problem)
        if model is None and seen:
            _ask(called, seen[0], {**named, **hidden, **given})
        known = {**named, **hidden, **given}
        start, fields = _as_seen(called, checkpoint, seen, model, known, stated)
        format = format or (seen[0].format if seen else None)
    # The caller and the source override the defaults of the source's library.
    keep = frozenset({*given, "norm_eps"} & {*HIDDEN_FIELDS} & fields.keys())
    try:
        blank = _blank(start, fields)
    except ConfigError as error:
        raise ConfigError(f"{called}: {error}") from None
    rules = _rules(called, checkpoint, blank, format, stated)
    fields = infer_changes(start, fields, blank, checkpoint.tensors, rules)
    if "head" not in fields:
        fields |= as_projection(Reading(rules.name, start, fields), checkpoint.tensors)
    blank = _blank(start, fields, blank)
    fields, blank = _at_free_size(start, fields, blank, given, stated)
    own = checkpoint.metadata.get("format") == "vitreous" and model is None
    name = checkpoint.metadata.get("model", "") if own else ""
    unseen = seen[0].assumed if seen else {}
    assumed = {
        name: (named[name], "as in the model that the file is named after")
        if name in named
        else why
        for name, why in unseen.items()
        if name not in {**hidden, **given}
    }
    also = tuple(str(reading) for reading in seen[1:]) if model is None else ()
    return Found(
        *(checkpoint, said, stated, start, fields, blank),
        *(rules.name, name, keep, assumed, also),
        given=frozenset(given),
    )


def _blank(name: str, fields: dict[str, Any], before: Model | None = None) -> Model:
    """The model without values; the one that was made before, if it is the same."""
    if before is not None and configure(name, **fields)[1] == before.config:
        return before
    with torch.device("meta"):
        return create(name, **fields)


def _named_fields(stated: Stated, seen: list[Reading], model: str | None) -> dict[str, Any]:
    """What no tensor shows, by the name of a file: as in that model of its library, if it is one of
    the same kind."""
    if stated.named is None or not seen or model is not None:
        return {}
    family, config = configure(stated.named[0], **stated.named[1])
    if FAMILIES[family].model is not FAMILIES[configure(seen[0].model)[0]].model:
        return {}
    return {name: value for name, value in flat(config).items() if name in HIDDEN_FIELDS}


def _ask(source: str, seen: Reading, known: dict[str, Any]) -> None:
    """Refuse to choose where models of a library differ in what neither tensors nor names show."""
    rules = find_format(seen.format, configure(seen.model)[0])
    for name, values in rules.ask.items():
        if name not in known:
            ways = " or ".join(f"--set {name}={value} ({whose})" for value, whose in values.items())
            raise ConfigError(
                f"{source} is {seen.model}, and its tensors do not show its {name}: pass {ways}; "
                f"or name the model as {rules.name} does, by --model or as the file's name"
            )


def _rules(
    source: str, checkpoint: Checkpoint, blank: Model, format: str | Path | None, stated: Stated
) -> Format:
    """The rules of the format that is given, or recognised, or else of the source's library: then
    the import reports what does not fit."""
    if format is not None:
        return find_format(format, family_of(blank))
    try:
        return detect_format(blank, checkpoint.tensors, source)
    except CheckpointError:
        if not stated.format:
            raise
        return find_format(stated.format, family_of(blank))


def _as_seen(
    source: str,
    checkpoint: Checkpoint,
    seen: list[Reading],
    model: str | None,
    given: dict[str, Any],
    stated: Stated,
) -> tuple[str, dict[str, Any]]:
    """The model that the tensors show, as far as the caller does not say otherwise."""
    if not seen and model is not None:
        return model, given  # the import reports what does not fit
    if not seen:
        if stated.kind:
            raise ConfigError(
                f"{source} is {stated.kind}, which Vitreous does not have ('vitreous models' lists "
                "what it has), and its tensors are those of no known model and format"
            )
        raise ConfigError(
            f"{source} neither states its model nor shows it: no known model and format have its "
            f"tensors; its first keys are {first_keys(checkpoint.tensors)}. Name the "
            "model, like --model vit-b/16 ('vitreous models' lists them), or write rules for its "
            f"format (docs/formats.md): 'vitreous weights {source}' lists its tensors"
        )
    shown = dict(seen[0].changes)
    if shown.get("head") == "none" and (model is not None or "classes" in given):
        del shown["head"]  # a missing head is named by the caller
    return seen[0].model, merged(shown, given)


def _at_free_size(
    model: str, fields: dict[str, Any], blank: Model, given: dict[str, Any], stated: Stated
) -> tuple[dict[str, Any], Model]:
    """With the image size of the preprocessing, if the weights fit any."""
    size = stated.preprocessing.get("image_size")
    if size is None or "image_size" in {**stated.fields, **given}:
        return fields, blank
    if pair("image_size", size) == blank.own_size():
        return fields, blank
    other_fields = {**fields, "image_size": size}
    try:
        other = _blank(model, other_fields)
    except ConfigError:  # it does not divide into patches
        return fields, blank
    shapes = [{n: v.shape for n, v in each.state_dict().items()} for each in (blank, other)]
    return (other_fields, other) if shapes[0] == shapes[1] else (fields, blank)


def files_of(checkpoint: Checkpoint) -> list[Path]:
    """The files that a checkpoint was read from."""
    path = checkpoint.path
    if path.name != SHARD_INDEX:
        return [path]
    listed = json.loads(path.read_bytes())["weight_map"].values()
    return [path.with_name(name) for name in sorted(set(listed))]
