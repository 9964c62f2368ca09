"""Runs beside each other: on the same images in one pass, or over seeds; and what is known of each
by itself."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from vitreous.config import pair
from vitreous.data.source import Source
from vitreous.deploy.benchmark import flops_of
from vitreous.deploy.engine import PAUSE
from vitreous.deploy.turns import take_turns
from vitreous.errors import ConfigError, VitreousError
from vitreous.import_run import ExportedRun
from vitreous.predict import Predictor
from vitreous.progress import CountProgress, Log, silent
from vitreous.run_folder import STATE, OpenedRun
from vitreous.study.comparison import (
    Agreement,
    ComparedRun,
    Comparison,
    Contrast,
    Disagreement,
    SeedGroup,
)
from vitreous.study.differing import SEED, differing_fields, setting_of
from vitreous.study.outcomes import (
    ImageAnswer,
    Outcomes,
    answers_beside,
    outcomes_of,
    paired_difference,
)
from vitreous.study.statistics import difference, holm, kappa, mcnemar
from vitreous.tasks import show_of
from vitreous.tasks.metric import Metric
from vitreous.tasks.task import Task
from vitreous.train.open_data import stored_recipe
from vitreous.wording import counted, listed

MOST = 24
"""Images on which runs disagree that are kept."""
SAME = 1 - 1e-3
"""Agreement from which two answers are one: another engine adds in another order."""
TIMED, ROUNDS = 8, 7
"""Images of a batch, and rounds, in which all runs take turns."""


@dataclass(frozen=True)
class Contender:
    """A run that takes part, and the images that it is measured on."""

    name: str
    run: OpenedRun
    predictor: Predictor
    source: Source | None
    """None: there is nothing to measure."""
    split: str

    @property
    def task(self) -> Task:
        return self.predictor.task


@dataclass(frozen=True)
class Options:
    """How runs are compared."""

    baseline: int = 0
    """The number of the run that the others are compared with."""
    speed: bool = True
    most: int = MOST
    batch: int | None = None
    workers: int = 0
    progress: bool = False


def compare_runs(
    contenders: Sequence[Contender], options: Options, log: Log = silent
) -> Comparison:
    """All of one task (or all pre-trained), and on the same images: they share their source."""
    begun = _begun(contenders, options)
    if begun.metrics == () or contenders[0].task.pretrains:
        return _timed(_from_logs(begun, contenders, options), contenders, options, log)
    found, kept, agreements = _answered(contenders, options, log)
    names, base = begun.names, options.baseline
    others = [i for i in range(len(names)) if i != base]
    contrasts: list[Contrast] = []
    for metric in begun.metrics:
        apart = [paired_difference(found[i], found[base], metric) for i in others]
        sides = [(names[i], names[base]) for i in others]
        contrasts += _corrected(metric, sides, apart, "images", [len(found[base].ids)] * len(apart))
    done = replace(
        begun,
        images=len(found[base].ids),
        runs=_with_numbers(begun, found),
        contrasts=tuple(contrasts),
        agreements=agreements,
        disagreements=_disagreements(contenders, kept, found),
        source=contenders[base].source,
        labels=contenders[base].task.labels,
    )
    return _timed(done, contenders, options, log)


def compare_seeds(
    contenders: Sequence[Contender], options: Options, log: Log = silent
) -> Comparison:
    """Runs that differ in their seed alone are one group; groups are compared seed by seed, each
    run on its own images. The baseline's group is what others are compared with."""
    begun, groups = _begun(contenders, options), _by_setting(contenders)
    if begun.metrics == () or contenders[0].task.pretrains:
        raise ConfigError(
            f"runs to {begun.task} have no test images that they are measured on: leave out "
            "--by-seed"
        )
    found = []
    for each in contenders:
        assert each.source is not None
        log(f"measuring {each.name} on {each.split}")
        more = {"batch": options.batch, "workers": options.workers}
        found.append(outcomes_of(each.predictor, each.source, each.split, **more, log=log))
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
        contrasts += _corrected(metric, sides, apart, "seeds", shared)
    if not others:
        notes.append("all runs have one recipe: there is no other to compare it with")
    counts = {len(each.ids) for each in found}
    done = replace(
        begun,
        images=counts.pop() if len(counts) == 1 else 0,
        runs=_with_numbers(begun, found),
        contrasts=tuple(contrasts),
        groups=tuple(made),
        notes=tuple(notes),
    )
    return _timed(done, contenders, options, log)


def _begun(contenders: Sequence[Contender], options: Options) -> Comparison:
    """What is known before anything is measured."""
    runs = [each.run for each in contenders]
    first = contenders[options.baseline]
    task = first.task
    kinds = dict.fromkeys(each.task.name for each in contenders)
    metrics = tuple(each for each in (task.metric, *task.other_metrics) if each.key)
    return Comparison(
        task=" and ".join(kinds),
        data="" if first.source is None else first.source.name,
        split=first.split,
        images=0,
        runs=tuple(map(_facts, contenders)),
        baseline=first.name,
        differences=tuple(differing_fields(runs)),
        metrics=metrics,
        curves={each.name: curve for each in contenders if (curve := _curve(each))},
        notes=tuple(_notes(contenders, metrics)),
    )


def _notes(contenders: Sequence[Contender], metrics: Sequence[Metric]) -> list[str]:
    notes = []
    without = [each.name for each in contenders if stored_recipe(each.run) is None]
    if without:
        notes.append(f"without a recipe, and so without learning curves: {listed(without)}")
    if len({each.run.config.family for each in contenders}) > 1:
        notes.append("models of several families: of their fields those are compared that all have")
    classes = {each.name: len(each.task.labels) for each in contenders}
    if len({frozenset(each.task.labels.names) for each in contenders}) > 1:
        counts = ", ".join(f"{name} {count}" for name, count in classes.items())
        notes.append(f"the models know other classes ({counts}); all know those of these images")
    if not metrics:
        notes.append("models without a head predict nothing that could be measured")
    return notes


def _facts(contender: Contender) -> ComparedRun:
    run, predictor = contender.run, contender.predictor
    with torch.device("meta"):
        blank = run.config.create()
    try:
        flops = flops_of(run.config)
    except VitreousError:
        flops = None
    recipe, times = stored_recipe(run), run.times()
    spent = times[-1] if times else {}
    height, width = pair("image_size", predictor.preprocess.image_size)
    return ComparedRun(
        name=contender.name,
        path=str(run.reference),
        model=run.config.model or run.config.family,
        engine=predictor.engine.name,
        precision=predictor.engine.precision,
        image_size=(height, width),
        parameters=sum(each.numel() for each in blank.parameters()),
        bytes=_bytes(run),
        flops=flops,
        seed=None if recipe is None else recipe.seed,
        images_seen=spent.get("images"),
        seconds=spent.get("seconds"),
        cpu_seconds=spent.get("cpu_seconds"),
    )


def _bytes(run: OpenedRun) -> int:
    if isinstance(run, ExportedRun):
        weights = run.path.with_suffix(".bin")  # of OpenVINO's two files
        both = [run.path, *([weights] if run.path.suffix == ".xml" else [])]
        return sum(path.stat().st_size for path in both if path.is_file())
    return (run.weights if run.checkpoint is None else run.checkpoint / STATE).stat().st_size


def _curve(contender: Contender) -> list[dict[str, Any]]:
    """What training has measured, with its times where they are known (older runs have none)."""
    task, times = contender.task, {line["step"]: line for line in contender.run.times()}
    wanted = ("epoch", task.metric.key, "train_loss", "loss", *task.watched)
    points = []
    for line in contender.run.metrics():
        if line.get("kind") == "evaluation":
            spent = times.get(line["step"], {})
            point = {name: spent.get(name) for name in ("images", "seconds", "cpu_seconds")}
            values = {name: line[name] for name in wanted if line.get(name) is not None}
            points.append({"step": line["step"], **point, **values})
    return points


def _from_logs(begun: Comparison, contenders: Sequence[Contender], options: Options) -> Comparison:
    """Of runs that are pre-trained: the last numbers of their logs, without intervals."""
    task = contenders[options.baseline].task
    if not task.pretrains:
        return begun
    metrics = tuple(Metric(name) for name in task.watched if name.endswith("accuracy"))
    keys = [*task.watched]
    notes = [
        *begun.notes,
        "pre-training has no test images: numbers are those of the last "
        "evaluation in training, and have no intervals",
    ]
    if len({each.task.name for each in contenders}) == 1:
        metrics, keys = (*metrics, task.metric), [*keys, task.metric.key]
    else:
        notes.append("losses of different methods cannot be compared")
    lasts = [(begun.curves.get(name) or [{}])[-1] for name in begun.names]
    runs = [
        replace(run, numbers={key: last[key] for key in keys if key in last})
        for run, last in zip(begun.runs, lasts, strict=True)
    ]
    return replace(begun, metrics=metrics, runs=tuple(runs), notes=tuple(notes))


def _with_numbers(begun: Comparison, found: Sequence[Outcomes]) -> tuple[ComparedRun, ...]:
    keys = [metric.key for metric in begun.metrics]
    return tuple(
        replace(
            run,
            numbers={m.key: v for m in begun.metrics if (v := each.value(m)) is not None},
            intervals={key: each.intervals[key] for key in keys if key in each.intervals},
        )
        for run, each in zip(begun.runs, found, strict=True)
    )


def _corrected(
    metric: Metric,
    sides: Sequence[tuple[str, str]],
    apart: Sequence[Any],
    over: Any,
    counts: Sequence[int],
) -> list[Contrast]:
    """Of one metric, with p-values for as many comparisons as there are."""
    p = iter(holm([each.p for each in apart if each is not None]))
    return [
        Contrast(*names, metric, each, None if each is None else next(p), over, count)
        for names, each, count in zip(sides, apart, counts, strict=True)
    ]


# ---- on the same images

Kept = tuple[float, int, list[ImageAnswer]]
"""How far answers differ, the image's number, and the answers of all runs."""


def _answered(
    contenders: Sequence[Contender], options: Options, log: Log
) -> tuple[list[Outcomes], list[Kept], tuple[Agreement, ...]]:
    """One pass over the images: outcomes of each run, the images on which one disagrees most with
    the baseline, and how far each agrees with it."""
    found = [Outcomes(each.task) for each in contenders]
    first, base = contenders[options.baseline], options.baseline
    assert first.source is not None
    show, others = show_of(first.task.name), [i for i in range(len(contenders)) if i != base]
    sums, differ = [0.0] * len(contenders), [0] * len(contenders)
    kept: list[Kept] = []
    total = len(first.source.splits[first.split])
    log(f"measuring {counted(len(contenders), 'run')} on {first.split}, {counted(total, 'image')}")
    predictors = [each.predictor for each in contenders]
    more: dict[str, Any] = {"batch": options.batch, "workers": options.workers, "log": log}
    rows = answers_beside(predictors, first.source, first.split, found, **more)
    with CountProgress(total, log, visible=options.progress) as shown:
        for number, row in enumerate(rows):
            shown.add(1)
            worst = None
            for i in others:
                ours, theirs = row[i].result, row[base].result
                agreement = float(ours.agreement(theirs))
                sums[i] += agreement
                if agreement < SAME:
                    differ[i] += 1
                    worst = max(worst or 0.0, show.conflict(ours, theirs))
            if worst is not None:
                kept.append((-worst, number, row))
            if len(kept) > 2 * options.most:
                kept = sorted(kept, key=lambda each: each[:2])[: options.most]
    kept = sorted(kept, key=lambda each: each[:2])[: options.most]
    names = [each.name for each in contenders]
    agreements = [
        Agreement(
            *(names[i], names[base], sums[i] / max(total, 1), differ[i]),
            **_right_alone(found[i], found[base]),
        )
        for i in others
    ]
    return found, kept, tuple(agreements)


def _right_alone(ours: Outcomes, theirs: Outcomes) -> dict[str, Any]:
    """Where an image has one answer, which is right or wrong."""
    answers, others = ours.metrics.answers(), theirs.metrics.answers()
    if not answers:
        return {}
    pairs = list(zip(ours.each, theirs.each, strict=True))
    alone = sum(a > b for a, b in pairs), sum(a < b for a, b in pairs)
    named = {"only_run": alone[0], "only_baseline": alone[1], "mcnemar": mcnemar(*alone)}
    return {"kappa": kappa(answers, others), **named}


def _disagreements(
    contenders: Sequence[Contender], kept: Sequence[Kept], found: Sequence[Outcomes]
) -> tuple[Disagreement, ...]:
    first = contenders[0]
    assert first.source is not None
    samples = {sample.id: sample for sample in first.source.splits[first.split]}
    show = show_of(first.task.name)

    def score(outcomes: Outcomes, number: int) -> float | None:
        value = outcomes.each[number] if outcomes.each else float("nan")
        return None if value != value else value

    return tuple(
        Disagreement(
            image=row[0].id,
            truth=show.truth_words(row[0].target, first.task.labels),
            answers=tuple(show.words(each.result) for each in row),
            scores=tuple(score(each, number) for each in found),
            conflict=-conflict,
            sample=samples[row[0].id],
            target=row[0].target,
            results=tuple(each.result for each in row),
        )
        for conflict, number, row in kept
    )


# ---- over seeds


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
    seeds = {}
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
    fields = [each for each in differing_fields([some[0] for some in runs]) if each.field != SEED]
    if not 0 < len(fields) <= 2:
        return [f"{group.runs[0]} …" for group in groups]
    return [
        ", ".join(f"{each.field} {each.texts[number]}" for each in fields)
        for number in range(len(groups))
    ]


# ---- speed


def _timed(
    found: Comparison, contenders: Sequence[Contender], options: Options, log: Log
) -> Comparison:
    """With the milliseconds of each run, if they are wanted, and there are images to time with."""
    source = contenders[options.baseline].source
    if not options.speed or source is None:
        return found
    samples = source.splits[contenders[options.baseline].split][:TIMED]
    images = [source.image(sample) for sample in samples]
    log(f"timing on {counted(len(images), 'image')}, in turns")
    works: dict[int, Callable[[], Any]] = {}
    for number, each in enumerate(contenders):
        works[number] = _work(each.predictor, images)
    taken = take_turns(works, ROUNDS, pause=PAUSE)
    runs = [
        replace(run, milliseconds=1000 * statistics.median(taken[number]) / len(images))
        for number, run in enumerate(found.runs)
    ]
    return replace(found, runs=tuple(runs))


def _work(predictor: Predictor, images: Sequence[Any]) -> Callable[[], Any]:
    """From prepared images to answers, a batch at a time; tiles are cut as well."""
    if predictor.tiled is not None:
        return partial(predictor, list(images))
    prepared = [predictor.prepared(image) for image in images]
    size = predictor.batch_size(None)
    parts = [prepared[i : i + size] for i in range(0, len(prepared), size)]
    return torch.inference_mode()(lambda: [predictor.answer(part) for part in parts])
