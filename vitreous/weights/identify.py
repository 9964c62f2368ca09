"""Which model a checkpoint is for, and in which format: found from its tensors.

Their keys become our names through a format's rules, and their shapes ours through its patterns;
then the models say what fits (`infer.py`). What a file states about itself decides over what
is guessed, and every guess is reported with the field that changes it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from vitreous.config import FOREIGN_FIELDS, flat, kind_of, option_text
from vitreous.models import FAMILIES, configure
from vitreous.weights.families import STATE_DICTS
from vitreous.weights.infer import (
    FREE,
    HEAD_WIDTH,
    GivenFields,
    Inferred,
    best,
    infer,
    of_likeliest_families,
)
from vitreous.weights.io.files import Checkpoint
from vitreous.weights.origin import HIDDEN_FIELDS, Origin
from vitreous.weights.rules.formats import OWN, find_format, formats
from vitreous.weights.rules.keys import matches, strip_prefix
from vitreous.weights.rules.language import Format, Place, Rule, Shape, placeholders
from vitreous.weights.rules.patterns import axes_in, our_shape, repeated

Shapes = Mapping[str, Shape]
MOST_TENSORS, MOST_KINDS, LONGEST_NAME = 10_000, 2_000, 500
"""What no model reaches: tensors, names that differ in more than numbers, and letters of a name. A
file beyond that is not compared with all formats, which would take minutes."""
_NUMBERS = re.compile(r"\d+")


@dataclass(frozen=True)
class Reading:
    """One way to read a checkpoint: `vitreous.create(model, **changes)`, imported as `format`."""

    format: str
    model: str
    changes: dict[str, Any]
    assumed: dict[str, tuple[Any, str]] = field(default_factory=dict)
    """Config fields that do not show in the tensors: the value that was taken, and why."""
    unused: tuple[str, ...] = ()
    """Keys that the model has no place for."""

    def __str__(self) -> str:
        """`vit-ti/16 with classes=10 (timm)`"""
        changes = _assignments(self.changes)
        return f"{self.model}{' with ' if changes else ''}{changes} ({self.format})"

    def assumptions(self) -> list[str]:
        return assumptions(self.assumed)


def assumptions(assumed: Mapping[str, tuple[Any, str]]) -> list[str]:
    """What was assumed and why, one line for each reason: `heads=3 (as in vit-ti/16)`."""
    reasons: dict[str, list[str]] = {}
    for name, (value, why) in assumed.items():
        reasons.setdefault(why, []).append(f"{name}={option_text(value)}")
    return [f"{', '.join(fields)} ({why})" for why, fields in reasons.items()]


def _assignments(fields: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in fields.items())


def readings(
    checkpoint: Checkpoint,
    *,
    format: str | Path | None = None,
    model: str | None = None,
    origin: Origin | None = None,
    fields: Mapping[str, Any] | None = None,
) -> list[Reading]:
    """Every model that a checkpoint can be for, the likeliest first; none if nothing fits.

    format: read it in this format only, by name or by the path of a .toml file with rules.
    model: only as this model or family, with the changes that it needs.
    origin: the model and the fields that the checkpoint states.
    fields: config fields that are certain, over what the checkpoint states.
    """
    shapes = {key: tuple(value.shape) for key, value in checkpoint.tensors.items()}
    stated: dict[str, Any] = {}
    if origin is not None and (model is None or configure(model)[0] == configure(origin[0])[0]):
        model, stated = model or origin[0], origin[1]
    certain = {**stated, **(fields or {})}
    said = _said(checkpoint.settings)
    heads = {name: each.value for name, each in said.items() if name == "heads"}
    told = {name: value for name, value in heads.items() if name not in certain}
    found = read_shapes(shapes, format=format, model=model, stated={**told, **certain})
    if told and not found:  # those of another part
        found, told = read_shapes(shapes, format=format, model=model, stated=certain), {}
    return [
        replace(
            each,
            changes=each.changes
            | ({} if "head" in certain else as_projection(each, checkpoint.tensors)),
            assumed={name: (value, said[name].words) for name, value in told.items()}
            | {
                name: (value, f"{why}; {said[name].words}" if name in said else why)
                for name, (value, why) in each.assumed.items()
            },
        )
        for each in found
    ]


class Said(NamedTuple):
    """What a file says about a field of ours, by its own names of it."""

    value: Any
    words: str


def _said(settings: Mapping[str, Any]) -> dict[str, Said]:
    """The settings of a training checkpoint that are about fields of ours, of one meaning each."""
    found: dict[str, list[str]] = {}
    values: dict[str, list[Any]] = {}
    for theirs, value in settings.items():
        ours = FOREIGN_FIELDS.get(theirs.lower(), theirs.lower())
        found.setdefault(ours, []).append(f"{theirs}={value!r}")
        values.setdefault(ours, []).append(value)
    return {
        ours: Said(values[ours][0], f"the file says {', '.join(words[:3])}")
        for ours, words in found.items()
        if all(value == values[ours][0] for value in values[ours])
    }


def as_projection(reading: Reading, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """The head of a tower whose last layer has a bias of zeros: timm's linear layers need one, and
    CLIP's projection has none."""
    family, config = configure(reading.model, **reading.changes)
    if not STATE_DICTS[family].image_text or kind_of(config, "head") != "linear":
        return {}
    rules = find_format(reading.format, family)
    plain = strip_prefix(tensors, rules)
    for rule, values in rules.rules_for("head.out.bias"):
        for (key,) in rules.spellings(rule, values, {}) if rule.if_absent else ():
            if key in plain and not bool(plain[key].any()):
                return {"head": "projection"}
    return {}


def read_shapes(
    shapes: Shapes,
    *,
    format: str | Path | None = None,
    model: str | None = None,
    stated: Mapping[str, Any] | None = None,
) -> list[Reading]:
    """`readings` of tensors by their shapes; stated: config fields that are certain."""
    if too_many_names(shapes):
        return []
    candidates: list[tuple[Format, Gathered]] = []
    for rules in _candidates(format, model):
        gathered = gather(rules, shapes)
        if not any(_same(rules, gathered, *other) for other in candidates):
            candidates.append((rules, gathered))
    candidates.sort(key=lambda each: (each[1].dropped, _is_stripped(each[1], shapes)))
    complete: list[tuple[Format, Inferred]] = []
    for search in (False, True):  # the longer way only where the shorter one does not lead there
        complete = [
            (rules, each)
            for rules, gathered in candidates
            if 2 * len(gathered.unused) < len(shapes)
            for each in _infer(rules, gathered, model, stated or {}, search)
            if not each.misfits
        ]
        if any(not each.unused for _, each in complete):
            break
    top = of_likeliest_families(best(each for _, each in complete))
    kept: list[Reading] = []
    for rules, each in complete:
        if each in top:
            reading = _reading(rules, each, stated or {})
            same = [(other.model, other.changes) for other in kept]
            if (reading.model, reading.changes) not in same:
                kept.append(reading)
    # A DINOv2 is a ViT with some fields changed: the name that says most comes first.
    return sorted(kept, key=lambda reading: len(reading.changes.keys() - {*FREE, "head"}))


def too_many_names(names: Collection[str]) -> bool:
    """Whether these are more or longer names than the tensors of any model have."""
    if len(names) > MOST_TENSORS or any(len(name) > LONGEST_NAME for name in names):
        return True
    return len({_NUMBERS.sub("#", name) for name in names}) > MOST_KINDS


def _candidates(format: str | Path | None, model: str | None) -> list[Format]:
    """The rules to try: originals before those that extend them."""
    family = None if model is None else configure(model)[0]
    if format is not None:
        if str(format) == OWN or str(format).endswith(".toml"):
            return [find_format(format, family or "")]
        if family is not None:
            return [find_format(format, family)]
        find_format_name = formats().get(str(format))
        if find_format_name is None:
            find_format(format, "")  # raises, with a suggestion
        return list(find_format_name or ())
    known = [rules for sets in formats().values() for rules in sets]
    if family is not None:
        known = [rules for rules in known if family in rules.families]
    return [find_format(OWN, ""), *sorted(known, key=lambda rules: bool(rules.same_as))]


@dataclass(frozen=True)
class Gathered:
    """A checkpoint in our names."""

    shapes: dict[str, Shape]
    axes: dict[str, int]
    """Lengths that the checkpoint's layout shows: heads, and the sides of a patch."""
    keys: dict[str, list[str]]
    """Their keys for each of our names."""
    unused: tuple[str, ...]
    """Keys without a rule, or with one that does not fit their shape."""
    dropped: int
    """How many keys the rules ignore."""
    flat: bool
    """Whether patches are kept as flat vectors, which do not show their sides and channels."""
    problems: dict[str, str] = field(default_factory=dict)
    """Our names whose rule does not fit the keys that it found, and why."""


def gather(rules: Format, shapes: Shapes) -> Gathered:
    """The shapes of a checkpoint by our names, whatever model it is for."""
    plain = strip_prefix(shapes, rules)
    places: dict[tuple[str, Rule, int], dict[tuple[int, int], tuple[str, Place]]] = {}
    counted = {
        key: shape
        for key, shape in plain.items()
        if 0 not in shape and rules.ours_of(key, derived=True) is None
    }
    for key in counted:
        for place in _likeliest(rules.places_of(key)):
            parts = places.setdefault((place.ours, place.rule, place.spelling), {})
            parts.setdefault((place.part, place.head), (key, place))
    keys: dict[str, list[str]] = {}
    owners: dict[str, Rule] = {}
    problems: dict[str, str] = {}
    axes = {"qkv": 3}
    if any(repeated(pattern) for rule in rules.rules for pattern in rule.patterns):
        axes |= {n: v for n, v in rules.numbers.items() if n == "heads" and isinstance(v, int)}
    for (ours, rule, _), parts in places.items():
        wanted = range(len(rule.theirs))
        heads = max(head for _, head in parts) + 1
        complete = [(part, head) for part in wanted for head in range(heads)]
        if ours in keys:
            continue
        if parts.keys() != set(complete):
            first = next(iter(parts.values()))[0]
            problems.setdefault(
                ours, f"of its {len(complete)} keys {len(parts)} are there ({first} …)"
            )
            continue
        problems.pop(ours, None)
        keys[ours] = [parts[each][0] for each in complete]
        owners[ours] = rule
        if heads > 1:
            axes["heads"] = heads
    for ours, rule in owners.items():
        lengths = axes_in(rule, [counted[key] for key in keys[ours]], axes)
        axes |= {name: lengths[name] for name in ("heads", "ph", "pw") if name in lengths}
    found: dict[str, Shape] = {}
    flat = False
    for ours, rule in owners.items():
        try:
            their_shapes = [counted[key] for key in keys[ours]]
            found[ours] = our_shape(rule, their_shapes, axes, guess=True)
            flat |= "ph" not in axes and any("ph" in pattern for pattern in rule.patterns)
        except ValueError as error:
            problems[ours] = f"{', '.join(keys[ours][:3])}: {error}"
    used = {key for ours in found for key in keys[ours]}
    for ours in [ours for ours in found if owners[ours].rows == "first"]:
        del found[ours]  # its length shows nothing
    left = [key for key in counted if key not in used]
    unused = tuple(key for key in left if not matches(key, rules.drop))
    dropped = len(left) - len(unused)
    owned = {ours: keys[ours] for ours in found}
    return Gathered(found, axes, owned, unused, dropped, flat, problems)


def _likeliest(places: Iterable[Place]) -> list[Place]:
    """Where rules with and without placeholders have a key, those that name it most exactly:
    `dense_{2i+1}` is not meant where another rule has `dense_7`."""
    found = [(len(placeholders(place.rule.theirs[place.part])), place) for place in places]
    least = min((count for count, _ in found), default=0)
    return [place for count, place in found if count == least]


def _is_stripped(gathered: Gathered, shapes: Shapes) -> bool:
    """Whether what all keys begin with was left out for these rules."""
    return any(key not in shapes for keys in gathered.keys.values() for key in keys)


def _same(rules: Format, gathered: Gathered, others: Format, other: Gathered) -> bool:
    """Whether other rules read the same: DeiT's keys are timm's."""
    return {*rules.families} <= {*others.families} and gathered == other


def _infer(
    rules: Format,
    gathered: Gathered,
    model: str | None,
    stated: Mapping[str, Any],
    search: bool,
) -> list[Inferred]:
    """What fits, of the families that the rules are for."""
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
            found += _infer(rules, gathered, model, {**stated, **needed}, search)
    return found


def _is_unused(rules: Format, ours: str, keys: list[str]) -> bool:
    """Whether the rules know it as something that no model of ours uses."""
    rule = rules.rule_for(ours)
    return (rule is not None and rule[0].unused) or matches(keys[0], rules.drop)


def infer_by_rules(rules: Format, gathered: Gathered, stated: Mapping[str, Any]) -> list[Inferred]:
    """The models that come nearest, even if they do not fit."""
    return _infer(rules, gathered, None, stated, True)


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


def _reading(rules: Format, found: Inferred, stated: Mapping[str, Any]) -> Reading:
    assumed: dict[str, tuple[Any, str]] = {}
    for name in (*HIDDEN_FIELDS, *sorted(found.guessed)):
        value = flat(found.config).get(name)
        if value in (None, False) or name in stated:
            continue
        if name in rules.numbers:
            assumed[name] = (value, f"of {rules.name}'s models")
        elif name not in found.shown:
            assumed[name] = (value, _why(name, found))
    unsaid = _unsaid(rules, found.config)
    assumed |= {name: value for name, value in unsaid.items() if name not in stated}
    if "image_size" not in found.shown:
        odd = "image_size" in found.guessed
        why = "its rows of positions are no square" if odd else "no tensor depends on it"
        assumed["image_size"] = (found.config.image_size, why)
    return Reading(rules.name, found.model, found.changes, assumed, found.unused)


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
    rules: Format, family: str, config: Any, shapes: Shapes
) -> tuple[dict[str, Any], frozenset[str], set[str]]:
    """The config fields in which a checkpoint differs from a model that it does not fit; which of
    them it shows; and the names and keys that they do not explain."""
    gathered = gather(rules, shapes)
    wanted = GivenFields(family, optional=(*rules.optional, *rules.unseen), config=config)
    for way in infer(gathered.shapes, gathered.axes, wanted)[:1]:
        found = _with_keys(way, gathered)
        return found.changes, found.shown, {*found.misfits, *found.unused}
    return {}, frozenset(), {*shapes}
