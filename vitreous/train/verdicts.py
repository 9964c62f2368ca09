"""What a result means: compared with what knows nothing, with its interval, and with what to do
next.

`evaluate` is the one way to a result that is shown to people, after training and later.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np

from vitreous.data.formats.python_data import FROM_PYTHON
from vitreous.data.loader import Batch, EvalSet, eval_batches
from vitreous.data.source import Sample, Source
from vitreous.data.split import HELD_OUT
from vitreous.engines.world import ALONE, World
from vitreous.errors import DataError
from vitreous.predict import Predictor
from vitreous.run_folder import Run
from vitreous.tasks.task import Log, Metrics, See, Task
from vitreous.tasks.verdict import (
    Finding,
    Remedy,
    Verdict,
    joined,
    percent,
    with_interval,
)
from vitreous.train.advice import Advice, fine_tuning_advice
from vitreous.train.curve import flat_since, still_rising
from vitreous.train.open_data import stored_recipe
from vitreous.train.recipe import Recipe, doubled
from vitreous.wording import counted

FEW_TO_CHOOSE = 100
"""Validation images below which the best evaluation is likely to be one by chance."""
MOST_LEARNED = 5_000
"""Training images that baselines are shown at most, and as many pixels of stored images: seconds of
reading."""
MOST_PIXELS = 150_000_000
MOST_REPEATED = 500
"""Images of the training set that the model is measured on, and images whose targets are kept."""
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

    own: the source is what the run was trained on. Then baselines learn from its training images;
    else from the ground truth of the images that are measured, which can only make them better.
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
    learned: list[Sample] = []
    if own and source.labels == task.labels and split != "train":
        learned = _some(source.splits.get("train", ()))
    compared, signs = Compared(task), task.signs()

    def watch(batch: Batch, output: Any, targets: Any) -> None:
        if learned and not compared.learned:
            training = EvalSet(source, learned, predictor.preprocess, task.truth)
            images = counted(len(learned), "training image")
            log(f"reading {images}, for simple methods to compare with")
            try:
                compared.learn(training, workers)
            except DataError as error:  # of images that are not to be measured
                log(f"not compared with training images: {error}")
                learned.clear()
        signs.see(output, targets)
        compared.see(batch, targets)
        if see is not None:
            see(batch, output, targets)

    result = predictor.evaluate(source, split, batch, workers, watch, log, world)
    if not world.is_first:
        return {}
    result["baselines"] = compared.results()
    findings = signs.findings(result)
    findings.append(_comparison(task, result, faults=bool(findings)))
    if learned:
        count = min(result["samples"], MOST_REPEATED)
        log(f"evaluating {counted(count, 'training image')}, to compare with {split}")
        trained = _on(predictor, source, learned[:count], batch, workers)
        result["train"] = _numbers(trained, result["intervals"])
        findings += _worse_in_training(task, trained, result, split)
        findings += _few_to_choose(run, predictor, source, split, result, batch, workers)
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


def _some(samples: Sequence[Sample]) -> list[Sample]:
    """At most MOST_LEARNED, drawn by chance, the same ones every time."""
    order = np.random.default_rng(0).permutation(len(samples))[:MOST_LEARNED]
    return [samples[number] for number in order.tolist()]


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


class Compared:
    """Baselines, measured on the same images as the model, by the same metrics."""

    def __init__(self, task: Task) -> None:
        self.baselines = task.baselines()
        self.metrics: list[Metrics] = [task.metrics() for _ in self.baselines]
        self.learned = False
        """Whether they know training images."""
        self.kept: list[tuple[Batch, Any]] = []
        """What is answered for when all of it has been learned from."""

    def learn(self, training: EvalSet, workers: int) -> None:
        pixels = 0
        for batch in eval_batches(training, training.preprocess.at_once, workers):
            for baseline in self.baselines:
                baseline.learn(batch, batch.targets)
            pixels += sum(height * width for height, width in batch.sizes)
            if pixels > MOST_PIXELS:
                break
        self.learned = True

    def see(self, batch: Batch, targets: Any) -> None:
        """An image that is measured."""
        if self.learned:
            self._answer(batch, targets)
        elif sum(len(kept.ids) for kept, _ in self.kept) < MOST_REPEATED:
            for baseline in self.baselines:
                if not baseline.copies:
                    baseline.learn(batch, targets)
            self.kept.append((batch._replace(images=None), targets))

    def _answer(self, batch: Batch, targets: Any) -> None:
        for baseline, metrics in zip(self.baselines, self.metrics, strict=True):
            if self.learned or not baseline.copies:
                metrics.update(baseline.answer(batch), targets)

    def results(self) -> dict[str, dict[str, Any]]:
        """Of each baseline its numbers; none of one that has been shown what it would answer."""
        for batch, targets in self.kept:
            self._answer(batch, targets)
        self.kept = []
        return {
            baseline.name: _plain(metrics.compute(metrics.counts()))
            for baseline, metrics in zip(self.baselines, self.metrics, strict=True)
            if self.learned or not baseline.copies
        }


def _plain(result: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in result.items() if isinstance(value, int | float)}


def _comparison(task: Task, result: Mapping[str, Any], *, faults: bool) -> Finding:
    """The model beside every baseline. It must be better than the best one by more than chance."""
    value, limits = result[task.primary], result["intervals"].get(task.primary)
    ours = f"{task.primary_name} {with_interval(value, limits)}"
    others = {name: each[task.primary] for name, each in result["baselines"].items()}
    if not others:
        return Finding("warn", ours, "")
    theirs = joined([f"{percent(other)} for {name}" for name, other in others.items()])
    best = max(others, key=lambda name: others[name])
    low = value if limits is None else limits[0]
    if low > others[best]:
        return Finding("warn" if faults else "good", f"{ours}, against {theirs}", "")
    if value > others[best]:
        return Finding("warn", f"{ours}: not clearly better than {theirs}", "learn")
    constant = {each.name for each in task.baselines() if not each.copies}
    unbeaten = [name for name in others if value <= others[name]]
    blind = [name for name in unbeaten if name in constant]
    what = f"the model has not learned more than {(blind or unbeaten)[0]}"
    return Finding("bad" if blind else "warn", f"{ours}, {theirs}: {what}", "learn")


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


def _few_to_choose(
    run: Run,
    predictor: Predictor,
    source: Source,
    split: str,
    result: Mapping[str, Any],
    batch: int | None,
    workers: int,
) -> list[Finding]:
    """The weights that are kept are the best on val, and a few images choose by chance."""
    count = len(source.splits.get("val", ()))
    if not 0 < count < FEW_TO_CHOOSE:
        return []
    chosen = (
        result if split == "val" else _on(predictor, source, source.splits["val"], batch, workers)
    )
    name = predictor.task.primary
    value = with_interval(chosen[name], chosen["intervals"].get(name))
    steps = [line for line in run.metrics() if line.get("kind") == "evaluation" and name in line]
    best = max(steps, key=lambda line: line[name], default=None)
    last = ""
    if best is not None and best["step"] < steps[-1]["step"]:
        last = f"; {run.path}@last has the last weights, of step {steps[-1]['step']}"
    which = "" if best is None else f" the weights of step {best['step']}"
    seen = (
        f"only {count} validation images chose{which or ' the weights'}, which may be chance: "
        f"{predictor.task.primary_name} {value} on them{last}"
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
            if any(HELD_OUT in note for note in self.source.notes):
                more = round(min(3 * recipe.val_fraction, 0.5), 2)
                return f"hold out more: {self._train(val_fraction=more)}"
            return f"move images from train to val, then {self._train()}"
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
