"""What a result means: compared with what knows nothing, with its interval, and with what to do
next.

`evaluate` is the one way to a result that is shown to people, after training and later.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

from vitreous.data.formats.python_data import FROM_PYTHON
from vitreous.data.loader import Batch
from vitreous.data.source import Sample, Source
from vitreous.data.split import HELD_OUT
from vitreous.engines.world import ALONE, World
from vitreous.errors import DataError
from vitreous.predict import Predictor
from vitreous.run_folder import Run
from vitreous.tasks.task import Log, See, Task
from vitreous.tasks.verdict import (
    Finding,
    Remedy,
    Severity,
    Verdict,
    joined,
    percent,
    with_interval,
)
from vitreous.train.advice import Advice, fine_tuning_advice
from vitreous.train.baselines import Compared, compare, drawn
from vitreous.train.curve import flat_since, still_rising
from vitreous.train.open_data import stored_recipe
from vitreous.train.recipe import Recipe, doubled
from vitreous.wording import counted

FEW_TO_CHOOSE = 100
"""Validation images below which the best evaluation is likely to be one by chance."""
TEST_PART = 0.1
"""The part of train that is advised to be held out as test."""
MOST_REPEATED = 500
"""Images of the training set that the model is measured on."""
ALL = 1 - 1e-9
"""Of a metric: one answer is right for every image."""
ORDER = {"bad": 0, "warn": 1, "good": 2}


def evaluate(
    run: Run,
    predictor: Predictor,
    source: Source,
    split: str,
    *,
    own: bool,
    batch: int | None = None,
    workers: int = 0,
    see: See | None = None,
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
    judged = task.judge(lines[-1] if lines else {})
    remedies = Remedies(run, task, source, own=own, on_cpu=predictor.device.type == "cpu")
    if judged is not None:
        result = predictor.evaluate(source, split, batch, workers, see, log, world)
        if not world.is_first:
            return {}
        found = [*remedies.still_rising, *(each._replace(remedy="") for each in judged)]
        said = [Verdict(each.severity, each.seen, remedies.next(each.remedy)) for each in found]
        kept = {"verdicts": [verdict.to_dict() for verdict in said]}
        return result | {"intervals": {}, "baselines": {}} | kept
    signs = task.signs()

    def watch(batch: Batch, output: Any, targets: Any) -> None:
        signs.see(output, targets)
        if see is not None:
            see(batch, output, targets)

    result = predictor.evaluate(source, split, batch, workers, watch, log, world)
    if not world.is_first:
        return {}
    trained = own and source.labels == task.labels
    here = task.labels.indices_of(source.labels, unused=range(len(source.labels)))
    log("measuring simple methods, to compare with")
    compared = compare(task, source, split, trained=trained, here=here, workers=workers, log=log)
    result["baselines"] = {each.name: each.numbers for each in compared}
    findings = signs.findings(result)
    findings.append(_comparison(task, result, compared, trained=trained, faults=bool(findings)))
    if trained and split != "train" and "train" in source.splits:
        few = drawn(source.splits["train"], min(result["samples"], MOST_REPEATED))
        log(f"evaluating {counted(len(few), 'training image')}, to compare with {split}")
        try:
            again = _on(predictor, source, few, batch, workers)
        except DataError:  # which the comparison has logged
            again = None
        if again is not None:
            result["train"] = _numbers(again, result["intervals"])
            findings += _worse_in_training(task, again, result, split)
            findings += _selection(run, predictor, source, split, result, batch, workers)
    findings = [*remedies.still_rising, *findings]  # longer training comes before other advice
    findings.sort(key=lambda finding: ORDER[finding.severity])
    verdicts = []
    for number, (severity, seen, remedy) in enumerate(findings):
        told = any(remedy == each.remedy for each in findings[:number])
        verdicts.append(Verdict(severity, seen, "" if told else remedies.next(remedy)))
    return result | {"verdicts": [verdict.to_dict() for verdict in verdicts]}


def images_measured(source: Source) -> int:
    """How many predictions `evaluate` needs for the report of a run."""
    split = next((name for name in ("test", "val", "train") if name in source.splits), "train")
    count, val = (len(source.splits.get(name, ())) for name in (split, "val"))
    again = val if split != "val" and val < FEW_TO_CHOOSE else 0
    return count + (min(count, MOST_REPEATED) if split != "train" else 0) + again


def _on(
    predictor: Predictor,
    source: Source,
    samples: Sequence[Sample],
    batch: int | None,
    workers: int,
) -> dict[str, Any]:
    """The metrics on some samples of a source."""
    part = copy(source)
    part.splits = {"some": samples}
    return predictor.evaluate(part, "some", batch, workers)


def _numbers(result: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
    """The main numbers, which have intervals, and of how many images."""
    return {name: result[name] for name in (*names, "samples")}


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
    name, intervals = task.primary, result["intervals"]
    value = result[name]
    low, high = intervals.get(name, (value, value))
    ours = f"{task.primary_name} {with_interval(value, intervals.get(name))}"
    if not compared:
        return Finding("warn", ours, "")
    constant = max((each for each in compared if not each.looks), key=lambda c: c.numbers[name])
    others = joined([_told(each, name) for each in compared])
    if constant.numbers[name] > ALL:
        same = "one answer is right for all of these images, so they do not show more"
        return Finding("warn", f"{ours}: {same}", "")
    if low <= constant.numbers[name]:
        if clear := _clearly_better(result, constant):
            return Finding("warn", f"{ours}, against {others}, but {clear}", "")
        if value > constant.numbers[name]:
            return Finding("warn", f"{ours}: not clearly better than {others}", "learn")
        if not trained:  # which was given the best answer, and no model can know it
            return Finding("warn", f"{ours}: no better than {others}", "learn")
        what = f"the model has not learned more than {constant.name}"
        return Finding("bad", f"{ours}, against {others}: {what}", "learn")
    seeing = [each for each in compared if each.looks]
    if better := [each for each in seeing if each.numbers[name] > high]:
        return Finding("warn", f"{ours}, against {others}: {better[0].name} is better", "learn")
    severity: Severity = "warn" if faults else "good"
    if alike := [each for each in seeing if each.numbers[name] >= low]:
        rest = joined([_told(each, name) for each in compared if each not in alike])
        equal = joined([_told(each, name) for each in alike])
        easy = f"{equal}, too: these images can be told apart by their pixels"
        return Finding(severity, f"{ours}, against {rest}; {easy}", "")
    return Finding(severity, f"{ours}, against {others}", "")


def _told(each: Compared, metric: str) -> str:
    """10.2 % for the most frequent class"""
    note = f" ({each.note})" if each.note else ""
    return f"{percent(each.numbers[metric])} for {each.name}{note}"


def _clearly_better(result: Mapping[str, Any], baseline: Compared) -> str:
    """A metric by which the model is better than a baseline by more than chance: of rare classes
    the main one may show nothing."""
    for name, limits in result["intervals"].items():
        if limits[0] > baseline.numbers.get(name, 1):
            ours = with_interval(result[name], limits)
            other = percent(baseline.numbers[name])
            return f"{name.replace('_', ' ')} {ours}, against {other}"
    return ""


def _worse_in_training(
    task: Task, trained: Mapping[str, Any], result: Mapping[str, Any], split: str
) -> list[Finding]:
    """What a model has learned from it knows best, unless something is wrong."""
    name = task.primary
    ours, theirs = (each["intervals"].get(name) for each in (trained, result))
    if ours is None or theirs is None or ours[1] >= theirs[0]:
        return []
    learned = f"{with_interval(trained[name], ours)} on {trained['samples']:,} training images"
    seen = (
        f"{task.primary_name} {learned} is worse than {percent(result[name])} on {split}: labels "
        f"of train may be wrong, or images of {split} in train too"
    )
    return [Finding("warn", seen, "data")]


def _selection(
    run: Run,
    predictor: Predictor,
    source: Source,
    split: str,
    result: dict[str, Any],
    batch: int | None,
    workers: int,
) -> list[Finding]:
    """The weights that are kept are the best on val: its score is too good to be expected of other
    images, and a few images choose by chance. What chose is kept in the result as `selection`."""
    count, task = len(source.splits.get("val", ())), predictor.task
    name = task.primary
    steps = [line for line in run.metrics() if line.get("kind") == "evaluation" and name in line]
    if not count:
        return []
    best = max(steps, key=lambda line: line[name], default=None)
    result["selection"] = {"split": "val", "samples": count, "evaluations": len(steps)}
    few, images = count < FEW_TO_CHOOSE, "image" if count == 1 else "images"
    last = ""
    if few and best is not None and best["step"] < steps[-1]["step"]:
        last = f"; {run.path}@last has the last weights, of step {steps[-1]['step']}"
    if split == "val" and len(steps) > 1:
        chance = ", and so few choose by chance" if few else ""
        seen = (
            f"this score is optimistic: the same {count:,} validation {images} chose the weights, "
            f"the best of {len(steps)} evaluations{chance}{last}"
        )
        return [Finding("warn", seen, "test")]
    if not few:
        return []
    chosen = (
        result if split == "val" else _on(predictor, source, source.splits["val"], batch, workers)
    )
    value = with_interval(chosen[name], chosen["intervals"].get(name))
    which = "the weights" if best is None else f"the weights of step {best['step']}"
    seen = (
        f"only {count} validation {images} chose {which}, which may be chance: "
        f"{task.primary_name} {value} on {'it' if count == 1 else 'them'}{last}"
    )
    return [Finding("warn", seen, "hold out")]


class Remedies:
    """What to do next, as commands for this run."""

    def __init__(
        self, run: Run, task: Task, source: Source, *, own: bool = True, on_cpu: bool = True
    ) -> None:
        self.run, self.task, self.source, self.on_cpu = run, task, source, on_cpu
        self.recipe: Recipe | None = stored_recipe(run) if own else None
        learned = self.recipe is not None and not self.recipe.overfit
        self.still_rising = still_rising(run, task) if learned else []

    def next(self, remedy: Remedy) -> str:
        recipe = self.recipe
        if not remedy:
            return ""
        if recipe is None:  # it has not seen such images
            weights = shlex.quote(str(self.run.path))
            return f"fine-tune it on such images: vitreous train DATA --weights {weights}"
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
        flat = flat_since(self.run, self.task)
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
        if (advice := self._advice()) is not None:
            return f"start from weights: {advice.command}"
        better = f"look for a better learning rate: {self._train(lr_find=True)}"
        if self.still_rising:
            return better
        return f"{flat}: add images, or {better}" if flat else f"{longer}, or {better}"

    def _advice(self) -> Advice | None:
        if self.recipe is None or "train" not in self.source.splits:
            return None
        return fine_tuning_advice(self.recipe, type(self.task), self.source, self.on_cpu)

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
        path = shlex.quote(str(self.run.path))
        return f"vitreous {self.recipe.command} --resume --out {path} --{name} {value}"
