"""What a result means: compared with what knows nothing, with its interval, and with what to do
next. How its metric is read (range, direction) is said by the task.

`evaluate` is the one way to a result that is shown to people, after training and later.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any

from vitreous.data.formats.python_data import FROM_PYTHON
from vitreous.data.loader import Batch
from vitreous.data.source import Sample, Source
from vitreous.data.split import HELD_OUT
from vitreous.engines.world import ALONE, World
from vitreous.errors import DataError
from vitreous.measure import chosen_split
from vitreous.predict import Predictor
from vitreous.run_folder import Run
from vitreous.tasks.metric import Metric
from vitreous.tasks.task import Log, See, Task
from vitreous.tasks.verdict import Finding, Remedy, Severity, Verdict
from vitreous.train.advice import fine_tuning_advice
from vitreous.train.baselines import Compared, compare, drawn
from vitreous.train.open_data import resuming, stored_recipe
from vitreous.train.recipe import Recipe, doubled
from vitreous.wording import and_between, counted

FEW_TO_CHOOSE = 100
"""Validation images below which the best evaluation is likely to be one by chance."""
MOST_REPEATED = 500
"""Images of the training set that the model is measured on."""
TEST_PART = 0.1
"""The part of train that is advised to be held out as test."""
FEW_EVALUATIONS = 5
"""Below which a curve does not show whether it has become flat."""
RISING = 0.025
"""By which fraction of its value a metric improves in the last third of a run that was too short:
0.046 in the eight epochs on street scenes in docs/segmentation.md, of which more bring more."""
ORDER = {"bad": 0, "warn": 1, "good": 2}
Measured = Callable[[Sequence[Sample]], dict[str, Any]]
"""Gives the metrics on some samples."""


def evaluate(
    run: Run,
    predictor: Predictor,
    source: Source,
    split: str,
    *,
    own: bool,
    batch: int | None = None,
    workers: int = 0,
    watchers: Sequence[See] = (),
    log: Log = lambda text: None,
    world: World = ALONE,
) -> dict[str, Any]:
    """The metrics on a split, with `intervals`, `baselines` and `verdicts`.

    own: the source is what the run was trained on. Then `train` has the metrics of some training
    images, and `selection` what has chosen the weights.
    The processes of a `world` share the images of the split; the first one has the result.
    """
    task = predictor.task
    lines = [line for line in run.metrics() if line.get("kind") == "evaluation"]
    judged, signs = task.judge(lines[-1] if lines else {}), task.signs()

    def watch(batch: Batch, output: Any, targets: Any) -> None:
        signs.see(output, targets)
        for see in watchers:
            see(batch, output, targets)

    def measured_on(samples: Sequence[Sample]) -> dict[str, Any]:
        part = copy(source)
        part.splits = {"some": samples}
        return predictor.evaluate(part, "some", batch, workers)

    result = predictor.evaluate(source, split, batch, workers, watch, log, world)
    if not world.is_first:
        return {}
    remedies = Remedies(run, task, source, own=own, on_cpu=predictor.device.type == "cpu")
    if judged is not None:
        result |= {"intervals": {}, "baselines": {}}
        return result | {"verdicts": _verdicts([*remedies.still_rising, *judged], remedies)}
    trained = own and source.labels == task.labels
    here = task.labels.indices_of(source.labels, unused=range(len(source.labels)))
    log("measuring simple methods, to compare with")
    compared = compare(task, source, split, trained=trained, here=here, workers=workers, log=log)
    result["baselines"] = {each.name: each.numbers for each in compared}
    findings = signs.findings(result)
    findings.append(_comparison(task, result, compared, trained=trained, faults=bool(findings)))
    if remedies.recipe is not None and remedies.recipe.overfit:
        findings += _fitted(task.metric, result)
    if trained and split != "train" and "train" in source.splits:
        few = drawn(source.splits["train"], min(result["samples"], MOST_REPEATED))
        log(f"evaluating {counted(len(few), 'training image')}, to compare with {split}")
        try:
            again = measured_on(few)
        except DataError:  # which the comparison has logged
            again = None
        if again is not None:
            result["train"] = {name: again[name] for name in (*result["intervals"], "samples")}
            findings += _worse_in_training(task.metric, again, result, split)
            findings += _selection(remedies, task.metric, split, result, measured_on)
    # longer training comes before other advice
    return result | {"verdicts": _verdicts([*remedies.still_rising, *findings], remedies)}


def _verdicts(findings: Sequence[Finding], remedies: Remedies) -> list[dict[str, str]]:
    """The worst first; what helps against several is told once."""
    verdicts, told = [], {""}
    for severity, seen, remedy in sorted(findings, key=lambda each: ORDER[each.severity]):
        helps = "" if remedy in told else remedies.next(remedy)
        verdicts.append(Verdict(severity, seen, helps).to_dict())
        told.add(remedy)
    return verdicts


def images_measured(source: Source) -> int:
    """How many predictions `evaluate` needs for the report of a run."""
    split = chosen_split(source)
    count, val = (len(source.splits.get(name, ())) for name in (split, "val"))
    again = val if split != "val" and val < FEW_TO_CHOOSE else 0
    return count + (min(count, MOST_REPEATED) if split != "train" else 0) + again


def _comparison(
    task: Task,
    result: Mapping[str, Any],
    compared: Sequence[Compared],
    *,
    trained: bool,
    faults: bool,
) -> Finding:
    """The model beside every baseline. It must be better than an answer that is the same for every
    image by more than chance; that pixels alone do as well is worth knowing, and no fault."""
    metric, value = task.metric, result[task.metric.key]
    limits = result["intervals"].get(metric.key)
    interval = limits or (value, value)
    ours = f"{metric.name} {metric.with_interval(value, limits)}"
    if not compared:
        return Finding("warn", ours, "")

    def number(each: Compared) -> float:
        return float(each.numbers[metric.key])

    def told(some: Sequence[Compared]) -> str:
        """10.2 % for the most frequent class"""
        notes = (f" ({each.note})" if each.note else "" for each in some)
        pairs = zip(some, notes, strict=True)
        return and_between([f"{metric.text(number(c))} for {c.name}{note}" for c, note in pairs])

    def clearly_above(each: Compared) -> bool:
        return metric.clearly_better(interval, (number(each), number(each)))

    constant = max((c for c in compared if not c.looks), key=lambda c: metric.rank(number(c)))
    others = told(compared)
    if metric.is_perfect(number(constant)):
        same = "one answer is right for all of these images, so they do not show more"
        return Finding("warn", f"{ours}: {same}", "")
    if not clearly_above(constant):
        if clear := _clearly_better(task, result, constant):
            return Finding("warn", f"{ours}, against {others}, but {clear}", "")
        if metric.better(value, number(constant)):
            return Finding("warn", f"{ours}: not clearly better than {others}", "learn")
        if not trained:  # which was given the best answer, and no model can know it
            return Finding("warn", f"{ours}: no better than {others}", "learn")
        what = f"the model has not learned more than {constant.name}"
        return Finding("bad", f"{ours}, against {others}: {what}", "learn")
    alike = [each for each in compared if each.looks and not clearly_above(each)]
    for each in alike:
        if metric.clearly_better((number(each), number(each)), interval):
            return Finding("warn", f"{ours}, against {others}: {each.name} is better", "learn")
    severity: Severity = "warn" if faults else "good"
    if alike:
        rest = told([each for each in compared if each not in alike])
        easy = f"{told(alike)}, too: these images can be told apart by their pixels"
        return Finding(severity, f"{ours}, against {rest}; {easy}", "")
    return Finding(severity, f"{ours}, against {others}", "")


def _clearly_better(task: Task, result: Mapping[str, Any], baseline: Compared) -> str:
    """A metric by which the model is better than a baseline by more than chance: of rare classes
    the main one may show nothing."""
    for metric in task.other_metrics:
        limits, other = result["intervals"].get(metric.key), baseline.numbers.get(metric.key)
        if limits and other is not None and metric.clearly_better(limits, (other, other)):
            ours = metric.with_interval(result[metric.key], limits)
            return f"{metric.name} {ours}, against {metric.text(other)}"
    return ""


def _fitted(metric: Metric, result: Mapping[str, Any]) -> list[Finding]:
    """What a run on a few images (`--overfit`) has shown."""
    images, value = counted(result["samples"], "image"), result[metric.key]
    fitted = metric.is_learnt(value)
    if fitted is None:
        return []
    if fitted:
        seen = f"the model has fitted its {images}: it can learn from this data"
        return [Finding("good", seen, "")]
    numbers = f"{metric.key} {value:.2f}, expected {metric.learnt:g}"
    return [Finding("warn", f"the model has not fitted its {images} ({numbers})", "fit")]


def _worse_in_training(
    metric: Metric, trained: Mapping[str, Any], result: Mapping[str, Any], split: str
) -> list[Finding]:
    """What a model has learned from it knows best, unless something is wrong."""
    ours, theirs = (each["intervals"].get(metric.key) for each in (trained, result))
    if ours is None or theirs is None or not metric.clearly_better(theirs, ours):
        return []
    learned = metric.with_interval(trained[metric.key], ours)
    seen = (
        f"{metric.name} {learned} on {trained['samples']:,} training images is worse than "
        f"{metric.text(result[metric.key])} on {split}: labels of train may be wrong, or images of "
        f"{split} in train too"
    )
    return [Finding("warn", seen, "data")]


def _selection(
    remedies: Remedies, metric: Metric, split: str, result: dict[str, Any], measured_on: Measured
) -> list[Finding]:
    """The weights that are kept are the best on val: its score is too good to be expected of other
    images, and a few images choose by chance. What chose is kept in the result as `selection`."""
    val = remedies.source.splits.get("val", ())
    count, steps, best = len(val), remedies.curve.points, remedies.curve.best
    if not count:
        return []
    result["selection"] = {"split": "val", "samples": count, "evaluations": len(steps)}
    few, images = count < FEW_TO_CHOOSE, "image" if count == 1 else "images"
    last = ""
    if few and best is not None and best["step"] < steps[-1]["step"]:
        end = f"{remedies.run.path}@last has the last weights, of step {steps[-1]['step']}"
        last = f"; {end}"
    if split == "val" and len(steps) > 1:
        chance = ", and so few choose by chance" if few else ""
        seen = (
            f"this score is optimistic: the same {count:,} validation {images} chose the weights, "
            f"the best of {len(steps)} evaluations{chance}{last}"
        )
        return [Finding("warn", seen, "test")]
    if not few:
        return []
    chosen = result if split == "val" else measured_on(val)
    value = metric.with_interval(chosen[metric.key], chosen["intervals"].get(metric.key))
    which = "the weights" if best is None else f"the weights of step {best['step']}"
    seen = (
        f"only {count} validation {images} chose {which}, which may be chance: "
        f"{metric.name} {value} on {'it' if count == 1 else 'them'}{last}"
    )
    return [Finding("warn", seen, "hold out")]


class Curve:
    """The evaluations of a run that have the metric, as metrics.jsonl has them."""

    def __init__(self, run: Run, metric: Metric) -> None:
        self.metric = metric
        self.points: list[dict[str, Any]] = [
            m for m in run.metrics() if m.get("kind") == "evaluation" and metric.key in m
        ]
        self.best = metric.best_of(self.points)

    @property
    def flat_since(self) -> str:
        """Where the last third of the evaluations brought nothing, that; more of it would not."""
        steps, best = self.points, self.best
        if len(steps) < FEW_EVALUATIONS or best is None or steps.index(best) >= len(steps) * 2 / 3:
            return ""
        return f"nothing was gained behind epoch {best['epoch']:.0f} of {steps[-1]['epoch']:.0f}"

    @property
    def still_rising(self) -> list[Finding]:
        """A metric that has improved much in the last third of the evaluations, by the best before
        it and the best in it: the run was too short."""
        metric, last = self.metric, -(-len(self.points) // 3)
        before = metric.best_of(self.points[:-last])
        after = metric.best_of(self.points[-last:])
        if before is None or after is None:
            return []
        old, new = before[metric.key], after[metric.key]
        if not metric.better(new, old) or abs(new - old) <= RISING * abs(new):
            return []
        seen = (
            f"{metric.name} on val was still {'falling' if metric.lower_is_better else 'rising'} "
            f"when training ended: {metric.text(old)} by epoch {before['epoch']:.3g}, "
            f"{metric.text(new)} by epoch {after['epoch']:.3g}"
        )
        return [Finding("warn", seen, "longer")]


class Remedies:
    """What is known of a run whose result is judged, and what to do next about a finding."""

    def __init__(
        self, run: Run, task: Task, source: Source, *, own: bool = True, on_cpu: bool = True
    ) -> None:
        self.run, self.task, self.source, self.on_cpu = run, task, source, on_cpu
        self.recipe: Recipe | None = stored_recipe(run) if own else None
        self.curve = Curve(run, task.metric)
        learned = self.recipe is not None and not self.recipe.overfit
        self.still_rising = self.curve.still_rising if learned else []

    def next(self, remedy: Remedy) -> str:
        recipe = self.recipe
        if not remedy:
            return ""
        if recipe is None:  # it has not seen such images
            weights = shlex.quote(str(self.run.path))
            return f"fine-tune it on such images: vitreous train DATA --weights {weights}"
        if remedy == "fit":
            return (
                "before a long run, look at report.html, try more --epochs or --lr-find, or check "
                "the labels with 'vitreous data check'"
            )
        if remedy == "data":
            python = recipe.data == FROM_PYTHON
            check = f"vitreous data check {shlex.quote(recipe.data)}"
            return f"look for both: {'vitreous.check_data(data)' if python else check}"
        if remedy == "hold out":
            if any(note.startswith("val:") and HELD_OUT in note for note in self.source.notes):
                more = round(min(3 * recipe.val_fraction, 0.5), 2)
                return f"hold out more: {self._train(val_fraction=more)}"
            return f"move images from train to val, then {self._train()}"
        if remedy == "test":
            return f"hold out images that decide nothing: {self._train(test_fraction=TEST_PART)}"
        flat = self.curve.flat_since
        longer = "" if flat else f"train longer: {self._longer()}"
        if remedy == "longer":
            return longer
        if remedy == "balance":
            able = recipe.class_weights != "auto" and "class_weights" in self.task.options
            weigh = f"let rare classes count more: {self._train(class_weights='auto')}"
            helps = weigh if able else "label more of them"
            if self.still_rising:
                return f"if longer training does not help, {helps}"
            return f"{helps}, or {longer}" if longer and not able else helps
        if "train" in self.source.splits:
            advice = fine_tuning_advice(recipe, type(self.task), self.source, self.on_cpu)
            if advice is not None:
                return f"start from weights: {advice.command}"
        better = f"look for a better learning rate: {self._train(lr_find=True)}"
        if self.still_rising:
            return better
        return f"{flat}: add images, or {better}" if flat else f"{longer}, or {better}"

    def _train(self, **options: Any) -> str:
        """The run once more, as a new one."""
        file = self.run.path / "recipe.toml"
        if self.recipe is not None and self.recipe.data == FROM_PYTHON:
            name = "find_lr" if options.pop("lr_find", False) else "train"
            values = {"recipe": str(file), **options}
            return f"vitreous.{name}(data, {', '.join(f'{k}={v!r}' for k, v in values.items())})"
        words = ["vitreous", "train", "--recipe", str(file)]
        for name, value in options.items():
            words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
        return shlex.join(words)

    def _longer(self) -> str:
        assert self.recipe is not None
        name, value = "epochs", str(2 * (self.recipe.epochs or 1))
        if self.recipe.time is not None:
            name, value = "time", doubled(self.recipe.time)
        if self.recipe.data == FROM_PYTHON:
            value = repr(value) if name == "time" else value
            return f"vitreous.train(data, out={str(self.run.path)!r}, resume=True, {name}={value})"
        return f"{resuming(self.recipe, self.run)} --{name} {value}"
