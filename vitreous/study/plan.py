"""Which runs a study consists of, and which of them are there already.

Each arm (a variant at a value of the axis) searches for its learning rate with the first seed, by
validation images; then it is trained with every seed. The best run of the search is also the first
of these, if it was as long.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vitreous.atomic_write import write_text
from vitreous.run_folder import OpenedRun, Run
from vitreous.study.jobs import Jobs, StudyJob
from vitreous.study.spec import Axis, Study, Table, Variant, text_of
from vitreous.tasks import task_class
from vitreous.tasks.metric import Metric

Found = dict[str, Any]
"""What a run was measured by: see `measures.measured`."""


@dataclass
class Arm:
    """A variant at a value of the axis, as far as that needs runs of its own."""

    row: Variant
    value: Any
    epochs: int | None = None
    """Where they are not the recipe's: what is held equal decides."""
    seconds: float = 0.0
    """That a run takes."""
    broken: str = ""
    """Why it cannot be built."""
    tried: dict[float, float | None] = field(default_factory=dict)
    """Learning rates, and the best value on validation images; None: the run failed."""
    lr: float | None = None
    """The best of them."""

    @property
    def title(self) -> str:
        return self.row.name + ("" if self.value is None else f" at {text_of(self.value)}")


class StudyPlan:
    """The arms of a study at a tier, and their runs in a folder."""

    def __init__(self, study: Study, folder: Path) -> None:
        self.study, self.folder = study, folder
        self.maker = Jobs(study, folder / "runs")
        self.seeds = range(study.seeds)
        self.arms = [Arm(row, value) for row in study.variant for value in self.maker.values()]
        for arm in self.arms:
            arm.epochs = self._as_many_images(arm)

    def _as_many_images(self, arm: Arm) -> int | None:
        """Epochs with which a fraction of the images is seen as often as all of them are."""
        axis, epochs = self.study.axis, self.study.recipe.get("epochs")
        if not self.study.equal.along or axis is None or axis.name != "fraction" or not epochs:
            return None
        return max(round(epochs / arm.value), 1)

    # which runs

    def final(self, arm: Arm, seed: int, lr: float | None = None) -> StudyJob:
        return self.maker.of(arm.row, seed, arm.value, lr or arm.lr, arm.epochs)

    def search(self, arm: Arm) -> list[StudyJob]:
        """The runs that choose the learning rate; none where the study gives it."""
        search = self.study.search
        if not search.lr or arm.row.run or "lr" in arm.row.recipe:
            return []
        own = search.at == "each" or arm.value is None
        at = arm if own else next(a for a in reversed(self.arms) if a.row is arm.row)
        epochs = search.epochs or at.epochs
        return [self.maker.of(arm.row, 0, at.value, lr, epochs) for lr in search.lr]

    def first(self, arm: Arm) -> StudyJob:
        """One like all of the arm, to see what it costs."""
        searching = self.study.search.lr if self.search(arm) else (None,)
        return self.final(arm, 0, searching[0])

    def before(self, arms: Sequence[Arm]) -> list[list[StudyJob]]:
        """What others start from or learn from, in the order in which it can be trained."""
        left: dict[str, StudyJob] = {}
        for arm in arms:
            for seed in self.seeds:
                job = self.final(arm, seed)
                for each in (*self.maker.needed(job), *([] if job.trained else [job])):
                    left[each.name] = each
        found = []
        while left:
            ready = [job for job in left.values() if not set(job.needs) & left.keys()]
            found.append(ready)
            left = {name: job for name, job in left.items() if job not in ready}
        return found

    def choose(self, arm: Arm) -> None:
        """The learning rate whose run is the best on validation images."""
        for job in self.search(arm):
            found = self.measured(job)
            assert job.recipe.lr is not None
            arm.tried[job.recipe.lr] = None if found is None else found["val"]
        known = {lr: value for lr, value in arm.tried.items() if value is not None}
        if known:
            arm.lr = max(known, key=lambda lr: self.metric.rank(known[lr]))

    # how they are measured

    def evaluations(self, job: StudyJob) -> Table:
        """Options of `vitreous evaluate`, by what they say."""
        row, axis = self.study.named(job.row), self.study.axis
        ways = [row.evaluate]
        if axis is not None and not axis.trains:
            ways = [{**row.evaluate, **_option(axis, value)} for value in axis.values]
        return {json.dumps(each, sort_keys=True): each for each in ways}

    def measures(self, job: StudyJob) -> list[Table]:
        """What is measured besides."""
        row = self.study.named(job.row)
        return [
            {"what": each.what, "options": {**each.options, **row.measure.get(each.what, {})}}
            for each in self.study.measure
            if not each.variants or row.name in each.variants
        ]

    # what is there

    def is_done(self, job: StudyJob, *, final: bool) -> bool:
        found = self.measured(job)
        if found is None or not final:
            return found is not None
        asked = self.evaluations(job).keys() <= found["evaluations"].keys()
        return asked and found.get("asked", []) == self.measures(job)

    def measured(self, job: StudyJob) -> Found | None:
        try:
            found: Found = json.loads(self._file(job).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found if (self.maker.runs / job.name / "config.json").is_file() else None

    def store(self, job: StudyJob, found: Found, *, final: bool) -> None:
        """What took time before counts, too."""
        before = self.measured(job) or {}
        found = {**found, "cpu_seconds": found["cpu_seconds"] + before.get("cpu_seconds", 0.0)}
        if final:
            found["asked"] = self.measures(job)
        self._file(job).parent.mkdir(parents=True, exist_ok=True)
        write_text(self._file(job), json.dumps(found) + "\n")

    def _file(self, job: StudyJob) -> Path:
        return self.folder / "measured" / f"{job.name}.json"

    def spent(self) -> float:
        """CPU seconds of all runs that the study has needed, the search included."""
        jobs = [job for level in self.before(self.arms) for job in level]
        for arm in self.arms:
            jobs += [*self.search(arm), *(self.final(arm, seed) for seed in self.seeds)]
        found = (self.measured(job) for job in {job.name: job for job in jobs}.values())
        return sum(each["cpu_seconds"] for each in found if each is not None)

    @property
    def task(self) -> str | None:
        """Of the first run that is there; None: no run has come as far."""
        for path in sorted(self.maker.runs.glob("*/config.json")):
            task = OpenedRun(Run(path.parent)).config.task
            if not task_class(task).pretrains:
                return task
        return None

    @property
    def metric(self) -> Metric:
        """The one that decides."""
        return Metric("") if self.task is None else task_class(self.task).metric


def _option(axis: Axis, value: Any) -> Table:
    """Of `vitreous evaluate`; the probe "none" changes nothing."""
    if axis.name == "probe":
        return {} if value == "none" else {"probe": [value]}
    return {axis.name: list(value) if isinstance(value, tuple) else value}
