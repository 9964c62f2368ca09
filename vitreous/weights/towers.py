"""Weights of both towers in one file: read as two files, one of each tower, and as one again.

A library keeps them side by side under names that its rules for text towers list (`owns`). What a
file states is divided in the same way, so that each tower is found, filled and exported like a
model of its own. Our own files have both as one model; they are divided where one is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from vitreous.config import flat_fields
from vitreous.errors import CheckpointError, ConfigError
from vitreous.models import FAMILIES, TWO_TOWERS, configure, family_of, has_words
from vitreous.models.extras import Extras
from vitreous.models.model import Model
from vitreous.models.two_towers import BOTH, TOWERS, TwoTowers, TwoTowersConfig
from vitreous.weights.fields import difference
from vitreous.weights.identify import blank_model, too_many_names
from vitreous.weights.origin import WeightFile
from vitreous.weights.reading import Reading
from vitreous.weights.rules.formats import OWN, find_format, formats
from vitreous.weights.rules.keys import gather, matches
from vitreous.weights.rules.language import Format
from vitreous.weights.rules.patterns import to_ours, to_theirs
from vitreous.weights.stated import Stated

SEEN = "embedding.tokens.weight"
"""Every text tower has it, and nothing else has."""
WEIGHTS_OWN = {"image_size", "channels", "norm_eps", "activation", "vocabulary", "length"}
WEIGHTS_OWN |= {"pool", "pool.token"}
"""Fields in which weights of a model differ from others of the same name."""
COMPARISON = "similarity."
"""Our parameters beside the towers."""


class TwoFiles(NamedTuple):
    """A file with both towers."""

    towers: tuple[WeightFile, WeightFile]
    """Of images and of texts."""
    beside: dict[str, Tensor]
    """What is of neither, by its own names."""


def divided(file: WeightFile, format: str | Path | None = None) -> TwoFiles | None:
    """The towers of a file; None where it has not both. format: by its rules alone."""
    tensors = file.tensors
    if is_own(file) and format in (None, OWN):
        beside = {name: v for name, v in tensors.items() if name.startswith(COMPARISON)}
        image, text = (_inside(tensors, part) for part in TOWERS)
        return _files(replace(file, metadata={}), image, text, beside)
    if too_many_names(tensors):
        return None
    for rules in _text_rules(format):
        (known,) = (rule.theirs[0].rpartition("}")[2] for rule in rules.rules if rule.ours == SEEN)
        if not any(name.endswith(known) for name in tensors):
            continue
        gathered = gather(rules, tensors)
        if SEEN not in gathered.keys:
            continue
        others = [rule.theirs[0] for each in _text_rules(rules.name) for rule in each.beside]
        plain = {name: name.removeprefix(gathered.prefix) for name in tensors}
        text = {name: v for name, v in tensors.items() if matches(plain[name], rules.owns)}
        beside = {plain[name]: v for name, v in tensors.items() if plain[name] in others}
        image = {n: v for n, v in tensors.items() if n not in text and plain[n] not in others}
        return _files(file, image, text, beside)
    return None


def _files(
    file: WeightFile,
    image: dict[str, Tensor],
    text: dict[str, Tensor],
    beside: dict[str, Tensor],
) -> TwoFiles | None:
    if not any(value.numel() > 1 for value in image.values()):
        return None
    return TwoFiles((replace(file, tensors=image), replace(file, tensors=text)), beside)


def image_file(file: WeightFile) -> WeightFile:
    """A file for whoever takes the image tower alone. Other libraries' rules leave out the rest."""
    files = divided(file) if is_own(file) else None
    return file if files is None else files.towers[0]


def is_own(file: WeightFile) -> bool:
    """Whether it has both towers by our own names."""
    return f"text.{SEEN}" in file.tensors


def _inside(tensors: Mapping[str, Tensor], part: str) -> dict[str, Tensor]:
    owner = f"{part}."
    return {k.removeprefix(owner): v for k, v in tensors.items() if k.startswith(owner)}


def _text_rules(format: str | Path | None) -> list[Format]:
    known = formats() if format is None else {format: formats().get(str(format), ())}
    return [rules for sets in known.values() for rules in sets if rules.owns]


def reads_texts(format: str | Path) -> bool:
    """Whether a format has text towers, too."""
    return str(format) == OWN or bool(_text_rules(format))


def rules_of(model: Model, format: str | Path) -> list[Format]:
    """The rules by which a model is written in a format: of one with two towers, those of each."""
    if not isinstance(model, TwoTowers) or str(format) == OWN:
        return [find_format(format, family_of(model))]
    return [find_format(format, family_of(tower)) for tower in (model.core, model.text)]


def stated_of(stated: Stated, part: str) -> Stated:
    """What is known about one of the towers."""
    found = stated if part == "image" else Stated(format=stated.format, named=stated.named)
    if stated.named is not None and has_words(stated.named[0]):
        found = replace(found, named=_origin(*stated.named, part))
    if stated.model is None or not has_words(stated.model):
        return found
    model, fields = _origin(stated.model, stated.fields, part)
    return replace(found, model=model, fields=fields)


def _origin(model: str, given: Mapping[str, Any], part: str) -> tuple[str, dict[str, Any]]:
    """The name of a tower of a model with words, and the fields that are known of it."""
    config = configure(model, **given)[1]
    fields = config.inner_fields(part, None)
    if part == "image":
        usual = configure(config.image)[1]
        stays = [n for n in ("image_size", "channels") if fields[n] == getattr(usual, n)]
        fields = {n: v for n, v in fields.items() if n in given or n not in stays}
    return getattr(config, part), fields


def named_tower(model: str | None, part: str) -> tuple[str | None, dict[str, Any]]:
    """The same for the name that a caller gives; none stays none."""
    if model is None or not has_words(model):
        return model, {}
    name, fields = _origin(model, {}, part)
    return name, {field: value for field, value in fields.items() if field != "classes"}


def given_to(part: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Of the fields that a caller gives for both towers, those of one."""
    found: dict[str, Any] = {}
    for name, value in flat_fields(changes).items():
        owner, _, inner = name.partition(".")
        if name == f"{part}_fields":
            found |= value
        elif owner in TOWERS and inner:
            found |= {inner: value} if owner == part else {}
        elif name in BOTH or (part == "image" and name in ("image_size", "channels")):
            found[name] = value
        elif name not in (*(f"{tower}_fields" for tower in TOWERS), "image_size", "channels"):
            raise ConfigError(
                f"{name} = {value!r}: this model has two towers: say whose it is, as image.{name} "
                f"or text.{name}, or take part = 'image'"
            )
    return found


def joined(
    file: WeightFile, stated: Stated, files: TwoFiles, towers: tuple[Reading, Reading]
) -> Reading:
    """The reading of a file with both towers, from those of each."""
    image, text = towers
    configs = [configure(each.model, **each.fields)[1] for each in towers]
    name = _nearest(configs)
    fields: dict[str, Any] = {}
    if name == TWO_TOWERS:
        fields = {"image": image.model, "text": text.model}
    base = configure(name, **fields)[1]
    own = {
        "image_size": configs[0].image_size,
        "channels": configs[0].channels,
        "dim": text.blank.vector_length(),
        "projection": image.blank.projects,
    }
    fields |= {field: value for field, value in own.items() if value != getattr(base, field)}
    biased = any(key.endswith("bias") for key in files.beside)
    if biased != (base.logit_bias is not None):
        fields["logit_bias"] = -10.0 if biased else None
    for part, config in zip(TOWERS, configs, strict=True):
        usual = _tower_config(base, part)
        left = {"image_size", "channels", "classes", "head"} if part == "image" else {"classes"}
        changes = {k: v for k, v in difference(config, usual).items() if k not in left}
        if changes:
            fields[f"{part}_fields"] = changes
    return Reading(
        file,
        stated,
        image.gathered,
        name,
        fields,
        blank_model(name, fields),
        {
            f"{p}.{k}": v
            for p, each in zip(TOWERS, towers, strict=True)
            for k, v in each.assumed.items()
        },
        (*image.unused, *text.unused),
        given=image.given | text.given,
        towers=towers,
        beside=files.beside,
    )


def _nearest(configs: list[Any]) -> str:
    """The model whose towers have these configs, but for what its weights may differ in; the
    family, where there is none."""
    for name, base in FAMILIES[TWO_TOWERS].variants.items():
        pairs = list(zip(configs, (_tower_config(base, part) for part in TOWERS), strict=True))
        if all(
            type(config) is type(usual) and difference(config, usual).keys() <= WEIGHTS_OWN
            for config, usual in pairs
        ):
            return name
    return TWO_TOWERS


def _tower_config(config: TwoTowersConfig, part: str) -> Any:
    return configure(getattr(config, part), **config.inner_fields(part, None))[1]


def comparison(
    model: TwoTowers, beside: Mapping[str, Tensor], format: str, source: str
) -> dict[str, Tensor]:
    """Values for the parameters beside the towers, from what stands beside them in a file."""
    ours = {n: v for n, v in model.state_dict().items() if n.startswith(COMPARISON)}
    read = dict(_compared(model, beside, format))
    for name in ours:
        if name not in read:
            theirs = [rule.theirs[0] for rule in _beside(model, format) if rule.ours == name]
            raise CheckpointError(
                f"{source} has both towers, and not what compares them: {name} is missing "
                f"(expected {' or '.join(theirs) or 'no key: models of this format have none'})"
            )
    if more := read.keys() - ours.keys():
        raise CheckpointError(
            f"{source} has {', '.join(sorted(more))}, and the model does not: create it with "
            "logit_bias=-10.0"
        )
    for name, value in read.items():
        if value.shape != ours[name].shape or not bool(value.isfinite().all()):
            raise CheckpointError(f"{source}: {name} is no single finite number: {value}")
    return read


def _compared(
    model: TwoTowers, beside: Mapping[str, Tensor], format: str
) -> Iterator[tuple[str, Tensor]]:
    if format == OWN:
        yield from beside.items()
    for rule in _beside(model, format):
        if rule.theirs[0] in beside:
            yield rule.ours, to_ours(rule, [beside[rule.theirs[0]]], {})


def _beside(model: TwoTowers, format: str | Path) -> tuple[Any, ...]:
    return find_format(format, family_of(model.text)).beside


def export_comparison(model: TwoTowers, format: str | Path) -> dict[str, Tensor]:
    """The parameters beside the towers, by the names of a format."""
    ours = {n: v.detach() for n, v in model.state_dict().items() if n.startswith(COMPARISON)}
    rules = {rule.ours: rule for rule in _beside(model, format)}
    if left := [name for name in ours if name not in rules]:
        raise CheckpointError(f"format {str(format)!r} has no place for {', '.join(left)}")
    return {
        rules[n].theirs[0]: to_theirs(rules[n], v, 1, {})[0].contiguous() for n, v in ours.items()
    }


def take_up(model: TwoTowers) -> None:
    """What an import has left at the towers becomes the whole model's: their eps, and what their
    checkpoint had besides."""
    towers = {"image": model.core, "text": model.text}
    for part, tower in towers.items():
        config, name = model.config, f"{part}_fields"
        usual = _tower_config(config, part)
        if usual.norm_eps != tower.config.norm_eps:
            fields = {**getattr(config, name), "norm_eps": tower.config.norm_eps}
            model.config = replace(config, **{name: fields})
    image, text = (tower.extras.inside(part) for part, tower in towers.items())
    model.extras = image.joined(text)
    for tower in towers.values():
        tower.extras = Extras()
