"""Which model a state dict belongs to, from the names and shapes of its parameters (in our names).

Each family reads its own fields (`families/`). Here they become configs that are proven: a
model of the config, made without memory, has exactly those names and shapes. What still differs is
searched for among the fields with few values, so that a new field needs no code to be found. A
named variant is preferred. What names and shapes do not show (heads, activation …) comes from the
nearest variant, and whoever asks is told so.
"""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from vitreous.config import (
    TRAINING,
    changed,
    fitting,
    flat,
    kind_of,
    marked,
    marks,
    pair,
)
from vitreous.errors import ConfigError
from vitreous.models import FAMILIES, Family, build, canonical, configure
from vitreous.weights.blank import without_values
from vitreous.weights.families import STATE_DICTS
from vitreous.weights.families.state_dict import Shapes
from vitreous.weights.families.vit import MAX_MARGIN
from vitreous.weights.fields import FREE, GivenFields, Inferred, difference, variations

SIZES = ("dim", "depth", "depths", "stages", "width", "patch", "encoder_depth", "decoder_depth")
"""Fields by which most variants are ruled out before any is built."""
HEAD_WIDTH = 64
"""The usual width of an attention head."""
MAX_CHANGES = 4
"""How many fields may differ from a variant for a model to be called by its name."""


def infer(
    shapes: Shapes, axes: Mapping[str, int], wanted: GivenFields | None = None
) -> list[Inferred]:
    """The models that fit a state dict best, the likeliest first; none where no paper fits."""
    wanted = wanted or GivenFields()
    found: list[Inferred] = []
    for family in _families(wanted.model):
        kind = FAMILIES[family].model
        if wanted.kinds and kind not in wanted.kinds:
            continue
        once = wanted.search or not wanted.published
        if wanted.model is None and once and _is_special_case(family, wanted.kinds):
            continue
        for shown in _shown(family, shapes, {**axes, **_heads(wanted)}):
            found += _Search(family, shapes, shown, wanted).run()
    return best(found)


def _heads(wanted: GivenFields) -> dict[str, int]:
    """Their number, if it is known: it divides widths that the tensors show."""
    heads = wanted.fields.get("heads", wanted.numbers.get("heads"))
    return {"heads": heads} if isinstance(heads, int) else {}


def _shown(family: str, shapes: Shapes, axes: Mapping[str, int]) -> list[dict[str, Any]]:
    """`fields_of`, for shapes from anybody's file."""
    try:
        return STATE_DICTS[family].fields_of(shapes, axes)
    except (IndexError, TypeError, ValueError, ZeroDivisionError):
        return []  # too few axes, or of no length: nothing that we have


def _is_special_case(family: str, kinds: frozenset[type]) -> bool:
    """Whether a family only has other defaults than one that it derives from, and that is searched
    too: what its own fields do not bring, the other finds as well."""
    own = FAMILIES[family]
    return any(
        base.model is not own.model
        and issubclass(own.model, base.model)
        and (not kinds or base.model in kinds)
        and marks(own.config).keys() == marks(base.config).keys()
        for base in FAMILIES.values()
    )


def of_likeliest_families(found: Iterable[Inferred]) -> list[Inferred]:
    """Without the families that need more unusual fields than another: a SigLIP is a ViT without
    class token and with attention pooling too, but that is what SigLIP is."""
    found = list(found)
    unusual: dict[str, int] = {}
    for each in found:
        usual = {*FREE, *SIZES, "heads", "mlp_dim", "head", "norm_eps"}
        count = len(each.changes.keys() - usual)
        unusual[each.family] = min(count, unusual.get(each.family, count))
    return [each for each in found if unusual[each.family] == min(unusual.values())]


def best(found: Iterable[Inferred]) -> list[Inferred]:
    """Those with the fewest misfits, and then the fewest tensors unused. Of these, named variants;
    or else the family from whose default the fewest fields differ."""
    found = list(found)
    least = min((_badness(each) for each in found), default=None)
    found = [each for each in found if _badness(each) == least]
    named = [each for each in found if each.changes.keys() <= {*FREE, "head", "norm_eps"}]
    if named := [each for each in named if each.model not in FAMILIES]:
        return named
    nearest = min(found, key=lambda each: len(each.changes), default=None)
    return [each for each in found if nearest and each.family == nearest.family]


def _badness(found: Inferred) -> tuple[int, int]:
    return len(found.misfits), len(found.unused)


def _families(model: str | None) -> list[str]:
    """One family for each kind of model: DeiT and CPVT are ViTs."""
    if model is not None:
        return [configure(model)[0]]
    kinds: dict[Any, str] = {}
    for family, made in FAMILIES.items():
        if not STATE_DICTS[family].found_if_asked:
            kinds.setdefault((made.model, made.config), family)
    return list(kinds.values())


class _Search:
    """The configs of one family for one reading of a state dict."""

    def __init__(
        self, family: str, shapes: Shapes, shown: dict[str, Any], wanted: GivenFields
    ) -> None:
        self.family, self.shapes = family, shapes
        self.wanted = wanted = dataclasses.replace(
            wanted,
            fields=canonical(family, wanted.fields),
            numbers=canonical(family, wanted.numbers),
        )
        self.made: Family = FAMILIES[family]
        self.base = self.made.config()
        known = marks(self.made.config)
        self.numbers = {name: v for name, v in wanted.numbers.items() if name in known}
        self.guessed = {*shown.get("guessed", ())} - wanted.fields.keys()
        self.shown = {k: v for k, v in {**shown, **wanted.fields}.items() if k in known}
        stated = {**self.numbers, **wanted.fields}
        if "grid" in shown and {"stem.layers", "stem.grid_layers"} & stated.keys():
            # Strides and padding do not show, but are known.
            self.shown["image_size"] = stated.get("image_size") or self._size_for(shown, stated)
        if (
            not wanted.published
            and "image_size" not in stated
            and len({*shown.get("grid", ())}) > 1
        ):
            self.guessed.add("image_size")  # rows of positions that are no square may be anything
        if self.shown.get("head") == "none":
            self.shown.pop("classes", None)
        self.cores: list[dict[str, Any]] = [{}]
        if self.made.part is not None and self.made.part not in self.shown:
            self.cores = list(self._cores(self.made.part))

    def _size_for(self, shown: dict[str, Any], stated: dict[str, Any]) -> tuple[int, int]:
        """The image size of a grid of tokens."""
        fields = {k: v for k, v in {**self.shown, **stated}.items() if k != "image_size"}
        size: tuple[int, int] = shown["image_size"]
        for more in range(MAX_MARGIN):  # any size at which the strides fit tells the strides
            guess = {**fields, "image_size": (size[0] + more, size[1] + more)}
            config = self._config(self.made.config(), guess)
            if config is not None:
                return STATE_DICTS[self.family].size_for(config, shown["grid"]) or size
        return size

    def _cores(self, part: str) -> Iterator[dict[str, Any]]:
        """The fields that say which model is inside this one."""
        owner = f"{part}."
        inside = {n.removeprefix(owner): s for n, s in self.shapes.items() if n.startswith(owner)}
        for core in infer(inside, {}):
            fields = {k: v for k, v in core.changes.items() if k not in (*FREE, "head")}
            own = {k: v for k, v in core.changes.items() if k in ("channels", "image_size")}
            yield {part: core.model, f"{part}_fields": fields, **own}

    def run(self) -> list[Inferred]:
        return [each for core in self.cores for each in self._run({**core, **self.shown})]

    def _run(self, shown: dict[str, Any]) -> list[Inferred]:
        """As the named model, as a variant, or else by all fields that show."""
        if self.wanted.model is not None:
            base = self.wanted.config or configure(self.wanted.model)[1]
            if self.made.part is not None:
                # What is inside is the named model's, if it fits: what does not show stays its own.
                own = {k: v for k, v in shown.items() if k in ("classes", "channels")}
                own |= self.wanted.fields
                found = self._from(self.wanted.model, base, own, search=False, others=shown)
                if fits := [each for each in found if not each.misfits and not each.unused]:
                    return fits
            return self._from(self.wanted.model, base, shown, search=True)
        near = [(name, config) for name, config in self._variants() if _same_size(config, shown)]
        free = {k: v for k, v in shown.items() if k in FREE}
        if shown.get("head") == "none":
            free["head"] = "none"
        free |= self.wanted.fields
        exact: list[Inferred] = []
        for name, config in near:
            if self.made.part and getattr(config, self.made.part) != shown.get(self.made.part):
                continue
            found = self._from(name, config, free, search=False, others=shown)
            exact += [each for each in found if not each.misfits and not each.unused]
        if exact:
            return _unlike(exact)
        return self._unnamed(near, shown)

    def _unnamed(self, near: list[tuple[str, Any]], shown: dict[str, Any]) -> list[Inferred]:
        """By its fields; what does not show as in the nearest variant."""
        default = self.made.config()
        if (
            not near
            and isinstance(getattr(default, "heads", None), int)
            and not ("heads" in shown or "heads" in self.numbers)
        ):
            dim = shown.get("dim", default.dim)
            heads = [config.heads for _, config in self._variants() if config.dim == dim]
            shown = {**shown, "heads": (heads or [usual_heads(dim)])[0]}
            self.guessed |= {"heads"}
        found: list[Inferred] = []
        for name, config in near or [(self.family, default)]:
            found += self._from(name, config, shown, search=True)
        for each in sorted(best(found), key=lambda each: len(each.changes))[:1]:
            named = {k for k in each.changes if k not in (*FREE, "head", "norm_eps")}
            if each.model != self.family and len(named) > MAX_CHANGES:
                changes = difference(each.config, self.made.config())
                return [dataclasses.replace(each, model=self.family, changes=changes)]
            return [each]
        return []

    def _variants(self) -> Iterator[tuple[str, Any]]:
        for made in FAMILIES.values():
            if (made.model, made.config) == (self.made.model, self.made.config):
                yield from made.variants.items()

    def _from(
        self,
        name: str,
        base: Any,
        fields: dict[str, Any],
        *,
        search: bool,
        others: Iterable[str] = (),
    ) -> list[Inferred]:
        """The config `base` with these fields, proven; `search` tries other fields too."""
        certain = {k: v for k, v in self.wanted.fields.items() if k in fields}
        self.base = base
        config = self._config(base, {**fields, **self.numbers, **certain})
        if config is None:
            return []
        misfits, unused = self._prove(config)
        if search and self.wanted.search and (misfits or unused):
            config, misfits, unused = self._search(config, (misfits, unused))
        if unsupported := self._unsupported(config):
            repaired = self._repair(config, unsupported, (misfits, unused)) if search else None
            if repaired is None:
                return []
            config = repaired
            misfits, unused = self._prove(config)
        training = {*marked(self.made.config, TRAINING)}
        shown = frozenset({*fields, *others, *self.numbers} - training - self.guessed)
        changes = difference(config, base)
        guessed = frozenset(self.guessed)
        return [Inferred(name, self.family, config, changes, shown, guessed, misfits, unused)]

    def _config(self, base: Any, fields: dict[str, Any]) -> Any:
        """A config, with a number of heads that divides its width; None if there is none."""
        if "heads" not in fields and isinstance(getattr(base, "heads", None), int):
            dim = fields.get("dim", base.dim)
            if dim != base.dim or dim % base.heads:
                fields = {**fields, "heads": usual_heads(dim)}
        own = {  # of a kind that the nearest model has, its part
            name: getattr(self.base, name)
            for name, value in fields.items()
            if value == kind_of(self.base, name) != kind_of(base, name)
        }
        try:
            return changed(base, {**fitting(base, fields), **own})
        except ConfigError:
            return None

    def _prove(self, config: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What a model of this config misses, and what it has no place for."""
        try:
            with without_values():
                model = build(self.family, config)
        except ConfigError:
            return tuple(self.shapes), tuple(self.shapes)
        ours = {name: tuple(value.shape) for name, value in model.state_dict().items()}
        values = {
            name: torch.empty(shape, device="meta")
            for name, shape in self.shapes.items()
            if name in ours
        }
        refused = STATE_DICTS[self.family].resample(model, values, None, None).refused
        if "image_size" in self.wanted.fields:  # it is to be resampled
            refused, ours = {}, {k: s for k, s in ours.items() if k not in refused}
        misfits = [
            name
            for name, shape in ours.items()
            if name in refused or (name in values and tuple(values[name].shape) != shape)
        ]
        optional = self.wanted.optional
        misfits += [
            name
            for name in ours
            if name not in values and not any(fnmatch.fnmatchcase(name, o) for o in optional)
        ]
        known = {*model.state_dict(), *self.wanted.superfluous}
        return tuple(misfits), tuple(name for name in self.shapes if name not in known)

    def _search(
        self,
        config: Any,
        wrong: tuple[tuple[str, ...], tuple[str, ...]],
    ) -> tuple[Any, tuple[str, ...], tuple[str, ...]]:
        """Change one field after the other, as long as that leaves less that does not fit."""
        improved = True
        while improved and any(wrong):
            improved = False
            for change in variations(config):
                if {*change} & {*self.wanted.fields}:
                    continue
                other = self._config(config, change)
                if other is None:
                    continue
                left = self._prove(other)
                if _total(left) < _total(wrong):
                    config, wrong, improved = other, left, True
                    break
        return config, *wrong

    def _unsupported(self, config: Any) -> list[str]:
        """Fields that the library of the checkpoint has no models for."""
        values = flat(config)
        choices = canonical(self.family, self.wanted.choices)
        return [
            name
            for name, known in choices.items()
            if (value := values.get(name)) is not None and value not in known
        ]

    def _repair(
        self, config: Any, unsupported: list[str], wrong: tuple[tuple[str, ...], tuple[str, ...]]
    ) -> Any:
        """The config with values that the library has, and that fit as well; None if there are
        none."""
        choices = canonical(self.family, self.wanted.choices)
        for name in unsupported:
            for value in choices[name] or (None,):
                other = self._config(config, {name: value})
                if other is not None and _total(self._prove(other)) <= _total(wrong):
                    config = other
                    break
            else:
                return None
        return config


def _total(wrong: tuple[tuple[str, ...], tuple[str, ...]]) -> int:
    return len(wrong[0]) + len(wrong[1])


def usual_heads(dim: int) -> int:
    """As many heads as make them about 64 wide."""
    return min(
        (heads for heads in range(1, dim + 1) if dim % heads == 0),
        key=lambda heads: abs(dim // heads - HEAD_WIDTH),
    )


def _same_size(config: Any, shown: Mapping[str, Any]) -> bool:
    for name in SIZES:
        value = getattr(config, name, None)
        if name == "patch" and value is not None:
            value = pair(name, value)
        if name in shown and value is not None and value != shown[name]:
            return False
    return True


def _unlike(found: list[Inferred]) -> list[Inferred]:
    """Without those that compute the same as one before them."""
    kept: list[Inferred] = []
    for each in found:
        same = {*marked(type(each.config), TRAINING)}
        if not any(difference(each.config, other.config).keys() <= same for other in kept):
            kept.append(each)
    return kept
