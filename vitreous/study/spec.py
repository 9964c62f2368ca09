"""What a study file says, as frozen records; `read.py` reads and checks it.

A study asks one question. Its variants are changes to one recipe; all are trained with the same
seeds on the same images. Rules (`[[expect]]`) written before the runs say what the paper's claim
would mean for the numbers, and `verdict.py` says whether they hold. docs/studies.md is the guide.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from vitreous.config import choice, from_dict, merged
from vitreous.errors import ConfigError

TIERS = {"quick": 1, "standard": 3, "full": 5}
"""How thorough a study is, and its number of seeds unless the file says otherwise."""
EVALUATION = ("image_size", "probe")
"""Axes that change how a run is measured, and need no other run."""
KINDS = ("better", "more", "close", "gap", "rises", "falls")
"""What an expectation may be; each has exactly one of these keys."""
BEYOND = "@"
"""In a rule, `vit@0.1` is the variant vit at 0.1 of the axis; in a recipe, `@teacher` is the run
folder of what was trained before."""
ENDS = ("first", "last")
"""Of the axis, whatever its values are."""
Table = dict[str, Any]


@dataclass(frozen=True)
class Claim:
    """What a paper says."""

    text: str = ""
    source: str = ""
    """Paper and table, figure or section."""
    differs: str = ""
    """How what is measured here differs from it in kind; shown first."""


@dataclass(frozen=True)
class Paper:
    """The paper's numbers, which are drawn beside ours."""

    unit: str = "%"
    what: str = ""
    """What they measure: 5-shot accuracy on ImageNet."""
    x: str = ""
    """What their axis is, if they have one: images of pre-training."""
    values: Table = field(default_factory=dict)
    """By variant: a number, or a list of [x, number]."""
    others: Table = field(default_factory=dict)
    """The same for arms that the study has no variant for."""
    note: str = ""


@dataclass(frozen=True)
class Before:
    """A run that others start from or learn from."""

    name: str = ""
    command: Literal["train", "pretrain"] = "train"
    recipe: Table = field(default_factory=dict)
    """What differs from the study's recipe."""
    set: Table = field(default_factory=dict)
    without: tuple[str, ...] = ()
    """Keys of the study's recipe that do not apply."""
    per: Literal["seed", "study", "run"] = "seed"
    """Trained once for each seed, once for all, or for each seed and value of the axis."""


@dataclass(frozen=True)
class Variant:
    """One arm of the study."""

    name: str = ""
    label: str = ""
    """For people; the name, unless given."""
    recipe: Table = field(default_factory=dict)
    """Keys of the recipe that differ; `@NAME` is the run folder of a [[before]]."""
    set: Table = field(default_factory=dict)
    """Fields of the model that differ. Those of the study's recipe apply unless the variant names
    another model."""
    without: tuple[str, ...] = ()
    """Keys of the study's recipe that do not apply."""
    run: str = ""
    """@NAME: nothing is trained, this run of a [[before]] is measured."""
    evaluate: Table = field(default_factory=dict)
    """Options of `vitreous evaluate`: image_size, probe, nms …"""
    measure: Table = field(default_factory=dict)
    """Options for the study's [[measure]]."""

    @property
    def title(self) -> str:
        return self.label or self.name


@dataclass(frozen=True)
class Search:
    """The learning rate of each arm: the best one on validation images, by one rule for all."""

    lr: tuple[float, ...] = ()
    epochs: int | None = None
    """Of each run of the search; those of the final runs, unless given."""
    at: Literal["last", "each"] = "last"
    """At the last value of the axis, for all of them; or at each."""


@dataclass(frozen=True)
class Equal:
    """What all arms have as much of."""

    what: Literal["images", "flops", "cpu"] = "images"
    """The images that are seen in training, the FLOPs of training (by the number of epochs), or
    the time."""
    time: str = ""
    """For `cpu`: how long each run trains, as `vitreous train --time` takes it."""
    along: bool = False
    """Whether all fractions of the data see as many images: a tenth takes ten times the epochs."""


@dataclass(frozen=True)
class Axis:
    """What varies besides the variants: a key of the recipe, a field of the model, or how the runs
    are measured."""

    name: str
    values: tuple[Any, ...]
    place: Literal["recipe", "set", "evaluate"]
    label: str = ""
    scale: Literal["linear", "log"] = "linear"

    @property
    def trains(self) -> bool:
        """Whether each value needs runs of its own."""
        return self.place != "evaluate"

    @property
    def title(self) -> str:
        return self.label or self.name.replace("_", " ")

    @property
    def texts(self) -> list[str]:
        """The values in words."""
        return [text_of(value) for value in self.values]


@dataclass(frozen=True)
class Measure:
    """Numbers besides the task's metrics: see `measures.py`."""

    what: str = ""
    variants: tuple[str, ...] = ()
    """Those that it is measured for; none: all."""
    options: Table = field(default_factory=dict)


@dataclass(frozen=True)
class Expect:
    """A rule for the verdict. Numbers of a metric that is a share are in points (hundredths)."""

    better: str = ""
    """This arm is better than `than`, by more than `by`, as the metric says which way that is;"""
    more: str = ""
    """its number is larger, whatever that means."""
    than: str = ""
    by: float = 0.0
    close: tuple[str, ...] = ()
    """Every difference between these arms is within ± `within`."""
    within: float | None = None
    gap: tuple[str, ...] = ()
    """The difference of the first to the second, along the axis, `along`: it shrinks, grows, or
    turns (the first is worse at the first value, and better at the last)."""
    along: Literal["", "shrinks", "grows", "turns"] = ""
    rises: str = ""
    falls: str = ""
    """The number of this arm, from the first to the last value of the axis, by more than `by`."""
    on: str = ""
    """The number that is compared; the study's metric, unless given."""
    at: Any = None
    """At this value of the axis, or "first", "last", "all"; at the last one, unless given."""
    text: str = ""
    """The same in words, for the page."""

    @property
    def kind(self) -> str:
        return next(name for name in KINDS if getattr(self, name))

    @property
    def arms(self) -> tuple[str, ...]:
        """As they are written, the axis included."""
        single = [self.better, self.more, self.than, self.rises, self.falls]
        return tuple(filter(None, (*single, *self.close, *self.gap)))


@dataclass(frozen=True)
class Tier:
    """What differs in this tier."""

    seeds: int | None = None
    recipe: Table = field(default_factory=dict)
    before: Table = field(default_factory=dict)
    """Changes to the recipe of each [[before]], by name,"""
    variant: Table = field(default_factory=dict)
    """and of each variant."""
    variants: tuple[str, ...] = ()
    """Those that are trained; all, unless given."""
    over: Table = field(default_factory=dict)
    search: Table = field(default_factory=dict)
    equal: Table = field(default_factory=dict)


@dataclass(frozen=True)
class Study:
    """A study file, or with `at_tier` one tier of it."""

    question: str = ""
    claim: Claim = Claim()
    paper: Paper = Paper()
    recipe: Table = field(default_factory=dict)
    """Keys of a recipe, for all runs; `set` has fields of the model, `from` names a recipe file."""
    before: tuple[Before, ...] = ()
    variant: tuple[Variant, ...] = ()
    search: Search = Search()
    equal: Equal = Equal()
    over: Table = field(default_factory=dict)
    measure: tuple[Measure, ...] = ()
    expect: tuple[Expect, ...] = ()
    tier: Table = field(default_factory=dict)
    own: Table = field(default_factory=dict)
    """What differs where the user gives other data, with the keys of a tier."""
    metric: str = ""
    """The number that is compared; the one that decides in the task, unless given."""
    name: str = ""
    file: str = ""
    text: str = ""
    """Of the file."""
    seeds: int = 0

    @property
    def axis(self) -> Axis | None:
        return None if not self.over else axis_of(self.over, self.file)

    def named(self, name: str) -> Variant:
        return next(each for each in self.variant if each.name == name)

    def at_tier(self, name: str, seeds: int | None = None, data: str | None = None) -> Study:
        """As it is run: what the tier says is in its place, and where there is other data, what
        the file says about that."""
        study = self if data is None else self._with(self.own, f"[own] of {self.file}")
        found = study._with(self.tier.get(name, {}), f"[tier.{name}] of {self.file}")
        recipe = found.recipe if data is None else {**found.recipe, "data": data}
        seeds = seeds or found.seeds or TIERS[name]
        if seeds < 1:
            raise ConfigError(f"{self.file}: [tier.{name}] seeds = {seeds}: at least 1")
        return replace(found, recipe=recipe, seeds=seeds)

    def _with(self, table: Table, where: str) -> Study:
        tier = from_dict(Tier, table, where=where)
        chosen = [each for each in self.variant if each.name in (tier.variants or [each.name])]
        names = {each.name for each in chosen}
        return replace(
            self,
            recipe=_joined(self.recipe, tier.recipe),
            before=tuple(_changed(each, tier.before) for each in self.before),
            variant=tuple(_changed(each, tier.variant) for each in chosen),
            over=tier.over or self.over,
            search=from_dict(Search, vars(self.search) | tier.search, where=f"search, {where}"),
            equal=from_dict(Equal, vars(self.equal) | tier.equal, where=f"equal, {where}"),
            seeds=tier.seeds or self.seeds,
            expect=tuple(r for r in self.expect if {arm_of(arm) for arm in r.arms} <= names),
        )


def arm_of(written: str) -> str:
    """The variant's name of `vit@0.1`."""
    return written.partition(BEYOND)[0]


def _joined(recipe: Table, changes: Table) -> Table:
    """Both, with the fields of the model merged."""
    both = {**recipe, **changes}
    if "set" in recipe or "set" in changes:
        both["set"] = merged(recipe.get("set", {}), changes.get("set", {}))
    return both


def _changed(row: Any, by_name: Table) -> Any:
    changes = dict(by_name.get(row.name, {}))
    fields_of_model = merged(row.set, changes.pop("set", {}))
    return replace(row, recipe={**row.recipe, **changes}, set=fields_of_model)


def text_of(value: Any) -> str:
    """A value of the axis as rules and names of folders have it."""
    if isinstance(value, list | tuple):
        return "x".join(map(text_of, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def axis_of(table: Mapping[str, Any], where: str) -> Axis:
    from vitreous.train.recipe import Recipe

    extras = {name: table[name] for name in ("label", "scale") if name in table}
    names = [name for name in table if name not in extras]
    if len(names) != 1:
        raise ConfigError(
            f"{where}: [over] has {', '.join(names) or 'no axis'}: expected one axis, as a list"
        )
    written, values = names[0], table[names[0]]
    if not isinstance(values, list | tuple) or not values:
        raise ConfigError(f"{where}: [over] {written} = {values!r}: expected a list of values")
    values = tuple(tuple(each) if isinstance(each, list) else each for each in values)
    if len({text_of(each) for each in values}) < len(values):
        raise ConfigError(f"{where}: [over] {written} has the same value twice: {list(values)}")
    place, dot, name = written.partition(".")
    if not dot or place not in ("recipe", "set", "evaluate"):
        name = written
        keys = {each.name for each in fields(Recipe)} | {"fraction"}
        place = "evaluate" if name in EVALUATION else "recipe" if name in keys else "set"
    extras["scale"] = choice("scale", extras.get("scale", "linear"), ("linear", "log"))
    return Axis(name, values, place, **extras)  # type: ignore[arg-type]
