"""Weights of other libraries: which model they are for, and that model with them inside.

The model is the one that the caller names, or that the source states (its folder, the catalog), or
that its tensors show.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from vitreous.config import flat, merged, pair
from vitreous.errors import CheckpointError, ConfigError
from vitreous.models import FAMILIES, configure, family_of, has_words, name_today
from vitreous.models.model import Model
from vitreous.models.two_towers import TOWERS
from vitreous.weights.fields import FREE
from vitreous.weights.identify import (
    as_projection,
    blank_model,
    free_fields,
    gathered_for,
    readings,
)
from vitreous.weights.io.checkpoint import Checkpoint
from vitreous.weights.io.files import SHARD_INDEX
from vitreous.weights.origin import WeightFile, known_file, open_weights
from vitreous.weights.reading import Reading
from vitreous.weights.rule_problems import rule_problems
from vitreous.weights.rules.formats import OWN, formats
from vitreous.weights.rules.keys import first_keys, gather
from vitreous.weights.rules.language import Format
from vitreous.weights.stated import HIDDEN_FIELDS, Stated
from vitreous.weights.towers import divided, given_to, is_own, joined, named_tower, stated_of


def find(
    source: str | Path | Checkpoint,
    *,
    format: str | Path | None = None,
    model: str | None = None,
    changes: dict[str, Any] | None = None,
    inside: str | None = None,
    part: str | None = None,
) -> Reading:
    """Read a checkpoint, and find out which model it is for.

    source: a file, a folder, hf:owner/name[@revision] or a name from the catalog. `model` and
    `changes`, the fields of its config, override what the source states. part: "image" for the
    image tower alone of a file that has one for texts, too. The other arguments are those of
    `import_weights`.
    """
    file, given = open_weights(source, inside), changes or {}
    stated, whole = file.stated, part != "image" and (model is None or has_words(model))
    if stated.model is None and model is None:
        stated = known_file(stated, file.path)
    if is_own(file) and whole and file.metadata.get("format") == OWN:
        return _find(file, stated, format, None, given)
    files = divided(file, format) if whole or is_own(file) else None
    if files is None or not whole:
        name, fields = named_tower(model, "image")
        own = stated_of(stated, "image")
        if whole and model != name:
            own = replace(own, notes=(*own.notes, f"it has no texts' tower of {model}"))
        file = files.towers[0] if files else file
        return _find(file, own, format, name, {**fields, **given})
    towers: list[Reading] = []
    family = None
    for tower, each in zip(TOWERS, files.towers, strict=True):
        name, fields = named_tower(model, tower)
        own, changes = stated_of(stated, tower), {**fields, **given_to(tower, given)}
        towers.append(_find(each, own, format, name, changes, family))
        # the other is of the same library and paper
        format, family = towers[0].format, f"{family_of(towers[0].blank)}-text"
    image, text = towers
    return joined(file, stated, files, (image, text))


def seen(file: WeightFile, format: str | Path | None, model: str | None) -> list[Reading]:
    """Every model that a checkpoint can be for, the likeliest first: `readings`, also of two towers
    as one."""
    image, text = (stated_of(file.stated, part) for part in TOWERS)
    name = named_tower(model, "image")[0]
    files = divided(file, format) if model is None or has_words(model) else None
    if files is None:
        return readings(file, format=format, model=name, stated=image)
    found = []
    for first in readings(files.towers[0], format=format, model=name, stated=image):
        family = f"{family_of(first.blank)}-text"
        second = readings(files.towers[1], format=first.format, stated=text, family=family)
        found += [joined(file, file.stated, files, (first, each)) for each in second[:1]]
    return found or readings(file, format=format, stated=image)


def _find(
    file: WeightFile,
    stated: Stated,
    format: str | Path | None,
    model: str | None,
    given: dict[str, Any],
    family: str | None = None,
) -> Reading:
    """The same for a file with one model; stated: what is known about it. family: of the model,
    where that is known."""
    if model is not None and stated.whole and configure(model)[0] == stated.whole[0]:
        stated, model = replace(stated, model=stated.whole[0], fields=stated.whole[1]), None
    if stated.model is not None and model is None:
        found = _read_as(file, stated, stated.model, merged(stated.fields, given), format, given)
        own = file.metadata.get("model", "") if file.metadata.get("format") == OWN else ""
        return replace(found, name=name_today(own, family_of(found.blank)))
    # What the caller is certain of helps to find the rest; where it does not fit, the import
    # says so.
    certain = {name: value for name, value in given.items() if name not in FREE}
    seen = readings(file, format=format, model=model, stated=stated, fields=certain, family=family)
    hidden = {name: v for name, v in stated.fields.items() if name in HIDDEN_FIELDS}
    if model is not None:  # of another family it has other fields
        usual = flat(configure(model)[1])
        hidden = {name: v for name, v in hidden.items() if name in usual}
        if not seen:  # the import reports what does not fit
            return _read_as(file, stated, model, {**hidden, **given}, format, given)
    elif problem := rule_problems(file, format, seen, certain):
        raise CheckpointError(problem)
    elif not seen:
        raise _unknown(file, stated)
    first = seen[0]
    named = {} if model is not None else _named_fields(stated, first)
    known = {**named, **hidden, **given}
    if model is None:
        _ask(first, known)
    shown = dict(first.fields)
    if shown.get("head") == "none" and (model is not None or "classes" in known):
        del shown["head"]  # a missing head is named by the caller
    found = _read_as(file, stated, first.model, merged(shown, known), format, given, first.rules)
    reason = "as in the model that the file is named after"
    assumed = {
        name: (named[name], reason) if name in named else why
        for name, why in first.assumed.items()
        if name not in {**hidden, **given}
    }
    also = tuple(str(reading) for reading in seen[1:]) if model is None else ()
    return replace(found, assumed=assumed, also=also)


def _read_as(
    file: WeightFile,
    stated: Stated,
    model: str,
    fields: dict[str, Any],
    format: str | Path | None,
    given: Mapping[str, Any],
    rules: Format | None = None,
) -> Reading:
    """As the model that is known; rules: those that its fields were found by."""
    # The caller and the source override the defaults of the source's library.
    keep = frozenset({*given, "norm_eps"} & {*HIDDEN_FIELDS} & fields.keys())
    try:
        blank = blank_model(model, fields)
    except ConfigError as error:
        raise ConfigError(f"{file.called}: {error}") from None
    if rules is not None:
        gathered = gather(_own_rules(rules, blank), file.tensors, blank.state_dict())
    else:
        gathered = gathered_for(blank, file, format, usual=stated.format)
        fields = {**free_fields(gathered, model, fields, blank), **fields}
        if "head" not in fields:
            fields |= as_projection(gathered, file.tensors, model, fields)
        blank = blank_model(model, fields, blank)
    fields, blank = _at_free_size(model, fields, blank, given, stated)
    own = frozenset(given)
    return Reading(file, stated, gathered, model, fields, blank, keep=keep, given=own)


def _own_rules(rules: Format, model: Model) -> Format:
    """Those of the same format that are for this family: one set may read another's models."""
    sets = formats().get(rules.name, ())
    return next((each for each in sets if family_of(model) in each.families), rules)


def _named_fields(stated: Stated, seen: Reading) -> dict[str, Any]:
    """What no tensor shows, by the name of a file: as in that model of its library, if it is one of
    the same kind."""
    if stated.named is None:
        return {}
    family, config = configure(stated.named[0], **stated.named[1])
    if FAMILIES[family].model is not FAMILIES[family_of(seen.blank)].model:
        return {}
    return {name: value for name, value in flat(config).items() if name in HIDDEN_FIELDS}


def _ask(seen: Reading, known: dict[str, Any]) -> None:
    """Refuse to choose where models of a library differ in what neither tensors nor names show."""
    rules = _own_rules(seen.rules, seen.blank)
    for name, values in rules.ask.items():
        if name not in known:
            ways = " or ".join(f"--set {name}={value} ({whose})" for value, whose in values.items())
            raise ConfigError(
                f"{seen.source} is {seen.model}, and its tensors do not show its {name}: pass "
                f"{ways}; or name the model as {rules.name} does, by --model or as the file's name"
            )


def _unknown(file: WeightFile, stated: Stated) -> ConfigError:
    source = file.called
    if stated.kind:
        return ConfigError(
            f"{source} is {stated.kind}, which Vitreous does not have ('vitreous models' lists "
            "what it has), and its tensors are those of no known model and format"
        )
    return ConfigError(
        f"{source} neither states its model nor shows it: no known model and format have its "
        f"tensors; its first keys are {first_keys(file.tensors)}. Name the "
        "model, like --model vit-b/16 ('vitreous models' lists them), or write rules for its "
        f"format (docs/formats.md): 'vitreous weights {source}' lists its tensors"
    )


def _at_free_size(
    model: str, fields: dict[str, Any], blank: Model, given: Mapping[str, Any], stated: Stated
) -> tuple[dict[str, Any], Model]:
    """With the image size of the preprocessing, if the weights fit any."""
    size = stated.preprocessing.get("image_size")
    if size is None or "image_size" in {**stated.fields, **given}:
        return fields, blank
    if pair("image_size", size) == blank.own_size():
        return fields, blank
    other_fields = {**fields, "image_size": size}
    try:
        other = blank_model(model, other_fields)
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
