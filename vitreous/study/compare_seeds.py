"""Recipes compared over seeds: runs that differ in their seed alone are one arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from vitreous.data.preprocess import Preprocess
from vitreous.errors import ConfigError
from vitreous.progress import Log, silent
from vitreous.run_folder import OpenedRun
from vitreous.study.comparison import Comparison, Contrast, SeedGroup
from vitreous.study.contenders import (
    Contender,
    ContenderOptions,
    corrected,
    timed,
    unmeasured,
    with_numbers,
)
from vitreous.study.differing import SEED, differing_fields, setting_of
from vitreous.study.outcomes import Outcomes, outcomes_of
from vitreous.study.statistics import difference
from vitreous.tasks.metric import Metric
from vitreous.train.open_data import stored_recipe
from vitreous.wording import listed


def compare_seeds(
    contenders: Sequence[Contender], options: ContenderOptions, log: Log = silent
) -> Comparison:
    """Runs that differ in their seed alone are one group; groups are compared seed by seed, each
    run on its own images. The baseline's group is what others are compared with."""
    begun, groups = unmeasured(contenders, options), _by_setting(contenders)
    if begun.metrics == () or contenders[0].task.pretrains:
        raise ConfigError(
            f"runs to {begun.task} have no test images that they are measured on: leave out "
            "--by-seed"
        )
    found = []
    for each in contenders:
        assert each.source is not None
        log(f"measuring {each.name} on {each.split}")
        where = (each.predictor, each.source, each.split)
        found.append(outcomes_of(*where, batch=options.batch, workers=options.workers, log=log))
    made = [_group(group, contenders, found, begun.metrics) for group in groups]
    titles = _titles([[contenders[i].run for i in group] for group in groups], made)
    made = [replace(group, name=title) for group, title in zip(made, titles, strict=True)]
    base = next(group for group, some in zip(made, groups, strict=True) if options.baseline in some)
    contrasts: list[Contrast] = []
    notes = list(begun.notes)
    others = [group for group in made if group is not base]
    for metric in begun.metrics:
        apart, shared = [], []
        for group in others:
            seeds = [seed for seed in group.seeds if seed in base.seeds]
            pairs = [
                [each.values[metric.key][each.seeds.index(seed)] for seed in seeds]
                for each in (group, base)
            ]
            apart.append(difference(*pairs) if seeds else None)
            shared.append(len(seeds))
        sides = [(group.name, base.name) for group in others]
        contrasts += corrected(metric, sides, apart, "seeds", shared)
    if not others:
        notes.append("all runs have one recipe: there is no other to compare it with")
    counts = {len(each.ids) for each in found}
    done = replace(
        begun,
        images=counts.pop() if len(counts) == 1 else 0,
        runs=with_numbers(begun, found),
        contrasts=tuple(contrasts),
        baseline=base.name,
        groups=tuple(made),
        notes=tuple(notes),
    )
    return timed(done, contenders, options, log)


def _by_setting(contenders: Sequence[Contender]) -> list[list[int]]:
    """The numbers of runs that differ in their seed alone, group by group."""
    groups: dict[Any, list[int]] = {}
    for number, each in enumerate(contenders):
        setting = setting_of(each.run)
        if setting is None:
            raise ConfigError(
                f"{each.name} has no recipe, and so no seed: leave it out, or leave out --by-seed"
            )
        groups.setdefault(setting, []).append(number)
    if all(len(group) == 1 for group in groups.values()):
        differ = [d.field for d in differing_fields([each.run for each in contenders])]
        others = [field for field in differ if field != SEED]
        raise ConfigError(
            "no two of these runs differ in their seed alone: they differ in "
            f"{listed(others or differ)}. Train each recipe with several seeds, or leave out "
            "--by-seed"
        )
    return list(groups.values())


def _group(
    numbers: Sequence[int],
    contenders: Sequence[Contender],
    found: Sequence[Outcomes],
    metrics: Sequence[Metric],
) -> SeedGroup:
    seeds: dict[int, int] = {}
    for number in numbers:
        recipe = stored_recipe(contenders[number].run)
        assert recipe is not None
        if recipe.seed in seeds:
            twice = f"{contenders[seeds[recipe.seed]].name} and {contenders[number].name}"
            raise ConfigError(f"{twice} have one recipe and the same seed, {recipe.seed}")
        seeds[recipe.seed] = number
    order = sorted(seeds)
    values = {
        metric.key: tuple(found[seeds[seed]].value(metric) for seed in order) for metric in metrics
    }
    known: Mapping[str, Any] = {key: each for key, each in values.items() if None not in each}
    return SeedGroup("", tuple(contenders[seeds[s]].name for s in order), tuple(order), known)


def _titles(runs: Sequence[Sequence[OpenedRun]], groups: Sequence[SeedGroup]) -> list[str]:
    """What tells groups apart, where that is a field or two; or the name of the first run."""
    differ = [each for each in differing_fields([some[0] for some in runs]) if each.field != SEED]
    follow = {each.name for each in fields(Preprocess)}  # from the model and the data
    chosen = [each for each in differ if each.field not in follow] or differ
    if not 0 < len(chosen) <= 2:
        return [f"{group.runs[0]} …" for group in groups]
    return [
        ", ".join(f"{each.field} {each.texts[number]}" for each in chosen)
        for number in range(len(groups))
    ]
