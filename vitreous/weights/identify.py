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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from vitreous.config import FOREIGN_FIELDS, flat, kind_of, option_text
from vitreous.errors import CheckpointError
from vitreous.models import FAMILIES, configure, family_of
from vitreous.models.model import Model
from vitreous.weights.families import STATE_DICTS, state_dict_of
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
from vitreous.weights.rules.keys import (
    Gathered,
    first_keys,
    gather,
    matches,
    shapes_of,
    strip_prefix,
    title,
)
from vitreous.weights.rules.language import Format, Shape

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
    shapes = shapes_of(checkpoint.tensors)
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
    for rules in _candidates(format, None if model is None else configure(model)[0]):
        gathered = gather(rules, strip_prefix(shapes, rules))
        if not any(_same(rules, gathered, *other) for other in candidates):
            candidates.append((rules, gathered))
    candidates.sort(key=lambda each: (each[1].dropped, not each[1].has_keys_of(shapes)))
    complete: list[tuple[Format, Inferred]] = []
    for search in (False, True):  # the longer way only where the shorter one does not lead there
        complete = [
            (rules, each)
            for rules, gathered in candidates
            if 2 * len(gathered.unused) < len(shapes)
            for each in infer_by_rules(rules, gathered, model, stated or {}, search)
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


def _candidates(format: str | Path | None, family: str | None) -> list[Format]:
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


def _same(rules: Format, gathered: Gathered, others: Format, other: Gathered) -> bool:
    """Whether other rules read the same: DeiT's keys are timm's."""
    return {*rules.families} <= {*others.families} and gathered == other


def infer_by_rules(
    rules: Format,
    gathered: Gathered,
    model: str | None,
    stated: Mapping[str, Any],
    search: bool,
) -> list[Inferred]:
    """The models that come nearest, of the families that the rules are for."""
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
            found += infer_by_rules(rules, gathered, model, {**stated, **needed}, search)
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
    gathered = gather(rules, strip_prefix(shapes, rules))
    wanted = GivenFields(family, optional=(*rules.optional, *rules.unseen), config=config)
    for way in infer(gathered.shapes, gathered.axes, wanted)[:1]:
        found = _with_keys(way, gathered)
        return found.changes, found.shown, {*found.misfits, *found.unused}
    return {}, frozenset(), {*shapes}


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


def detect_format(
    model: Model, tensors: Mapping[str, Tensor], source: str, reinit: Sequence[str] = ()
) -> Format:
    """The known format in which the checkpoint has all parameters except the head's, and those that
    begin anew.

    If several formats have the keys (PaddleClas uses timm's), most matching shapes win, then most
    shapes that a model of another size has, then the fewest keys that it has no place for (DINOv2's
    mask token, which timm leaves out), and a format that knows the keys with what they all begin
    with.
    """
    anew = [*state_dict_of(model).classwise(model), *reinit]
    wanted = {k: v for k, v in shapes_of(model.state_dict()).items() if not matches(k, anew)}
    candidates = _candidates(None, family_of(model))
    fitting: dict[tuple[int, int, int, bool], Format] = {}
    for rules in candidates:
        plain = strip_prefix(shapes_of(tensors), rules)
        gathered = gather(rules, plain, wanted)
        if wanted.keys() <= gathered.keys.keys():
            found = {name: gathered.shapes.get(name) for name in wanted}
            fits = sum(found[name] == wanted[name] for name in wanted)
            homeless = sum(not rules.ours_of(key) for key in plain)
            same_keys = gathered.has_keys_of(tensors)
            fitting.setdefault((fits, _scaled(found, wanted), -homeless, same_keys), rules)
    if fitting:
        return fitting[max(fitting)]
    raise CheckpointError(
        f"{source} does not fit {title(model)} in any known format "
        f"({', '.join(rules.name for rules in candidates)}); its first keys are "
        f"{first_keys(tensors)}. Is it for another model? Name the format to see which "
        "tensors are missing. For an unknown format, write rules (docs/formats.md)"
    )
