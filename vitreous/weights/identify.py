"""Which model a checkpoint is for, and in which format: found from its tensors.

Their keys become our names through a format's rules, and their shapes ours through its patterns;
then the models say what fits (`infer.py`). What a file states about itself decides over what
is guessed, and every guess is reported with the field that changes it.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from vitreous.config import FOREIGN_FIELDS, flat, kind_of
from vitreous.errors import CheckpointError
from vitreous.models import FAMILIES, configure, create, family_of
from vitreous.models.model import Model
from vitreous.weights.blank import without_values
from vitreous.weights.families import STATE_DICTS, state_dict_of
from vitreous.weights.fields import FREE, GivenFields, Inferred
from vitreous.weights.infer import HEAD_WIDTH, best, infer, of_likeliest_families
from vitreous.weights.origin import WeightFile
from vitreous.weights.reading import Assumed, Reading
from vitreous.weights.rules.formats import OWN, find_format, formats
from vitreous.weights.rules.keys import (
    Gathered,
    axes_of,
    first_keys,
    gather,
    matches,
    shapes_of,
    title,
)
from vitreous.weights.rules.language import Format
from vitreous.weights.stated import HIDDEN_FIELDS, Stated

MOST_TENSORS, MOST_KINDS, LONGEST_NAME = 10_000, 2_000, 500
"""What no model reaches: tensors, names that differ in more than numbers, and letters of a name. A
file beyond that is not compared with all formats, which would take minutes."""
_NUMBERS = re.compile(r"\d+")


def readings(
    file: WeightFile,
    *,
    format: str | Path | None = None,
    model: str | None = None,
    stated: Stated | None = None,
    fields: Mapping[str, Any] | None = None,
    family: str | None = None,
) -> list[Reading]:
    """Every model that a checkpoint can be for, the likeliest first; none if nothing fits.

    format: read it in this format only, by name or by the path of a .toml file with rules.
    model: only as this model or family, with the changes that it needs.
    stated: what is known about it, if that is more than the file states.
    fields: config fields that are certain, over what the checkpoint states, if it then fits.
    family: of the model, where that is known.
    """
    if too_many_names(file.tensors):
        return []
    stated = stated or file.stated
    named, certain = stated.model, dict[str, Any]()
    if named is not None and (model is None or configure(model)[0] == configure(named)[0]):
        model, certain = model or named, stated.fields
    said = _settings(file.settings)
    heads = {"heads": said["heads"].value} if "heads" in said else {}
    candidates = _candidates(file, format, family if model is None else configure(model)[0])
    for known in [{**certain, **fields}, certain] if fields else [certain]:
        told = {name: value for name, value in heads.items() if name not in known}
        for also in [told, {}] if told else [{}]:  # those of another part may not fit
            if found := _complete(candidates, model, {**also, **known}):
                read = [_reading(file, stated, *each, {**also, **known}) for each in found]
                return [replace(each, assumed=_explained(each, said, also)) for each in read]
    return []


def _explained(reading: Reading, said: Mapping[str, Setting], told: Mapping[str, Any]) -> Assumed:
    """What is assumed, with what the file says about it; told: what is taken because of that."""
    own: Assumed = {name: (value, said[name].words) for name, value in told.items()}
    return own | {
        name: (value, f"{why}; {said[name].words}" if name in said else why)
        for name, (value, why) in reading.assumed.items()
    }


class Setting(NamedTuple):
    """What a file says about a field of ours, by its own names of it."""

    value: Any
    words: str


def _settings(settings: Mapping[str, Any]) -> dict[str, Setting]:
    """The settings of a training checkpoint that are about fields of ours, of one meaning each."""
    found: dict[str, list[str]] = {}
    values: dict[str, list[Any]] = {}
    for theirs, value in settings.items():
        ours = FOREIGN_FIELDS.get(theirs.lower(), theirs.lower())
        found.setdefault(ours, []).append(f"{theirs}={value!r}")
        values.setdefault(ours, []).append(value)
    return {
        ours: Setting(values[ours][0], f"the file says {', '.join(words[:3])}")
        for ours, words in found.items()
        if all(value == values[ours][0] for value in values[ours])
    }


def as_projection(
    gathered: Gathered, tensors: Mapping[str, Tensor], model: str, fields: Mapping[str, Any]
) -> dict[str, Any]:
    """The head of a tower whose last layer has a bias of zeros: timm's linear layers need one, and
    CLIP's projection has none."""
    family, config = configure(model, **fields)
    rule = gathered.owners.get("head.out.bias")
    if rule is None or not rule.if_absent or not STATE_DICTS[family].image_text:
        return {}
    biased = kind_of(config, "head") != "linear" or bool(
        gathered.of(tensors)[gathered.keys["head.out.bias"][0]].any()
    )
    return {} if biased else {"head": "projection"}


def _complete(
    candidates: list[Gathered], model: str | None, stated: Mapping[str, Any]
) -> list[tuple[Gathered, Inferred]]:
    """The models that need all of their tensors, the likeliest first; stated: config fields that
    are certain."""
    complete: list[tuple[Gathered, Inferred]] = []
    for search in (False, True):  # the longer way only where the shorter one does not lead there
        complete = [
            (gathered, each)
            for gathered in candidates
            if 2 * len(gathered.unused) < len(gathered.plain)
            for each in infer_by_rules(gathered, model, stated, search)
            if not each.misfits
        ]
        if any(not each.unused for _, each in complete):
            break
    top = of_likeliest_families(best(each for _, each in complete))
    kept: list[tuple[Gathered, Inferred]] = []
    for gathered, each in complete:
        same = [(other.model, other.changes) for _, other in kept]
        if each in top and (each.model, each.changes) not in same:
            kept.append((gathered, each))
    # A DINOv2 is a ViT with some fields changed: the name that says most comes first.
    return sorted(kept, key=lambda found: len(found[1].changes.keys() - {*FREE, "head"}))


def too_many_names(names: Collection[str]) -> bool:
    """Whether these are more or longer names than the tensors of any model have."""
    if len(names) > MOST_TENSORS or any(len(name) > LONGEST_NAME for name in names):
        return True
    return len({_NUMBERS.sub("#", name) for name in names}) > MOST_KINDS


def _candidates(file: WeightFile, format: str | Path | None, family: str | None) -> list[Gathered]:
    """A file by all rules that may be its format's, the most fitting first."""
    found: list[Gathered] = []
    for rules in _formats(format, family):
        gathered = gather(rules, file.tensors)
        families = {*rules.families}  # DeiT's keys are timm's, and read the same
        if not any(families <= {*other.rules.families} and gathered == other for other in found):
            found.append(gathered)
    return sorted(found, key=lambda gathered: (gathered.dropped, bool(gathered.prefix)))


def _formats(format: str | Path | None, family: str | None) -> list[Format]:
    """The rules to try: originals before those that extend them."""
    known = [rules for sets in formats().values() for rules in sets]
    if format is not None:
        own = str(format) == OWN or str(format).endswith(".toml")
        if own or family is not None or str(format) not in formats():  # which raises
            return [find_format(format, family or "")]
        return list(formats()[str(format)])
    if family is not None:
        known = [rules for rules in known if family in rules.families]
    return [find_format(OWN, ""), *sorted(known, key=lambda rules: bool(rules.same_as))]


def infer_by_rules(
    gathered: Gathered, model: str | None, stated: Mapping[str, Any], search: bool
) -> list[Inferred]:
    """The models that come nearest, of the families that the rules are for."""
    rules = gathered.rules
    wanted = GivenFields(
        model,
        stated,
        {"position": "learned-1d", **rules.numbers} if rules.cuts_positions else rules.numbers,
        rules.choices,
        (*rules.optional, *rules.unseen),
        frozenset(n for n, keys in gathered.keys.items() if _is_unused(rules, n, keys)),
        search=search,
        kinds=frozenset(FAMILIES[family].model for family in rules.families),
        published=not rules.name.endswith(".toml"),
    )
    found: list[Inferred] = []
    for each in infer(gathered.shapes, gathered.axes, wanted):
        needed = rules.needed(each.config)
        if not needed:
            found.append(_with_keys(each, gathered))
        elif not needed.keys() & stated.keys():  # which then leaves something unused
            found += infer_by_rules(gathered, model, {**stated, **needed}, search)
    return found


def _is_unused(rules: Format, ours: str, keys: list[str]) -> bool:
    """Whether the rules know it as something that no model of ours uses."""
    rule = rules.rule_for(ours)
    return (rule is not None and rule[0].unused) or matches(keys[0], rules.drop)


def _with_keys(found: Inferred, gathered: Gathered) -> Inferred:
    """What is unused by their keys, those without a rule too."""
    unused = [key for name in found.unused for key in gathered.keys[name]]
    flat = frozenset(("patch", "channels") if gathered.flat else ())
    return replace(
        found,
        unused=(*unused, *gathered.unused),
        shown=found.shown - flat,
        guessed=found.guessed | flat,
    )


def _reading(
    file: WeightFile, stated: Stated, gathered: Gathered, found: Inferred, given: Mapping[str, Any]
) -> Reading:
    """given: config fields that are certain."""
    rules, fields = gathered.rules, dict(found.changes)
    assumed: Assumed = {}
    for name in (*HIDDEN_FIELDS, *sorted(found.guessed)):
        value = flat(found.config).get(name)
        if value in (None, False) or name in given:
            continue
        if name in rules.numbers:
            assumed[name] = (value, f"of {rules.name}'s models")
        elif name not in found.shown:
            assumed[name] = (value, _why(name, found))
    unsaid = _unsaid(rules, found.config)
    assumed |= {name: value for name, value in unsaid.items() if name not in given}
    if "image_size" not in found.shown and hasattr(found.config, "image_size"):
        odd = "image_size" in found.guessed
        why = "its rows of positions are no square" if odd else "no tensor depends on it"
        assumed["image_size"] = (found.config.image_size, why)
    if "head" not in given:
        fields |= as_projection(gathered, file.tensors, found.model, fields)
    blank, unused = blank_model(found.model, fields), found.unused
    return Reading(file, stated, gathered, found.model, fields, blank, assumed, unused)


def blank_model(name: str, fields: Mapping[str, Any], before: Model | None = None) -> Model:
    """The model without values; the one that was made before, if it is the same."""
    if before is not None and configure(name, **fields)[1] == before.config:
        return before
    with without_values():
        return create(name, **fields)


def _unsaid(rules: Format, config: Any) -> dict[str, tuple[Any, str]]:
    """What every published library decides, and somebody's own model may have otherwise."""
    found: dict[str, tuple[Any, str]] = {}
    if rules.name in formats() or not hasattr(config, "attention"):
        return found
    if config.attention.scale is None:
        scale = round(config.head_width**-0.5, 6)
        found["attention.scale"] = (scale, "1 / √head_dim, as in the paper")
    if config.head.kind == "tanh":
        found["head"] = ("tanh", "what is between the two layers of a head does not show")
    return found


def _why(name: str, found: Inferred) -> str:
    """What a value was chosen by that the tensors do not show."""
    if found.model not in FAMILIES and name not in found.changes:
        notes = STATE_DICTS[found.family].unseen
        return ", ".join([f"as in {found.model}", *([notes[name]] if name in notes else [])])
    if name in ("patch", "channels"):
        return "patches are flat vectors in this file; 3 channels, or else 1, are usual"
    if name == "norm_eps":
        return "the default; torch's nn.LayerNorm has 1e-05"
    if name in ("stem.layers", "stem.grid_layers"):
        return "strides, padding and activations of convolutions do not show"
    if name in ("heads", "head_dim"):
        return _why_heads(found)
    return "as many as in the blocks" if name == "pool.heads" else "the default"


def _why_heads(found: Inferred) -> str:
    """As another model of this width has them, or as near to the usual width as it allows."""
    config = found.config
    width = getattr(config, "head_width", config.dim // config.heads)
    for name, other in FAMILIES[found.family].variants.items():
        if width != HEAD_WIDTH and (other.dim, other.heads) == (config.dim, config.heads):
            return f"as in {name}, which is {config.dim} wide too"
    usual = f"heads are usually {HEAD_WIDTH} wide"
    return usual if width == HEAD_WIDTH else f"{usual}, here {width}"


def differing_fields(
    rules: Format, family: str, config: Any, tensors: Mapping[str, Tensor]
) -> tuple[dict[str, Any], frozenset[str], set[str]]:
    """The config fields in which a checkpoint differs from a model that it does not fit; which of
    them it shows; and the names and keys that they do not explain."""
    gathered = gather(rules, tensors)
    wanted = GivenFields(family, optional=(*rules.optional, *rules.unseen), config=config)
    for way in infer(gathered.shapes, gathered.axes, wanted)[:1]:
        found = _with_keys(way, gathered)
        return found.changes, found.shown, {*found.misfits, *found.unused}
    return {}, frozenset(), {*tensors}


def free_fields(
    gathered: Gathered, model: str, fields: dict[str, Any], blank: Model
) -> dict[str, Any]:
    """Classes, channels and image size of a model with these fields, as the tensors show them."""
    wanted = GivenFields(model, fields, search=False)
    ways = infer(gathered.shapes, axes_of(blank), wanted)
    shown = [{k: v for k, v in way.changes.items() if k in FREE} for way in ways]
    return shown[0] if shown and shown.count(shown[0]) == len(shown) else {}


def _scaled(
    found: Mapping[str, tuple[int, ...] | None], wanted: Mapping[str, tuple[int, ...]]
) -> int:
    """How many shapes are those of the model at another size: each length of its axes has become
    one other length, as 768 becomes 192 and 3072 becomes 768."""
    pairs = {
        name: [*zip(wanted[name], shape, strict=True)]
        for name, shape in found.items()
        if shape is not None and len(shape) == len(wanted[name])
    }
    counts = Counter(itertools.chain.from_iterable(pairs.values()))
    usual = {ours: theirs for (ours, theirs), _ in reversed(counts.most_common())}
    return sum(all(usual[ours] == theirs for ours, theirs in each) for each in pairs.values())


def gathered_for(
    model: Model,
    file: WeightFile,
    format: str | Path | None,
    reinit: Sequence[str] = (),
    usual: str = "",
) -> Gathered:
    """A file's keys for the parameters of a model, in the format that is given, or recognised, or
    else in the usual one: then the import reports what does not fit."""
    if format is None:
        try:
            return detect_format(model, file.tensors, file.called, reinit)
        except CheckpointError:
            if not usual:
                raise
    rules = find_format(format or usual, family_of(model))
    return gather(rules, file.tensors, model.state_dict())


def detect_format(
    model: Model, tensors: Mapping[str, Tensor], source: str, reinit: Sequence[str] = ()
) -> Gathered:
    """The keys in the known format in which the checkpoint has all parameters except the head's,
    and those that begin anew.

    If several formats have the keys (PaddleClas uses timm's), most matching shapes win, then most
    shapes that a model of another size has, then the fewest keys that it has no place for (DINOv2's
    mask token, which timm leaves out), and a format that knows the keys with what they all begin
    with.
    """
    anew = [*state_dict_of(model).classwise(model), *reinit]
    ours = shapes_of(model.state_dict())
    wanted = {name: shape for name, shape in ours.items() if not matches(name, anew)}
    known = _formats(None, family_of(model))
    fitting: dict[tuple[int, int, int, bool], Gathered] = {}
    for rules in known:
        gathered = gather(rules, tensors, ours)
        if wanted.keys() <= gathered.keys.keys():
            found = {name: gathered.shapes.get(name) for name in wanted}
            fits = sum(found[name] == wanted[name] for name in wanted)
            placeless = sum(not rules.ours_of(key) for key in gathered.plain)
            rank = (fits, _scaled(found, wanted), -placeless, not gathered.prefix)
            fitting.setdefault(rank, gathered)
    if fitting:
        return fitting[max(fitting)]
    raise CheckpointError(
        f"{source} does not fit {title(model)} in any known format "
        f"({', '.join(rules.name for rules in known)}); its first keys are "
        f"{first_keys(tensors)}. Is it for another model? Name the format to see which "
        "tensors are missing. For an unknown format, write rules (docs/formats.md)"
    )
