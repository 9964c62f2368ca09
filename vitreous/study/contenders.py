"""The runs that take part in a comparison, and what is known of each by itself."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from vitreous.config import pair
from vitreous.data.source import Source
from vitreous.deploy.benchmark import flops_of
from vitreous.deploy.engine import PAUSE
from vitreous.deploy.turns import take_turns
from vitreous.errors import VitreousError
from vitreous.import_run import ExportedRun
from vitreous.predict import Predictor
from vitreous.progress import Log
from vitreous.run_folder import STATE, OpenedRun
from vitreous.study.comparison import ComparedRun, Comparison, Contrast
from vitreous.study.differing import differing_fields
from vitreous.study.outcomes import Outcomes
from vitreous.study.statistics import holm
from vitreous.tasks.metric import Metric
from vitreous.tasks.task import Task
from vitreous.train.open_data import stored_recipe
from vitreous.weights.blank import without_values
from vitreous.wording import counted, listed

MOST = 24
"""Images on which runs disagree that are kept."""
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
class ContenderOptions:
    """How runs are compared."""

    baseline: int = 0
    """The number of the run that the others are compared with."""
    speed: bool = True
    most: int = MOST
    batch: int | None = None
    workers: int = 0
    progress: bool = False


def unmeasured(contenders: Sequence[Contender], options: ContenderOptions) -> Comparison:
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
        runs=tuple(map(facts, contenders)),
        baseline=first.name,
        differences=tuple(differing_fields(runs)),
        metrics=metrics,
        curves={each.name: points for each in contenders if (points := curve(each))},
        notes=tuple(notes(contenders, metrics)),
    )


def notes(contenders: Sequence[Contender], metrics: Sequence[Metric]) -> list[str]:
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


def facts(contender: Contender) -> ComparedRun:
    run, predictor = contender.run, contender.predictor
    with without_values():
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


def curve(contender: Contender) -> list[dict[str, Any]]:
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


def with_numbers(begun: Comparison, found: Sequence[Outcomes]) -> tuple[ComparedRun, ...]:
    keys = [metric.key for metric in begun.metrics]
    return tuple(
        replace(
            run,
            numbers={m.key: v for m in begun.metrics if (v := each.value(m)) is not None},
            intervals={key: each.intervals[key] for key in keys if key in each.intervals},
        )
        for run, each in zip(begun.runs, found, strict=True)
    )


def corrected(
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


def timed(
    found: Comparison, contenders: Sequence[Contender], options: ContenderOptions, log: Log
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
