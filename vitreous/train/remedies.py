"""What to do next about a finding, as commands for this run; and what its validation curve says."""

from __future__ import annotations

import shlex
from typing import Any

from vitreous.data.formats.python_data import FROM_PYTHON
from vitreous.data.source import Source
from vitreous.data.split import HELD_OUT
from vitreous.run_folder import Run
from vitreous.tasks.metric import Metric
from vitreous.tasks.task import Task
from vitreous.tasks.verdict import Finding, Remedy
from vitreous.train.advice import fine_tuning_advice
from vitreous.train.open_data import stored_recipe
from vitreous.train.recipe import Recipe, doubled

TEST_PART = 0.1
"""The part of train that is advised to be held out as test."""

FEW_EVALUATIONS = 5
"""Below which a curve does not show whether it has become flat."""
RISING = 0.025
"""By which fraction of its value a metric improves in the last third of a run that was too short:
0.046 in the eight epochs on street scenes in docs/segmentation.md, of which more bring more."""


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
    """What is known of a run whose result is judged."""

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
        path = shlex.quote(str(self.run.path))
        return f"vitreous {self.recipe.command} --resume --out {path} --{name} {value}"
