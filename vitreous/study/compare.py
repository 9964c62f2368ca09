"""Runs beside each other on the same images, in one pass: each against a baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from vitreous.progress import CountProgress, Log, silent
from vitreous.study.comparison import Agreement, Comparison, Contrast, Disagreement
from vitreous.study.contenders import (
    Contender,
    ContenderOptions,
    corrected,
    timed,
    unmeasured,
    with_numbers,
)
from vitreous.study.outcomes import ImageAnswer, Outcomes, answers_beside, paired_difference
from vitreous.study.statistics import kappa, mcnemar
from vitreous.tasks import show_of
from vitreous.tasks.metric import Metric
from vitreous.wording import counted

SAME = 1 - 1e-3
"""Agreement from which two answers are one: another engine adds in another order."""


def compare_runs(
    contenders: Sequence[Contender], options: ContenderOptions, log: Log = silent
) -> Comparison:
    """All of one task (or all pre-trained), and on the same images: they share their source."""
    begun = unmeasured(contenders, options)
    if begun.metrics == () or contenders[0].task.pretrains:
        return timed(_from_logs(begun, contenders, options), contenders, options, log)
    found, kept, agreements = _answered(contenders, options, log)
    names, base = begun.names, options.baseline
    others = [i for i in range(len(names)) if i != base]
    contrasts: list[Contrast] = []
    for metric in begun.metrics:
        apart = [paired_difference(found[i], found[base], metric) for i in others]
        sides = [(names[i], names[base]) for i in others]
        contrasts += corrected(metric, sides, apart, "images", [len(found[base].ids)] * len(apart))
    done = replace(
        begun,
        images=len(found[base].ids),
        runs=with_numbers(begun, found),
        contrasts=tuple(contrasts),
        agreements=agreements,
        disagreements=_disagreements(contenders, kept, found),
        source=contenders[base].source,
        labels=contenders[base].task.labels,
    )
    return timed(done, contenders, options, log)


def _from_logs(
    begun: Comparison, contenders: Sequence[Contender], options: ContenderOptions
) -> Comparison:
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


# ---- on the same images

Kept = tuple[float, int, list[ImageAnswer]]
"""How far answers differ, the image's number, and the answers of all runs."""


def _answered(
    contenders: Sequence[Contender], options: ContenderOptions, log: Log
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
