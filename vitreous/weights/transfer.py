"""A checkpoint's tensors on their way into a model, and every reason why one does not fit."""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vitreous.config import flat, kind_of
from vitreous.errors import CheckpointError, ConfigError, advice
from vitreous.layers.resample import Grid, adapt_channels
from vitreous.models import FAMILIES, build, configure, family_of
from vitreous.models.composite import CompositeConfig
from vitreous.models.extras import KEY as EXTRAS
from vitreous.models.extras import Extras
from vitreous.models.model import Model
from vitreous.weights.blank import without_values
from vitreous.weights.families import state_dict_of
from vitreous.weights.identify import detect_format, differing_fields
from vitreous.weights.reading import Reading
from vitreous.weights.rules.formats import OWN
from vitreous.weights.rules.keys import (
    Gathered,
    axes_of,
    conditions,
    gather,
    matches,
    title,
)
from vitreous.weights.rules.language import Format, Rule, has_field
from vitreous.weights.rules.patterns import left_by, pattern_of, to_ours, unit_advice
from vitreous.weights.rules.report import ImportReport, Misfit
from vitreous.weights.stated import core_epsilon

FEW_FIT = 10
"""Where fewer than one in so many tensors fit, a checkpoint is for another model."""
FEW = 4
"""So many misfits are listed even if config fields explain them."""
WITH_OTHER_REMEDIES = ("image_size", "channels", "window")
"""Fields that may differ: resample, adapt_channels."""


class Transfer:
    """Values on their way into a model's parameters, with what happened and what is wrong."""

    def __init__(self, model: Model, reading: Reading, reinit: list[str], keep: list[str]) -> None:
        self.model, self.reading, self.reinit, self.keep = model, reading, reinit, keep
        self.rules = rules = reading.rules
        self.report = ImportReport(reading.source, rules.name)
        self.misfit = Misfit()
        self.axes, self.ours = axes_of(model), model.state_dict()
        self.values: dict[str, Tensor] = {}
        """The checkpoint's values for our parameters, in our layout."""
        self.extras = Extras(rules.name)
        self.is_for = reading.file.metadata.get("model") or reading.stated.model or ""
        """The model that the checkpoint states it is for."""
        self.about = state_dict_of(model)
        self.classwise = self.about.classwise(model)
        headless = kind_of(model.config, "head") == "none"
        for pattern in reinit:
            known = headless and pattern in (*self.classwise, *self.about.behind_maps)
            if not known and not fnmatch.filter(self.ours, pattern):
                raise ConfigError(
                    f"reinit = {pattern!r} matches no parameter of {title(model)}; "
                    f"its parts are {', '.join(dict.fromkeys(k.split('.')[0] for k in self.ours))}"
                )

    def tensors(self, drop: list[str]) -> tuple[dict[str, Tensor], Gathered]:
        """Those of the file without what the caller drops, by the keys that the rules have."""
        file, gathered, report = self.reading.file, self.reading.gathered, self.report
        tensors = file.tensors
        if self.rules.name == OWN:
            self.extras = Extras.read(tensors, file.metadata)
            tensors = {key: v for key, v in tensors.items() if not key.startswith(EXTRAS)}
            tensors = self.about.upgraded(self.model, tensors)
        plain = gathered.of(tensors)
        if prefix := gathered.prefix:
            which = "all" if all(key.startswith(prefix) for key in tensors) else "most"
            report.notes.append(f"{which} keys begin with {prefix!r}, which was left out")
        for pattern in drop:
            if not fnmatch.filter(plain, pattern):
                raise ConfigError(f"drop = {pattern!r} matches no key of {report.source}")
        report.dropped += [key for key in plain if matches(key, drop)]
        plain = {key: value for key, value in plain.items() if not matches(key, drop)}
        if plain.keys() != gathered.plain.keys():
            gathered = gather(self.rules, plain, self.ours)
        return plain, gathered

    def convert(self, tensors: Mapping[str, Tensor], gathered: Gathered) -> set[str]:
        """Set `values`; return the keys that were used."""
        used: set[str] = set()
        for name, own in self.ours.items():
            keys, rule = gathered.keys.get(name, []), gathered.owners.get(name)
            if rule is None:
                rules = [rule for rule, _ in self.rules.rules_for(name)]
                rule = next((rule for rule in rules if rule.value is not None), None)
            used.update(keys)
            if matches(name, self.reinit):
                self.report.reinitialised.append(name)
                self.report.dropped += keys
            elif rule is not None:
                for key in keys:
                    _check_finite(self.report.source, key, tensors[key].to(own.dtype))
                try:
                    self.values[name] = self._converted(name, rule, [tensors[key] for key in keys])
                except (ValueError, TypeError) as error:
                    self.misfit.misshaped[name] = f"{', '.join(keys)}: {error}"
            elif matches(name, self.rules.optional):
                self.values[name] = own
                self.report.notes.append(f"{name}: not in the checkpoint, unchanged")
            else:
                self.misfit.missing[name] = self._expected_keys(name)
        return used

    def _converted(self, name: str, rule: Rule, parts: list[Tensor]) -> Tensor:
        """Our parameter; what of theirs it does not have is kept in `extras`."""
        own, extras = self.ours[name], self.extras
        if rule.value is not None:
            return rule.constant(own)
        value, rest = to_ours(rule, parts, self.axes), left_by(rule, parts[0])
        if rule.rows == "first":
            if len(value) < len(own):
                raise ValueError(
                    f"{len(value)} rows, and the model has {len(own)} tokens: state the size of "
                    "their images, as image_size in `numbers` of the rules"
                )
            value, rest = value[: len(own)], value[len(own) :].clone()
        elif rule.rows == "second":
            value, rest = value[1:], value[:1].clone()
        elif rule.rows == "last":
            value = value.roll(self.model.config.rows, 0)
        if rest is not None and len(rest):
            extras.unused[name] = rest
        pattern = pattern_of(rule, [tuple(part.shape) for part in parts], self.axes)
        if pattern is not None:
            extras.patterns[name] = pattern
        return value

    def _expected_keys(self, name: str) -> str:
        known = conditions(self.model)
        covered = self.rules.rule_to_write(name, known)
        if covered is None:
            return "no key: models of this format have no such part; create the model without it"
        others = len(list(self.rules.spellings(*covered, self.axes))) - 1
        usual = " + ".join(self.rules.written(*covered, self.axes, known))
        return f"{usual}, and {others} other spellings" if others else usual

    @functools.cached_property
    def derived(self) -> dict[str, Tensor]:
        return self.about.derived(self.model)

    def sort_other_keys(self, tensors: Mapping[str, Tensor], used: set[str]) -> None:
        """Every other key is kept or ignored by a rule, derived, re-initialised, or unexpected."""
        rules = self.rules
        for key, tensor in tensors.items():
            if key in used or tensor.numel() == 0 or self._keep(key, tensor):
                continue
            ours = rules.ours_of(key)
            known = matches(key, rules.drop) or rules.ours_of(key, derived=True) is not None
            found = None if ours is None else rules.rule_for(ours)
            if found is not None and found[0].if_absent is not None and not tensor.any():
                known = True  # as we write it where the model lacks the parameter
            if known or (ours is not None and matches(ours, self.reinit)):
                self.report.dropped.append(key)
            else:
                self.misfit.unexpected[key] = str(tuple(tensor.shape))

    def note_idle_rules(self, tensors: Mapping[str, Tensor]) -> None:
        """Of somebody's own rules, say which have found nothing: a name of theirs may be misspelt,
        and the model does without that part."""
        rules = self.rules
        if not rules.name.endswith(".toml") or rules.same_as:
            return
        used = {place.rule for key in tensors for place in rules.places_of(key)}
        self.report.notes += [
            f"no key fits the rule for {rule.ours}"
            for rule in rules.rules
            if rule.theirs
            and rule not in used
            and rule.if_absent is None
            and rule.when is None
            # one for the other words of a placeholder, or another spelling
            and not any(rule.matches(other.ours) for other in used)
        ]

    def _keep(self, key: str, tensor: Tensor) -> bool:
        """Keep what the rules know and no model of ours uses, for an export, and buffers that
        differ by their rounding from ours; whether it is that."""
        derived = list(self.rules.places_of(key, derived=True))
        for place in (*self.rules.places_of(key), *derived):
            try:
                value = to_ours(place.rule, [tensor], self.axes)
            except ValueError:
                continue
            if place.rule.unused or (derived and self._rounded(key, place.ours, value)):
                self.extras.unused[place.ours] = value.clone()
                self.report.kept.append(key)
                return True
        return False

    def _rounded(self, key: str, name: str, value: Tensor) -> bool:
        """Whether a buffer is ours but for rounding; one that differs is of another model."""
        ours = self.derived.get(name)
        if ours is None or ours.is_meta or value.shape != ours.shape or torch.equal(value, ours):
            return False
        if not torch.allclose(value.float(), ours.float(), rtol=0.01):
            self.misfit.misshaped[name] = (
                f"{key}: other values than this model's config gives: create it with other fields"
            )
        return True

    def fit_grid(self, mode: str | None, source: Grid | None) -> None:
        """Bring positions and windows to the model's grid, if `mode` says how."""
        before = dict(self.values)
        done = self.about.resample(self.model, self.values, mode, source)
        if not done.changed:
            same = {name for name, value in before.items() if self.values[name] is value}
            self.extras.before.update({n: v.clone() for n, v in before.items() if n not in same})
        self.report.resampled.update(done.changed)
        self.report.notes += [f"{name}: {note}" for name, note in done.notes.items()]
        for name, why in done.refused.items():
            more = name in before and len(before[name]) > len(self.ours[name])
            if more and self.rules.name.endswith(".toml"):
                why += "; if their code uses the first rows of more, give the rule rows = 'first'"
            self.misfit.misshaped[name] = why

    def fit_input(self, allowed: bool) -> None:
        """Bring the first layer to the model's number of channels, if allowed."""
        values, name = self.values, self.about.input_weight(self.model)
        if name not in values or values[name].ndim != 4:
            return
        have, want = values[name].shape[1], self.model.config.channels
        if have == want:
            return
        if not allowed:
            self.misfit.misshaped[name] = (
                f"{have} channels, the model has {want}{advice(': pass ', adapt_channels=True)}"
            )
            return
        values[name] = adapt_channels(values[name], want)
        norms = [norm for norm in self.about.input_norms(self.model) if norm in values]
        for norm in norms:  # a value per pixel and channel; they need no scaling
            by_channel = values[norm].reshape(1, have, -1, 1)
            values[norm] = (adapt_channels(by_channel, want) * (want / have)).flatten()
        self.report.adapted |= dict.fromkeys((name, *norms), f"{have} to {want} channels")

    def check_shapes(self) -> None:
        """Compare shapes, which must be equal: an axis of length 1 is an axis."""
        for name, value in self.values.items():
            have, want = tuple(value.shape), tuple(self.ours[name].shape)
            if name in self.misfit.misshaped or have == want:
                continue
            advice = ""
            if matches(name, self.classwise):
                advice = ": create it with as many classes, or let the head start afresh"
            else:
                advice = unit_advice(have, want)
            self.misfit.misshaped[name] = f"{have}, the model has {want}{advice}"

    def compare_fields(self) -> None:
        """The model must have the hidden fields that the checkpoint's config states."""
        model, new, stated = self.model, self.report.reinitialised, self.reading.stated
        keep = self.keep
        headless = kind_of(model.config, "head") == "none"
        have = flat(model.config)
        if headless or any(matches(name, self.classwise) for name in new):
            keep = [*keep, "pool"]  # a new head learns from any pooling
        for name, value in stated.hidden.items():
            own = have.get(name, value)
            differs = own != value and not has_field(model.config, name, value)
            if name != "norm_eps" and name not in keep and differs:
                self.misfit.misshaped[name] = (
                    f"the checkpoint's config has {value!r}, the model has {own!r}: create it "
                    f"with {name}={value!r}{advice(', or pass ', keep=[name])}"
                )
        for name, value in self.rules.unlike(model.config).items():
            if name not in keep and name not in stated.fields:
                self.misfit.misshaped[name] = (
                    f"the rules state {value!r}, the model has {have.get(name)!r}: "
                    f"create it with {name}={value!r}"
                )

    def explain_misfit(self, tensors: Mapping[str, Tensor]) -> str:
        """The config fields that differ, if they explain most of it; and what is left."""
        model, rules, misfit = self.model, self.rules, self.misfit
        said = (self.report.source, title(model), rules.name)
        if hint := _other_format(model, rules, tensors):
            return misfit.explain(*said, hint)
        config = model.config
        changes, shown, left = differing_fields(rules, family_of(model), config, tensors)
        remedied = list(WITH_OTHER_REMEDIES)
        if any(matches(name, self.classwise) for name in self.report.reinitialised):
            remedied.append("classes")
        changes = {name: v for name, v in changes.items() if name not in remedied}
        have = flat(config)
        fields = {n: (v, have.get(n) if n in shown else None) for n, v in changes.items()}
        # What another field would explain stays listed, with its own remedy.
        left |= {name for name, what in misfit.misshaped.items() if "pass " in what}
        rest = misfit.unexplained(left)
        if not fields or 2 * len(rest) >= len(misfit):
            return self._other_model(len(tensors)) or misfit.explain(*said)
        return (misfit if len(misfit) <= FEW else rest).explain(*said, fields=fields)

    def _other_model(self, count: int) -> str:
        """One sentence, where a checkpoint of so many tensors has nearly nothing of this model: a
        list of all that is missing would help nobody."""
        fitting = self.values.keys() - self.misfit.misshaped.keys()
        kind = type(self.model)
        same = not self.is_for or issubclass(kind, FAMILIES[configure(self.is_for)[0]].model)
        if same and FEW_FIT * len(fitting) >= min(count, len(self.ours)):
            return ""
        source, model = self.report.source, title(self.model)
        what = f"is for {self.is_for}" if self.is_for else "is for another model"
        take = self.is_for or f"the one that 'vitreous weights {source}' names"
        return (
            f"{source} {what}, not for {model}: {len(fitting)} of its {count} tensors fit, and "
            f"nothing was loaded. Create {take} (--model), or take weights of {model}"
        )

    def load(self) -> None:
        values, target, report = self.values, self.ours, self.report
        casts = sorted({str(v.dtype) for n, v in values.items() if v.dtype != target[n].dtype})
        if casts:
            names = ", ".join(cast.removeprefix("torch.") for cast in casts)
            report.notes.append(f"converted from {names}")
        if report.reinitialised:
            fresh = build(family_of(self.model), self.model.config).state_dict()
            values |= {name: fresh[name] for name in report.reinitialised}
        on_meta = any(parameter.is_meta for parameter in target.values())
        if on_meta:  # no memory to copy into: assign the tensors
            values = {n: v.to(target[n].dtype, copy=True) for n, v in values.items()}
        self.model.load_state_dict(values, assign=on_meta)
        self.model.extras = self.extras
        changed = {*report.resampled, *report.adapted, *report.reinitialised}
        report.loaded = [name for name in target if name not in changed]

    def set_epsilon(self, value: float, inner: float | None) -> None:
        """Use the eps of the checkpoint's library, in the norms and in the config; inner: that of
        the model inside this one, where the checkpoint states it."""
        model, before = self.model, self.model.config
        config = _with_epsilon(before, value, inner)
        if config == before:
            return
        with without_values():
            like = build(family_of(model), config)
        modules: dict[str, Any] = dict(model.named_modules())
        for name, module in like.named_modules():
            if isinstance(eps := getattr(module, "eps", None), float):
                modules[name].eps = eps
        old, new = model.core.config.norm_eps, like.core.config.norm_eps
        model.config = config
        model.core.config = like.core.config
        said = {"norm_eps": (before.norm_eps, value)}
        if isinstance(config, CompositeConfig):
            said[f"{config.part}.norm_eps"] = (old, new)
        self.report.numbers |= {
            name: f"{one} to {other}, as in the checkpoint's library"
            for name, (one, other) in said.items()
            if one != other
        }


def _with_epsilon(config: Any, value: float, inner: float | None) -> Any:
    """The config with this eps; a model inside has its own, where that is stated."""
    changes: dict[str, Any] = {"norm_eps": value}
    if isinstance(config, CompositeConfig):
        fields = {k: v for k, v in config.core_changes.items() if k != "norm_eps"}
        part = f"{config.part}_fields"
        plain = dataclasses.replace(config, **changes, **{part: fields})
        if inner is None and "norm_eps" not in plain.core_fields():
            fields = config.core_changes  # the library's eps is not about the model inside
        elif inner is not None and core_epsilon(plain) != inner:
            fields |= {"norm_eps": inner}
        changes[part] = fields
    return dataclasses.replace(config, **changes)


def _check_finite(source: str, key: str, tensor: Tensor) -> None:
    bad = 0 if tensor.is_meta else int((~tensor.isfinite()).sum())
    if bad:
        raise CheckpointError(
            f"{source}: {key} has values that are not finite ({bad:,} of {tensor.numel():,}): the "
            "training diverged, or the file is damaged"
        )


def _other_format(model: Model, rules: Format, tensors: Mapping[str, Tensor]) -> str:
    """A hint if the checkpoint has all parameters under another format's names."""
    try:
        better = detect_format(model, tensors, "")
    except CheckpointError:
        return ""
    return "" if better.rules.name == rules.name else f"its keys match format {better.rules.name!r}"
